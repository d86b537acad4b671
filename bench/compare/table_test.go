package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/bench/internal/quantity"
)

func TestMarkdownReplacesWhatIsBetweenTheMarks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	for _, text := range []string{"one\n", "two\nlines\n"} {
		if err := UpdateMarkdown(file, "mark", []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if want := "<!-- mark: begin -->\n" + text + "<!-- mark: end -->\n"; err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("no marks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := UpdateMarkdown(file, "mark", []byte("x")); err == nil {
		t.Error("a file without marks was changed")
	}
}

func TestATableHasARatioToEachServerButTheLast(t *testing.T) {
	for _, c := range []struct {
		servers []string
		head    string
		line    string
	}{
		{[]string{"a"}, "figure | a | at least", "f | 1/s |  | "},
		{[]string{"a", "b"}, "figure | a | b | ratio (from, to) | at least", "f | 1/s | 2/s | 2.00 (2.00, 2.00) |  | "},
		{
			[]string{"a", "b", "c"},
			"figure | a | b | c | c / a (from, to) | c / b (from, to) | at least",
			"f | 1/s | 2/s | 3/s | 3.00 (3.00, 3.00) | 1.50 (1.50, 1.50) |  | ",
		},
	} {
		row := Row{Name: "row", Figure: "f", figure: figure{unit: quantity.PerSecond}}
		for i := range c.servers {
			row.Cells = append(row.Cells, Cell{Values: []float64{float64(i + 1)}})
		}
		row.finish(1)
		lines := (&Table{Servers: c.servers, Rows: []Row{row}}).lines()
		if head := strings.Join(lines[0], " | "); !strings.Contains(head, c.head) || len(lines[0]) != len(lines[1]) {
			t.Errorf("%q: got the head %q", c.servers, head)
		}
		if line := strings.Join(lines[1], " | "); !strings.HasSuffix(line, c.line) {
			t.Errorf("%q: got %q, want %q", c.servers, line, c.line)
		}
	}
}
