package options

import (
	_ "embed"
	"fmt"
	"strings"
)

// Usage returns the summary of the flags that -h prints.
func Usage() string {
	const column = 25 // where the help begins
	below := "\n" + strings.Repeat(" ", column+1)
	var b strings.Builder
	b.WriteString("Use: trellisd [OPTIONS]\n\nOptions:\n")
	for i, group := range table(&commandLine{Options: new(Options)}) {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, f := range group {
			head, help := f.head(""), f.help
			if f.letter == "" {
				head = "    " + head
			}
			if len(head) >= column {
				head += below
			}
			if f.def != "" {
				help += " (default is " + f.def + ")"
			}
			fmt.Fprintf(&b, " %-*s%s\n", column, head, strings.ReplaceAll(help, "\n", below))
		}
	}
	return b.String()
}

// head is how a flag is written, with a mark around what is typed as it stands.
func (f *flag) head(mark string) string {
	var forms []string
	if f.letter != "" {
		forms = append(forms, mark+"-"+f.letter+mark)
	}
	if !f.letterOnly {
		forms = append(forms, mark+"--"+f.name+mark)
	}
	return strings.TrimSuffix(strings.Join(forms, ", ")+" "+f.value, " ")
}

// The manual but for its section OPTIONS, which stands where a line says so.
//
//go:embed manual.md
var manual string

// Markdown returns the manual with headings, paragraphs, definition lists and indented blocks. Bold is the
// only other markup.
func Markdown() string {
	var b strings.Builder
	for _, group := range table(&commandLine{Options: new(Options)}) {
		for _, f := range group {
			text := f.manual
			if f.def != "" {
				text += "\nThe default is " + f.def + "."
			}
			fmt.Fprintf(&b, "%s\n:   %s\n\n", f.head("**"), strings.TrimSpace(indent(text)))
		}
	}
	return strings.Replace(manual, "THE FLAGS\n\n", b.String(), 1)
}

// Manual returns the whole description that --help prints.
func Manual() string {
	var b strings.Builder
	belowHeading := false
	for line := range strings.Lines(strings.ReplaceAll(Markdown(), "**", "")) {
		if belowHeading { // an empty line
			belowHeading = false
			continue
		}
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			b.WriteString(heading)
			belowHeading = true
			continue
		}
		if text, ok := strings.CutPrefix(line, ":   "); ok {
			line = "    " + text
		}
		b.WriteString(indent(line))
	}
	return b.String()
}

// indent indents all lines that are not empty.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
