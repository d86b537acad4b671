package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
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

// tubeFromElement undoes tubeElement, after the path was unescaped.
func tubeFromElement(element string) (name string, ok bool) {
	name = strings.TrimPrefix(element, "~")
	return name, client.CheckTube(name) == nil
}

// number writes a whole number with commas.
func number(n any) string {
	var s string
	switch n := n.(type) {
	case int:
		s = strconv.Itoa(n)
	case int64:
		s = strconv.FormatInt(n, 10)
	case uint64:
		s = strconv.FormatUint(n, 10)
	case uint32:
		s = strconv.FormatUint(uint64(n), 10)
	default:
		panic(fmt.Sprintf("console: a number of type %T", n))
	}
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if len(s) > 0 && s[0] == '-' {
		return "-" + digits
	}
	return digits
}

// short writes a number in few characters: 950, 12.3k, 4.5M.
func short(v float64) string {
	switch {
	case v != v:
		return "–"
	case v >= 1e9:
		return trim(v/1e9) + "G"
	case v >= 1e6:
		return trim(v/1e6) + "M"
	case v >= 1e4:
		return trim(v/1e3) + "k"
	case v >= 100 || v == float64(int64(v)):
		return number(int64(v + 0.5))
	}
	return trim(v)
}

func trim(v float64) string {
	precision := 1
	if v >= 100 {
		precision = 0
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', precision, 64), ".0")
}

// size writes a number of bytes.
func size(n uint64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatUint(n, 10) + " B"
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v /= unit
		i++
	}
	return trim(v) + " " + []string{"KiB", "MiB", "GiB", "TiB", "PiB"}[i]
}

// duration writes a time in its two greatest units.
func duration(d time.Duration) string {
	if d < 0 {
		return "–"
	}
	s := int64(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d m %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d m", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}

// since is duration for seconds that a server tells.
func since(secs uint64) string { return duration(seconds(secs)) }

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

// shownBody is a body as a page shows it.
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
