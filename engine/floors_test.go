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

// seam is what sessions, loops, commands and the engine may use of what lies under the locks of shards, besides
// methods and fields whose names begin with a capital letter: types and their making, results, and methods of
// those types that users of this package have in hand.
var seam = strings.Fields(`
	tx shared init defaultTube alarmBy recordIn journalCounters
	tubeNames client flags tubeUsed watching tubeWatched isClaimed
	source goOnRecord
	request verdict gotJob mustWait timedOut deadlineSoon weights weightsOf
	incoming bulk survey work departure hasQuit isCutOff serverStops isParted
	reservationSet numbers recordNumbers recordsHolds recordsAll recordsLinger barrierPos
	groupCount groupNamed settingList allSettings accountNamed tally notFound
`)

// What lies under the lock of a shard knows nothing of sessions, loops and commands, and these see no lock, no job
// and no field of one: see doc.go. A file's name says on which floor it is.
func TestFloorsMeetAtTheSeam(t *testing.T) {
	above := func(file string) bool {
		floor, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".go"), "_")
		return slices.Contains([]string{"engine", "config", "deed", "session", "loop", "cmd"}, floor)
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
	used := map[types.Object]bool{}
	for id, o := range info.Uses {
		if o.Pkg() != pkg || !o.Pos().IsValid() {
			continue
		}
		user, owner := fset.Position(id.Pos()), fset.Position(o.Pos())
		switch {
		case !above(user.Filename) && above(owner.Filename):
			t.Errorf("%s uses %s, which is declared in %s", user, o.Name(), owner)
		case above(user.Filename) && !above(owner.Filename):
			if used[o] = true; !o.Exported() && !slices.Contains(seam, o.Name()) {
				t.Errorf("%s uses %s, which is not of the seam", user, o.Name())
			}
		}
	}
	if len(used) < 60 {
		t.Errorf("only %d names of the floor below are used", len(used))
	}
}
