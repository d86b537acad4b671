package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/bench/internal/quantity"
)

func TestMarkdownReplacesWhatIsBetweenTheMarks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "RESULTS.md")
	update := func(mark, text, want string) {
		t.Helper()
		if err := UpdateMarkdown(file, mark, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	section := func(mark, text string) string {
		return "<!-- " + mark + ": begin -->\n" + text + "<!-- " + mark + ": end -->\n"
	}
	const head = "# Results of trellis bench compare\n\n"
	update("bench", "one\n", head+section("bench", "one\n"))
	update("bench", "two\nlines\n", head+section("bench", "two\nlines\n"))
	update("bench cluster", "three\n", head+section("bench", "two\nlines\n")+"\n"+section("bench cluster", "three\n"))
	update("bench", "", head+section("bench", "")+"\n"+section("bench cluster", "three\n"))
}

func TestMarkdownLeavesOtherFilesAlone(t *testing.T) {
	for _, text := range []string{"no marks\n", "<!-- bench: begin -->\nno end\n"} {
		file := filepath.Join(t.TempDir(), "README.md")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := UpdateMarkdown(file, "bench", []byte("x")); err == nil {
			t.Errorf("%q: no error", text)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%q became %q, %v", text, got, err)
		}
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
