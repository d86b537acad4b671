package engine

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxSeam is how many names of package shard sessions, loops, commands and the engine may use.
const maxSeam = 90

// Sessions, loops, commands and the engine see no lock, no job and no record of shards. What they use of these are few
// operations: if one more seems to be needed, look for the operation that is missing.
func TestTheSeamIsNarrow(t *testing.T) {
	shard := checked(t, "internal/shard", nil, nil)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checked(t, ".", shard, info)
	used := map[types.Object]bool{}
	for _, o := range info.Uses {
		if o.Pkg() == shard {
			used[o] = true
		}
	}
	var list []string
	for o := range used {
		list = append(list, o.Name())
		if v, ok := o.(*types.Var); ok && v.IsField() && !v.Embedded() && !slices.Contains(fields, o.Name()) {
			t.Errorf("the field %s of package shard is used", o.Name())
		}
	}
	if slices.Sort(list); len(list) > maxSeam || len(list) < 30 {
		t.Errorf("%d names of package shard are used, want at most %d: %v", len(list), maxSeam, list)
	}
}

// fields are those of values that are made for one operation, or belong to the session.
var fields = strings.Fields("Flags ID Client Until Aged Informed LoopNumbers")

// checked is the package in a directory, with the package shard, if it is given. No other package is looked at.
func checked(t *testing.T, dir string, shard *types.Package, info *types.Info) *types.Package {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	cfg := types.Config{Importer: importing{shard}, Error: func(error) {}}
	pkg, _ := cfg.Check("trellis/engine/"+dir, fset, files, info)
	return pkg
}

// importing finds the package shard, if there is one.
type importing struct{ shard *types.Package }

func (i importing) Import(path string) (*types.Package, error) {
	if i.shard != nil && path == i.shard.Path() {
		return i.shard, nil
	}
	return nil, errors.New("not looked at")
}
