package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"trellis/cmd/internal/client"
)

var formats = []string{"table", "json", "ndjson", "yaml"}

type outputFlags struct {
	format    string
	noHeaders bool
	flags     *pflag.FlagSet
}

func (f *outputFlags) register(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	cmd.Flags().StringVarP(&f.format, "output", "o", "table",
		"table, json, ndjson (an object a line) or yaml (TRELLIS_OUTPUT)")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "tables without the line of headings")
	complete(cmd, "output", formats...)
}

func (f *outputFlags) printer(w io.Writer) (*printer, error) {
	if err := fromVariable(f.flags, "output", "TRELLIS_OUTPUT"); err != nil {
		return nil, err
	}
	if !slices.Contains(formats, f.format) {
		return nil, fmt.Errorf("-o is table, json, ndjson or yaml, not %q", f.format)
	}
	tty := isTerminal(w)
	return &printer{
		w: bufio.NewWriter(w), format: f.format, headers: !f.noHeaders, terminal: tty,
		colors: tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}, nil
}

// isTerminal reports whether w, a reader or a writer, is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A printer writes results in one of the formats. Tables are for people; what else it
// writes is for programs: objects with the keys of the protocol.
//
// What comes from a server or a job is made visible in every format.
type printer struct {
	w        *bufio.Writer
	format   string
	headers  bool
	terminal bool
	colors   bool
}

// err writes what is buffered, and reports whether anything could not be written.
func (p *printer) err() error {
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// A style is how a terminal shows a cell.
type style string

const (
	bold   style = "\x1b[1m"
	red    style = "\x1b[31m"
	yellow style = "\x1b[33m"
)

// A column of a table shows one key of each object.
type column struct {
	head  string
	key   string
	right bool                      // aligned to the right
	show  func(client.Value) string // how people read the value; nil: as it is
	style func(client.Value) style  // of the cell; nil: none
}

type cell struct {
	text string
	style
}

type listing struct {
	p       *printer
	columns []column
	rows    [][]cell // of a table, which is written at the end
	n       int
}

// list begins a list. The columns are those of the table.
func (p *printer) list(columns ...column) *listing { return &listing{p: p, columns: columns} }

// add writes an object.
func (l *listing) add(f client.Fields) error {
	l.n++
	if l.p.format == "table" {
		var row []cell
		for _, c := range l.columns {
			v, ok := f.Get(c.key)
			row = append(row, c.cell(v, ok))
		}
		l.rows = append(l.rows, row)
		return nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	switch before := "[\n  "; {
	case l.p.format == "yaml":
		l.p.yaml("- ", "  ", f)
	case l.p.format == "ndjson":
		_, _ = l.p.w.Write(append(visibleJSON(text), '\n'))
	default:
		if l.n > 1 {
			before = ",\n  "
		}
		_, _ = l.p.w.WriteString(before)
		_, _ = l.p.w.Write(visibleJSON(text))
	}
	return nil
}

// all writes the entries and ends the list. If it is empty, that is the error.
func (l *listing) all(entries []client.Fields, empty string, args ...any) error {
	for _, f := range entries {
		if err := l.add(f); err != nil {
			return err
		}
	}
	l.end()
	if l.n == 0 {
		return nothingFound(fmt.Errorf(empty, args...))
	}
	return nil
}

// end ends the list.
func (l *listing) end() {
	switch {
	case l.p.format == "table":
		l.p.table(l.columns, l.rows)
	case l.p.format == "json" && l.n > 0:
		_, _ = l.p.w.WriteString("\n]\n")
	case l.p.format != "ndjson" && l.n == 0:
		_, _ = l.p.w.WriteString("[]\n")
	}
}

func (c *column) cell(v client.Value, ok bool) cell {
	var out cell
	switch {
	case !ok:
		return cell{text: "-"}
	case c.show != nil:
		out.text = c.show(v)
	default:
		out.text = v.Text
	}
	out.text = cmp.Or(out.text, "-")
	if c.style != nil {
		out.style = c.style(v)
	}
	return out
}

// table writes aligned columns. Nothing is written for no rows.
func (p *printer) table(columns []column, rows [][]cell) {
	if len(rows) == 0 {
		return
	}
	if p.headers {
		var head []cell
		for _, c := range columns {
			head = append(head, cell{c.head, bold})
		}
		rows = slices.Insert(rows, 0, head)
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i := range row {
			row[i].text = visible(row[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	for _, row := range rows {
		for i, c := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			if columns[i].right {
				_, _ = p.w.WriteString(gap)
			}
			p.styled(c)
			if i == len(row)-1 {
				break
			}
			if !columns[i].right {
				_, _ = p.w.WriteString(gap)
			}
			_, _ = p.w.WriteString("  ")
		}
		_, _ = p.w.WriteString("\n")
	}
}

func (p *printer) styled(c cell) {
	if !p.colors || c.style == "" {
		_, _ = p.w.WriteString(c.text)
		return
	}
	fmt.Fprintf(p.w, "%s%s\x1b[0m", c.style, c.text)
}

func (p *printer) object(f client.Fields) error {
	if p.format == "table" {
		columns := []column{{head: "KEY"}, {head: "VALUE"}}
		var rows [][]cell
		for _, field := range f {
			rows = append(rows, []cell{{text: field.Key}, {text: forPeople(field)}})
		}
		p.table(columns, rows)
		return nil
	}
	return p.fields(f)
}

// fields writes one object for programs.
func (p *printer) fields(f client.Fields) error {
	if p.format == "yaml" {
		p.yaml("", "", f)
		return nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if p.format == "json" {
		var indented bytes.Buffer
		if err := json.Indent(&indented, text, "", "  "); err != nil {
			return err
		}
		text = indented.Bytes()
	}
	_, _ = p.w.Write(append(visibleJSON(text), '\n'))
	return nil
}

// result writes what a command has done: a sentence in place of a table.
func (p *printer) result(sentence string, f client.Fields) error {
	if p.format == "table" {
		_, _ = p.w.WriteString(visible(sentence) + "\n")
		return nil
	}
	return p.fields(f)
}

// yaml writes an object. Values are written as in JSON, which YAML takes.
func (p *printer) yaml(first, others string, f client.Fields) {
	for i, field := range f {
		before := others
		if i == 0 {
			before = first
		}
		value, err := json.Marshal(field.Value)
		if err != nil {
			value = []byte("null")
		}
		fmt.Fprintf(p.w, "%s%s: %s\n", before, yamlKey(field.Key), visibleJSON(value))
	}
}

// yamlWords are what a reader of YAML may take for something else than a text, of letters.
var yamlWords = []string{"y", "yes", "n", "no", "true", "false", "on", "off", "null"}

// yamlKey is a key as YAML takes it. Those of the protocol need no quotes.
func yamlKey(key string) string {
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz-") == "" && key[0] != '-' && !slices.Contains(yamlWords, key) {
		return key
	}
	text, _ := json.Marshal(key)
	return string(visibleJSON(text))
}

func number[N int | uint64 | uint32](key string, n N) client.Field {
	return client.Field{Key: key, Value: client.Value{Kind: client.Number, Text: fmt.Sprint(n)}}
}

func text(key, s string) client.Field {
	return client.Field{Key: key, Value: client.Value{Text: s}}
}

func numbers(key string, all []uint64) client.Field {
	v := client.Value{Kind: client.List}
	for _, n := range all {
		v.List = append(v.List, number("", n).Value)
	}
	return client.Field{Key: key, Value: v}
}
