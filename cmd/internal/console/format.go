package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"trellis/cmd/internal/client"
)

const (
	// shownBytes is how much of a body a page shows, and hexBytes how much as hex.
	shownBytes = 64 << 10
	hexBytes   = 16 << 10
	// previewRunes is how many characters of a body a list shows, and nameRunes how many of a name.
	previewRunes = 120
	nameRunes    = 200
	// maxDepth is how deep JSON may be nested that is shown as such.
	maxDepth = 50
)

// tubeElement is a tube's name as an element of a path. "." and ".." mean something else
// there, however they are escaped, and get a mark in front that no name has.
func tubeElement(name string) string {
	if name == "." || name == ".." {
		return "~" + name
	}
	return url.PathEscape(name)
}

// groupPath is where the page of a group is.
func groupPath(name string) string { return "/groups/" + tubeElement(name) }

// tubeFromElement undoes tubeElement, after the path was unescaped.
func tubeFromElement(element string) (name string, ok bool) {
	name = strings.TrimPrefix(element, "~")
	return name, client.CheckTube(name) == nil
}

// visible makes text of what may be anything: what is not UTF-8 is replaced, and
// characters that control something are shown. Line breaks and tabs stay.
func visible(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r) // control pictures
		case r == 0x7f:
			b.WriteRune(0x2421)
		case r == utf8.RuneError, unicode.IsPrint(r), r == 0xa0:
			b.WriteRune(r)
		default: // also those that turn the direction of what stands around them
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// line is visible on one line, cut after so many characters.
func line(s string, most int) string {
	cut := s
	if len(s) > 4*most {
		cut = strings.ToValidUTF8(s[:4*most], "")
	}
	runes := []rune(strings.Join(strings.Fields(visible(cut)), " "))
	if len(runes) > most || len(cut) < len(s) {
		return string(runes[:min(len(runes), most)]) + "…"
	}
	return string(runes)
}

// preview is the beginning of a body.
func preview(body []byte) string {
	return line(string(body[:min(len(body), 4*previewRunes+1)]), previewRunes)
}

type shownBody struct {
	View  string // text, json or hex
	Text  string
	Cut   int  // bytes that are shown if these are not all; otherwise 0
	JSON  bool // the body is JSON
	Bytes uint64
}

// show makes of a body what is shown of it.
func show(body []byte, view string) shownBody {
	s := shownBody{View: view, Bytes: uint64(len(body))}
	s.JSON = len(body) <= shownBytes && depth(body) <= maxDepth && json.Valid(body)
	switch {
	case view == "hex":
		part := body[:min(len(body), hexBytes)]
		s.Text = strings.TrimSuffix(hex.Dump(part), "\n")
		s.cut(part, body)
		return s
	case s.JSON && view != "text":
		var b bytes.Buffer
		if json.Indent(&b, body, "", "  ") == nil && b.Len() <= 2*shownBytes {
			s.View, s.Text = "json", visible(b.String())
			return s
		}
	}
	part := body[:min(len(body), shownBytes)]
	s.View, s.Text = "text", visible(string(part))
	s.cut(part, body)
	return s
}

// depth is how deep brackets are nested in what may be JSON: indenting what is nested
// deeply would take much more memory than the body.
func depth(body []byte) (deepest int) {
	now, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case b == '"':
			quoted = !quoted
		case b == '\\' && quoted:
			i++
		case quoted:
		case b == '[', b == '{':
			now++
			deepest = max(deepest, now)
		case b == ']', b == '}':
			now--
		}
	}
	return deepest
}

func (s *shownBody) cut(part, body []byte) {
	if len(part) < len(body) {
		s.Cut = len(part)
	}
}
