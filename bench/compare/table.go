package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"trellis/bench/internal/host"
	"trellis/bench/internal/quantity"
)

// WriteJSON writes all values as one JSON object.
func (t *Table) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(t)
}

// WriteTable writes the comparison for people.
func (t *Table) WriteTable(out io.Writer) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range t.lines() {
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range t.footnotes() {
		fmt.Fprintln(out, n)
	}
	return nil
}

// lines returns the cells of the table, the first line being its head: the values of all servers, then the ratios of
// the last server to each of the others.
func (t *Table) lines() [][]string {
	head := append([]string{"measurement", "figure"}, t.Servers...)
	others := len(t.Servers) - 1
	for _, name := range t.Servers[:others] {
		if others == 1 {
			head = append(head, "ratio (from, to)")
		} else {
			head = append(head, t.Servers[others]+" / "+name+" (from, to)")
		}
	}
	lines := [][]string{append(head, "at least", "aim")}
	last := ""
	for _, r := range t.Rows {
		name := r.Name
		if name == last {
			name = ""
		}
		last = r.Name
		line := []string{name, r.Figure}
		for i := range r.Cells {
			line = append(line, r.value(&r.Cells[i]))
		}
		for _, c := range r.Cells[:others] {
			text := ""
			if c.Last != nil {
				text = fmt.Sprintf("%s (%s, %s)",
					quantity.Ratio(c.Last.Median), quantity.Ratio(c.Last.Least), quantity.Ratio(c.Last.Most))
			}
			line = append(line, text)
		}
		lines = append(lines, append(line, r.AtLeast.String(), r.Aim.String()))
	}
	return lines
}

// value writes the figure of one server with the marks of its notes.
func (r *Row) value(c *Cell) string {
	text := r.Skipped
	switch {
	case text != "":
	case len(c.Values) == 0 && slices.Contains(c.Notes, NoteBroken):
		text = "fails"
	case len(c.Values) == 0:
		text = "cannot"
	case c.Median == 0 && !r.figure.zero:
		text = "unknown"
	default:
		text = r.figure.unit.Format(c.Median)
	}
	for _, n := range c.Notes {
		text += noteMarks[n].mark
	}
	return text
}

// noteMarks are how notes are shown in a table, and below it.
var noteMarks = map[Note]struct{ mark, text string }{
	NoteFull:    {"¹", "The generator's core was full: the server could do more."},
	NoteStarved: {"²", "Something else took processors away during a run."},
	NoteBroken:  {"³", "The server broke its promises; the command says how."},
	NoteBehind:  {"⁴", "The server did not keep up with the rate."},
	NoteProxy:   {"⁵", "The server does not speak TLS: stunnel in front of it does, and what it needs is included."},
}

func (t *Table) footnotes() []string {
	seen := make(map[string]bool)
	for _, r := range t.Rows {
		for _, c := range r.Cells {
			for _, n := range c.Notes {
				seen[noteMarks[n].mark+" "+noteMarks[n].text] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// WriteMarkdown writes the comparison as a table in Markdown, with the machine, the versions and the command that
// makes it.
func (t *Table) WriteMarkdown(out io.Writer, command string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured with `%s` on %s, in %v, %d rounds: "+
		"medians, and for ratios the median, least and greatest of the rounds.\n\n",
		command, t.Machine, t.Took.Round(time.Second), t.Rounds)
	for i, s := range t.Servers {
		fmt.Fprintf(&b, "- %s: version %s, `%s`\n", s, t.Versions[i], t.Commands[i])
	}
	if t.LogsOn != "" {
		fmt.Fprintf(&b, "- logs on a file system of type %s\n", t.LogsOn)
	}
	b.WriteByte('\n')
	for i, line := range t.lines() {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			b.WriteString("|---|---" + strings.Repeat("|---:", len(line)-2) + "|\n")
		}
	}
	for _, n := range t.footnotes() {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Machine describes this machine in a few words.
func Machine() string {
	return fmt.Sprintf("%s, %d processors, %s, %s/%s, Go %s",
		host.ProcessorModel(), runtime.NumCPU(), host.KernelVersion(), runtime.GOOS, runtime.GOARCH,
		strings.TrimPrefix(runtime.Version(), "go"))
}

// UpdateMarkdown writes text into the file between the lines "<!-- MARK: begin -->" and "<!-- MARK: end -->", in place
// of what is there. A file that does not exist is made. A file that has other such sections, but not this one, gets it
// at its end; one that has none is left alone, because it may be meant for something else.
func UpdateMarkdown(file, mark string, text []byte) error {
	begin, end := "<!-- "+mark+": begin -->\n", "<!-- "+mark+": end -->\n"
	old, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		old = []byte("# Results of trellis bench compare\n\n" + begin + end)
	case err != nil:
		return err
	case !bytes.Contains(old, []byte(begin)) && anySection.Match(old):
		old = append(old, "\n"+begin+end...)
	}
	before, rest, ok1 := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", file, begin, end)
	}
	return os.WriteFile(file, slices.Concat(before, []byte(begin), text, []byte(end), after), 0o644)
}

// anySection is the first line of a section that UpdateMarkdown has written.
var anySection = regexp.MustCompile(`(?m)^<!-- bench( \w+)?: begin -->$`)
