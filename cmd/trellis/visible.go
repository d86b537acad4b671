package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible is s in one line with nothing in it that could control a terminal: everything
// that is not printed, invalid UTF-8 and what changes the direction of text are escaped, as
// Go writes them in strings. Backslashes are left alone.
func visible(s string) string { return escape(s, "") }

// visibleText is visible for a text of several lines.
func visibleText(s string) string { return escape(s, "\n\t") }

// plain tells whether a terminal can show s as it is.
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

// shown tells whether a character is one that is seen. Those of the kinds C and Z, among
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

// cut shortens s to so many characters.
func cut(s string, n int) string {
	count := 0
	for i := range s {
		if count++; count > n {
			return s[:i] + "…"
		}
	}
	return s
}
