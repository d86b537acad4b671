package relay

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What decides has no socket, file, clock, goroutine or lock: a cluster of these machines runs wherever somebody
// drives it.
func TestNothingIsImportedThatTouchesTheWorld(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"bytes", "cmp", "errors", "fmt", "io", "math", "slices", "time",
		"trellis/binlog/journal", "trellis/codec", "trellis/engine", "trellis/reactor/internal/trunk",
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	parsed := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed++
		src, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), src, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, err := strconv.Unquote(i.Path.Value); err != nil || !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", f.Name(), i.Path.Value)
			}
		}
		for _, no := range []string{"time.Now", "time.Since", "time.After", "time.Sleep", "time.NewTimer", "time.Tick"} {
			if strings.Contains(string(src), no) {
				t.Errorf("%s uses %s", f.Name(), no)
			}
		}
	}
	if parsed < 5 {
		t.Errorf("%d files were looked at", parsed)
	}
}
