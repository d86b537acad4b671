package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestWhatControlsATerminalIsEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, äöü, 日本語, 👍":  "plain text, äöü, 日本語, 👍",
		"":                         "",
		"\x1b[31mred\x1b[0m":       `\x1b[31mred\x1b[0m`,
		"\x9b31m\u009b31m":         `\x9b31m\u009b31m`,
		"\a\b\x7f\x00":             `\x07\x08\x7f\x00`,
		"a\r\nb\tc":                `a\r\nb\tc`,
		"\xff\xc3(":                `\xff\xc3(`,
		"user\u202egpj.exe":        `user\u202egpj.exe`,
		"\u2066\u2069\u200f\ufeff": `\u2066\u2069\u200f\ufeff`,
		"\u2028\u00a0":             `\u2028\u00a0`,
		"\U000e0001\U0010ffff":     `\U000e0001\U0010ffff`,
		"\ufffd":                   "\ufffd",
		`C:\x1b`:                   `C:\x1b`,
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := visibleText("a\r\nb\tc\x1b"); got != "a\\r\nb\tc\\x1b" {
		t.Errorf("%q", got)
	}
}

// FuzzVisible makes anything visible, as text and in JSON.
func FuzzVisible(f *testing.F) {
	f.Add(hostileText)
	f.Add("\U000e0001 \"\\")
	f.Fuzz(func(t *testing.T, s string) {
		v := visible(s)
		if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q: %q", s, v)
		}
		if again := visible(v); again != v {
			t.Fatalf("%q: %q, and then %q", s, v, again)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		shown := visibleJSON(text)
		if !plain(string(shown)) {
			t.Fatalf("%q: %q", s, shown)
		}
		var was, is string
		if json.Unmarshal(text, &was) != nil || json.Unmarshal(shown, &is) != nil || was != is {
			t.Fatalf("%q: %s is not %s", s, shown, text)
		}
	})
}
