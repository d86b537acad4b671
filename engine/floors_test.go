package engine

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What lies under the lock of a shard knows nothing of sessions, loops and commands: see
// doc.go. A file's name says on which floor it is.
func TestShardsKnowNothingOfTheFloorAbove(t *testing.T) {
	above := func(file string) bool {
		floor, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".go"), "_")
		return slices.Contains([]string{"engine", "session", "loop", "cmd"}, floor)
	}
	names, err := filepath.Glob("*.go")
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
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "source", nil), Error: func(error) {}}
	pkg, _ := cfg.Check("trellis/engine", fset, files, info)
	down := 0
	for id, o := range info.Uses {
		if o.Pkg() != pkg || !o.Pos().IsValid() {
			continue
		}
		user, owner := fset.Position(id.Pos()), fset.Position(o.Pos())
		switch {
		case !above(user.Filename) && above(owner.Filename):
			t.Errorf("%s uses %s, which is declared in %s", user, o.Name(), owner)
		case above(user.Filename) && !above(owner.Filename):
			down++
		}
	}
	if down < 500 {
		t.Errorf("only %d uses of the floor below were found", down)
	}
}
