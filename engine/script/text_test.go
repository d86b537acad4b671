package script

import (
	"strings"
	"testing"
)

func TestTextsAreDecoded(t *testing.T) {
	for source, want := range map[string]string{
		``:                        "",
		`put 0 0 1 1\r\na`:        "put 0 0 1 1\r\na",
		`\s\ttab\\\{}`:            " \ttab\\{}",
		`\x00\xff\x0D`:            "\x00\xff\r",
		`x{5}`:                    "xxxxx",
		`use \s{3}n{2}.`:          "use    nn.",
		`{3*ab\r\n}c`:             "ab\r\nab\r\nab\r\nc",
		`a{2*x{3}-}`:              "axxx-xxx-",
		`{"not": "a repetition"}`: "error",
		`\x0`:                     "error",
		`\q`:                      "error",
		`\`:                       "error",
		`x{5`:                     "error",
		`{5}`:                     "error",
		`x{0}`:                    "error",
		`x{99999999999}`:          "error",
		`{0*x}`:                   "error",
		`{9*\q}`:                  "error",
		`a{*}b`:                   "error",
		`{#}`:                     "error",
	} {
		got, err := parseLiteral(source)
		if err != nil {
			got = []byte("error")
		}
		if string(got) != want {
			t.Errorf("%s: got %q (%v), want %q", source, got, err, want)
		}
	}
}

func TestBadPatternsAreRefused(t *testing.T) {
	for _, source := range []string{`{}`, `{*}{*}`, `{1..2}{*}`, `{~(}`, `{1..x}`, `{..}`, `{?}`, `{~a`} {
		if _, err := parseText(source); err == nil {
			t.Errorf("%s is accepted", source)
		}
	}
}

func TestReceivedBytesAreComparedWithPatterns(t *testing.T) {
	tests := []struct {
		text, received string
		want           verdict
		rest           string // after a match
	}{
		{`INSERTED 1\r\n`, "INSERTED 1\r\n", match, ""},
		{`INSERTED 1\r\n`, "INSERTED 1\r\nUSING", match, "USING"},
		{`INSERTED 1\r\n`, "INSERTED 12\r\n", mismatch, ""},
		{`INSERTED 1\r\n`, "INSERTED", more, ""},
		{`INSERTED 1\r\n`, "", more, ""},
		{`INSERTED 1\r\n`, "INSERTION", mismatch, ""},
		{`a: {*}\n`, "a: b c\nd", match, "d"},
		{`a: {*}\n`, "a: \n", match, ""},
		{`a: {*}\n`, "a: b\r\n", mismatch, ""},
		{`a: {*}\n`, "a: b", more, ""},
		{`"{*}"\n`, "\"x\"\n", match, ""},
		{`{3..15}\n`, "3\n", match, ""},
		{`{3..15}\n`, "15\n", match, ""},
		{`{3..15}\n`, "2\n", mismatch, ""},
		{`{3..15}\n`, "16\n", mismatch, ""},
		{`{3..15}\n`, "07\n", mismatch, ""},
		{`{3..15}\n`, "+7\n", mismatch, ""},
		{`{3..15}\n`, "\n", mismatch, ""},
		{`{3..15}\n`, "1", more, ""},
		{`{~[0-9a-f]{4}}\n`, "09af\n", match, ""},
		{`{~[0-9a-f]{4}}\n`, "09afa\n", mismatch, ""},
		{`{~a|b}c\n`, "bc\n", match, ""},
		{`OK {#}\r\n---\n- a\n\r\n`, "OK 8\r\n---\n- a\n\r\n", match, ""},
		{`OK {#}\r\n---\n- a\n\r\n`, "OK 9\r\n---\n- a\n\r\n", mismatch, ""},
		{`OK {#}\r\n---\n- {*}\n\r\n`, "OK 10\r\n---\n- abc\n\r\nx", match, "x"},
		{`OK {#}\r\n---\n- {*}\n\r\n`, "OK 010\r\n---\n- abc\n\r\n", mismatch, ""},
	}
	for _, test := range tests {
		text, err := parseText(test.text)
		if err != nil {
			t.Fatalf("%s: %v", test.text, err)
		}
		v, n := text.compare([]byte(test.received))
		if v != test.want || v == match && test.received[n:] != test.rest {
			t.Errorf("%s with %q: got %d after %d bytes, want %d", test.text, test.received, v, n, test.want)
		}
	}
}

func TestComparingInPiecesEndsAsComparingAtOnce(t *testing.T) {
	text, err := parseText(`OK {#}\r\n---\na: {1..20}\nb: {*}\nc: {~x+}\n\r\n`)
	if err != nil {
		t.Fatal(err)
	}
	reply := "OK 19\r\n---\na: 12\nb: \nc: xx\n\r\n"
	reply = strings.Replace(reply, "19", "20", 1)
	for i := range len(reply) {
		if v, _ := text.compare([]byte(reply[:i])); v != more {
			t.Errorf("after %q: got %d, want more", reply[:i], v)
		}
	}
	if v, n := text.compare([]byte(reply)); v != match || n != len(reply) {
		t.Errorf("got %d after %d bytes", v, n)
	}
}

func TestQuotedBytesReadBack(t *testing.T) {
	for _, b := range []string{"", "plain", " x ", "a\r\n\t\\{5}", "\x00\x7f\xff", "  "} {
		got, err := parseLiteral(quote([]byte(b)))
		if err != nil || string(got) != b {
			t.Errorf("%q is quoted as %s, which reads as %q (%v)", b, quote([]byte(b)), got, err)
		}
	}
}
