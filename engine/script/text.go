package script

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxRepeat bounds the length that a repetition may have, to catch slips of the pen.
const maxRepeat = 1 << 24

// A token is a piece of a text: literal bytes or a pattern.
type token struct {
	literal []byte
	matches func(b []byte) bool // for a pattern: does it accept b?
	length  bool                // the pattern {#}
}

// A text is a parsed text: tokens, no two literals in a row, no two patterns in a row.
type text []token

var errPattern = errors.New("a pattern is not possible here")

// parseText parses a text with escapes, repetitions and patterns.
func parseText(s string) (text, error) {
	var t text
	var lit []byte
	for len(s) > 0 {
		switch {
		case s[0] == '\\':
			c, n, err := unescape(s)
			if err != nil {
				return nil, err
			}
			lit = append(lit, c)
			s = s[n:]
		case s[0] == '{':
			inner, rest, err := braced(s)
			if err != nil {
				return nil, err
			}
			s = rest
			again, ok, err := repeated(lit, inner)
			if err != nil {
				return nil, err
			}
			if ok {
				lit = append(lit, again...)
				continue
			}
			pattern, err := parsePattern(inner)
			if err != nil {
				return nil, err
			}
			if len(lit) > 0 {
				t = append(t, token{literal: lit})
				lit = nil
			} else if len(t) > 0 {
				return nil, errors.New("two patterns in a row")
			}
			t = append(t, pattern)
		default:
			lit = append(lit, s[0])
			s = s[1:]
		}
	}
	if len(lit) > 0 {
		t = append(t, token{literal: lit})
	}
	return t, nil
}

// parseLiteral parses a text that has no patterns.
func parseLiteral(s string) ([]byte, error) {
	t, err := parseText(s)
	if err != nil {
		return nil, err
	}
	switch {
	case len(t) == 0:
		return nil, nil
	case len(t) > 1 || t[0].matches != nil:
		return nil, errPattern
	}
	return t[0].literal, nil
}

// unescape decodes the escape at the start of s, which takes n bytes: one of Go's, or that of a
// space or a brace.
func unescape(s string) (c byte, n int, err error) {
	if len(s) > 1 && s[1] == 's' {
		return ' ', 2, nil
	}
	if len(s) > 1 && s[1] == '{' {
		return '{', 2, nil
	}
	v, multibyte, rest, err := strconv.UnquoteChar(s, 0)
	if err != nil || multibyte {
		return 0, 0, fmt.Errorf("bad escape at %q", s)
	}
	return byte(v), len(s) - len(rest), nil
}

// braced cuts the braces at the start of s, which may be nested, from the rest.
func braced(s string) (inner, rest string, err error) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[1:i], s[i+1:], nil
			}
		}
	}
	return "", "", fmt.Errorf("missing } after %q", s)
}

// repeated returns what a repetition adds to the literal bytes before it. ok is
// false when inner is no repetition.
func repeated(lit []byte, inner string) (again []byte, ok bool, err error) {
	count, repeatedText, group := strings.Cut(inner, "*")
	n, err := strconv.Atoi(count)
	if err != nil {
		return nil, false, nil
	}
	if group {
		unit, err := parseLiteral(repeatedText)
		if err != nil {
			return nil, true, err
		}
		if n < 1 || n*len(unit) > maxRepeat {
			return nil, true, fmt.Errorf("bad repetition {%s}", inner)
		}
		return bytes.Repeat(unit, n), true, nil
	}
	if n < 1 || n > maxRepeat || len(lit) == 0 {
		return nil, true, fmt.Errorf("bad repetition {%s}", inner)
	}
	return bytes.Repeat(lit[len(lit)-1:], n-1), true, nil
}

func parsePattern(inner string) (token, error) {
	if inner == "*" {
		return token{matches: func(b []byte) bool { return !bytes.ContainsAny(b, "\r\n") }}, nil
	}
	if inner == "#" {
		return token{matches: number.Match, length: true}, nil
	}
	if expr, ok := strings.CutPrefix(inner, "~"); ok {
		re, err := regexp.Compile("^(?:" + expr + ")$")
		if err != nil {
			return token{}, fmt.Errorf("in {%s}: %w", inner, err)
		}
		return token{matches: re.Match}, nil
	}
	if from, to, ok := strings.Cut(inner, ".."); ok {
		low, err1 := strconv.ParseUint(from, 10, 64)
		high, err2 := strconv.ParseUint(to, 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return token{}, fmt.Errorf("in {%s}: %w", inner, err)
		}
		return token{matches: func(b []byte) bool {
			n, err := strconv.ParseUint(string(b), 10, 64)
			return err == nil && number.Match(b) && low <= n && n <= high
		}}, nil
	}
	return token{}, fmt.Errorf("unknown pattern {%s}", inner)
}

// number is a decimal number as the server writes it.
var number = regexp.MustCompile("^(0|[1-9][0-9]*)$")

// verdict is what a comparison of received bytes with a text came to.
type verdict uint8

const (
	more     verdict = iota // all bytes fit, but more are needed
	match                   // the text is matched
	mismatch                // the bytes do not fit, whatever follows
)

// compare matches the front of b against t, which must end with a literal. The
// first n bytes fit. What {#} counts are the bytes after the first CR LF, less
// the CR LF at the end.
func (t text) compare(b []byte) (v verdict, n int) {
	var length []byte
	lengthAt := 0
	for i, tok := range t {
		rest := b[n:]
		if tok.matches == nil {
			common := 0
			for common < min(len(rest), len(tok.literal)) && rest[common] == tok.literal[common] {
				common++
			}
			n += common
			switch {
			case common == len(tok.literal):
				continue
			case common == len(rest):
				return more, n
			}
			return mismatch, n
		}
		end := bytes.IndexByte(rest, t[i+1].literal[0])
		if end < 0 {
			return more, n
		}
		if !tok.matches(rest[:end]) {
			return mismatch, n
		}
		if tok.length {
			length, lengthAt = rest[:end], n
		}
		n += end
	}
	if length != nil {
		_, data, _ := bytes.Cut(b[:n], []byte("\r\n"))
		if strconv.Itoa(len(data)-len("\r\n")) != string(length) {
			return mismatch, lengthAt
		}
	}
	return match, n
}

// quote shows bytes as they would be written in a script, if they are not too many.
func quote(b []byte) string {
	const most = 2000
	cut := ""
	if len(b) > most {
		b, cut = b[:most], fmt.Sprintf("... (%d bytes more)", len(b)-most)
	}
	var s strings.Builder
	for i, c := range b {
		switch {
		case c == '\r':
			s.WriteString(`\r`)
		case c == '\n':
			s.WriteString(`\n`)
		case c == '\t':
			s.WriteString(`\t`)
		case c == '\\' || c == '{':
			s.WriteByte('\\')
			s.WriteByte(c)
		case c == ' ' && (i == 0 || i == len(b)-1):
			s.WriteString(`\s`)
		case c < ' ' || c > '~':
			fmt.Fprintf(&s, `\x%02x`, c)
		default:
			s.WriteByte(c)
		}
	}
	return s.String() + cut
}
