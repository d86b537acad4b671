package main

import (
	"fmt"
	"regexp"
	"strings"
)

// page turns a manual into a manual page. What the manual's layout says:
//
//   - a line that is not indented is a heading
//   - text is indented by 4, its paragraphs are separated by empty lines
//   - a line with text that is indented by 8 below it is a term, or a part of
//     one, and that text explains it
//   - a term of one word may stand on one line with its explanation, two or more
//     blanks between them
//   - text that is indented by 2 more than the paragraph that it is in is a table
func page(manual, version, date string) string {
	w := &writer{}
	w.line(".TH TRELLISD 8 %q %q %q", date, "trellisd "+version, "System administration")
	// No hyphens, nothing stretched: flags are to be found and copied.
	w.line(".nh")
	w.line(".ad l")
	lines := strings.Split(strings.TrimRight(manual, "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		switch depth := indent(line); {
		case line == "":
			i++
		case depth == 0:
			w.line(".SH %s", escape(line))
			i++
		default:
			n := 1
			for i+n < len(lines) && lines[i+n] != "" && indent(lines[i+n]) > 0 {
				n++
			}
			w.block(lines[i : i+n])
			i += n
		}
	}
	return w.String()
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

const (
	textIndent = 4
	termIndent = 8 // of a term's explanation
	listIndent = 2 // of a table, in addition
)

type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// oneLineTerm is a term that has its explanation beside it.
var oneLineTerm = regexp.MustCompile(`^    (-?\w+)  +(\S.*)$`)

// block writes lines that no empty line separates.
func (w *writer) block(lines []string) {
	if indent(lines[0]) >= termIndent { // goes on with what belongs to the term
		w.line(".IP")
		w.text(lines)
		return
	}
	for len(lines) > 0 {
		term := 0 // number of lines that make up the term
		for term < len(lines) && indent(lines[term]) == textIndent {
			term++
		}
		body := term
		for body < len(lines) && indent(lines[body]) >= termIndent {
			body++
		}
		switch m := oneLineTerm.FindStringSubmatch(lines[0]); {
		case m != nil:
			w.line(".TP")
			w.line("%s", bold(m[1]))
			w.line("%s", escape(m[2]))
			lines = lines[1:]
		case body > term && term > 0:
			w.line(".TP")
			var names []string
			for _, l := range lines[:term] {
				names = append(names, strings.TrimSpace(l))
			}
			w.line("%s", bold(strings.Join(names, " ")))
			w.text(lines[term:body])
			lines = lines[body:]
		default:
			w.line(".PP")
			w.text(lines)
			return
		}
	}
}

// text writes a paragraph and the tables in it.
func (w *writer) text(lines []string) {
	depth, inTable := indent(lines[0]), false
	for _, l := range lines {
		if table := indent(l) >= depth+listIndent; table != inTable {
			if inTable = table; inTable {
				w.line(".nf")
			} else {
				w.line(".fi")
			}
		}
		w.line("%s", escape(l[min(indent(l), depth):]))
	}
	if inTable {
		w.line(".fi")
	}
}

// word matches what readers type as it stands: flags, variables, signals and numbers.
// Names that stand for values do not match.
var word = regexp.MustCompile(`^(-.*|[A-Z]+_[A-Z]+,?|GO[A-Z]+,?|SIG[A-Z]+,?|[0-9]+,?)$`)

// bold is a term with its fixed words in bold face. A term that is a whole
// command is bold all over.
func bold(text string) string {
	fields := strings.Fields(text)
	fixed := false
	for _, f := range fields {
		fixed = fixed || word.MatchString(strings.Trim(f, "()"))
	}
	if !fixed || strings.HasPrefix(text, "trellisd ") || strings.Contains(text, "|") {
		return `\fB` + escape(text) + `\fP`
	}
	for i, f := range fields {
		bare := strings.TrimRight(strings.Trim(f, "()"), ",)")
		if word.MatchString(bare) {
			fields[i] = strings.Replace(escape(f), escape(bare), `\fB`+escape(bare)+`\fP`, 1)
		} else {
			fields[i] = escape(f)
		}
	}
	return strings.Join(fields, " ")
}

var escaper = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `^`, `\(ha`, `~`, `\(ti`, `'`, `\(aq`, "`", `\(ga`)

// escape makes text that means itself.
func escape(text string) string {
	text = escaper.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
