package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// times and sizes are the keys of statistics that are seconds and bytes.
var (
	times = map[string]bool{
		"uptime": true, "age": true, "delay": true, "ttr": true, "time-left": true, "pause": true, "pause-time-left": true,
		"waiting-time": true,
	}
	sizes = map[string]bool{"binlog-max-size": true, "size": true, "bytes-in": true, "bytes-out": true}
	names = map[string]bool{"id": true, "pid": true, "pri": true, "file": true} // numbers that count nothing
)

// forPeople is a value as tables show it.
func forPeople(f client.Field) string {
	switch {
	case f.Value.Kind == client.List:
		return strings.Join(texts(f.Value.List), ", ")
	case f.Value.Kind != client.Number, names[f.Key]:
		return f.Value.Text
	case times[f.Key]:
		return asTime(f.Value)
	case sizes[f.Key]:
		return asSize(f.Value)
	}
	return asCount(f.Value)
}

func texts(values []client.Value) (all []string) {
	for _, v := range values {
		all = append(all, v.Text)
	}
	return all
}

// asWhole shows a value that is a whole number as text does, and another one as it is.
func asWhole(text func(uint64) string) func(client.Value) string {
	return func(v client.Value) string {
		n, err := strconv.ParseUint(v.Text, 10, 64)
		if err != nil {
			return v.Text
		}
		return text(n)
	}
}

var (
	asTime  = asWhole(operate.Seconds)
	asSize  = asWhole(operate.Size[uint64])
	asCount = asWhole(func(n uint64) string { return operate.Count(n) })
	asPause = asWhole(operate.PauseText)
)

// asMean shows seconds with their decimals.
func asMean(v client.Value) string {
	seconds, err := strconv.ParseFloat(v.Text, 64)
	if err != nil {
		return v.Text
	}
	return operate.Span(seconds)
}

// asWord shows a word, of which none is one.
func asWord(v client.Value) string { return strings.TrimPrefix(v.Text, none) }

const none = "none"

// columnsOf are the columns that a view has of tubes.
func columnsOf(view operate.View) (columns []column) {
	for _, c := range operate.ColumnsOf(view) {
		col := column{head: strings.ToUpper(c.Heading), key: c.JSON, right: c.Kind != operate.Name}
		switch c.Kind {
		case operate.Number:
			col.show = asCount
		case operate.Age:
			col.show = asTime
		case operate.Pause:
			col.show, col.style = asPause, ifAny(yellow)
		case operate.Mean:
			col.show = asMean
		case operate.Word:
			col.show, col.style = asWord, ifAny(yellow)
		}
		if c.Alarm {
			col.style = ifAny(red)
		}
		columns = append(columns, col)
	}
	return columns
}

// counted is a column of numbers.
func counted(head, key string) column {
	return column{head: head, key: key, right: true, show: asCount}
}

// ifAny is a style for numbers other than 0, and for words other than none.
func ifAny(s style) func(client.Value) style {
	return func(v client.Value) style {
		if v.Text == "0" || v.Text == none {
			return ""
		}
		return s
	}
}

// visible is s in one line with nothing in it that could control a terminal: everything
// that is not printed, invalid UTF-8 and what changes the direction of text are escaped, as
// Go writes them in strings. Backslashes are left alone.
func visible(s string) string { return escape(s, "") }

// tell writes a line in which there may be words of a server.
func tell(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, visible(fmt.Sprintf(format, args...)))
}

// A visibleWriter makes visible what is written to w. Each Write is of whole characters.
type visibleWriter struct{ w io.Writer }

func (v visibleWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(v.w, visibleText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// visibleText is visible for a text of several lines.
func visibleText(s string) string { return escape(s, "\n\t") }

// plain reports whether a terminal can show s as it is.
func plain(s string) bool { return visibleText(s) == s }

func escape(s, keep string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case shown(r) || strings.ContainsRune(keep, r):
			b.WriteString(s[i : i+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

// shown reports whether a character is one that is seen. Those of the kinds C and Z, among
// them the controls and the overrides of direction, are not, except the space.
func shown(r rune) bool { return unicode.IsPrint(r) }

// visibleJSON escapes in JSON what visible escapes in text, so that a terminal shows it
// and a program reads the same.
func visibleJSON(text []byte) []byte {
	if !strings.ContainsFunc(string(text), func(r rune) bool { return r > '~' }) {
		return text
	}
	var b []byte
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || shown(r):
			b = append(b, text[:n]...)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[n:]
	}
	return b
}

func cut(s string, n int) string {
	count := 0
	for i := range s {
		if count++; count > n {
			return s[:i] + "…"
		}
	}
	return s
}
