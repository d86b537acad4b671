package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// Fields are statistics in the server's order, also those that only a later version has.
type Fields []Field

// A Field is a line of statistics.
type Field struct {
	Key   string
	Value Value
}

// Kind is what a value is.
type Kind uint8

// The kinds of values.
const (
	Text Kind = iota
	Number
	Bool
	List
)

// A Value is a value of statistics.
type Value struct {
	Kind Kind
	Text string  // as the server wrote it, without quotes
	List []Value // of a list: numbers or texts
}

// Get returns the value of a key.
func (f Fields) Get(key string) (v Value, ok bool) {
	for i := range f {
		if f[i].Key == key {
			return f[i].Value, true
		}
	}
	return v, false
}

// Uint is the value of a key as a whole number, 0 if there is none or it is no such number.
func (f Fields) Uint(key string) uint64 {
	v, _ := f.Get(key)
	n, err := strconv.ParseUint(v.Text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Text is the value of a key as text, "" if there is none.
func (f Fields) Text(key string) string {
	v, _ := f.Get(key)
	return v.Text
}

// MarshalJSON writes an object with the keys in the server's order.
func (f Fields) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i := range f {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := json.Marshal(f[i].Key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f[i].Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, key...), ':'), value...)
	}
	return append(b, '}'), nil
}

// MarshalJSON writes a number, a truth value, a string, or a list.
func (v Value) MarshalJSON() ([]byte, error) {
	switch {
	case v.Kind == List && v.List == nil:
		return []byte("[]"), nil
	case v.Kind == List:
		return json.Marshal(v.List)
	case v.Kind == Number, v.Kind == Bool:
		return []byte(v.Text), nil
	}
	return json.Marshal(v.Text)
}

// texts are the keys whose values are text even if they look like numbers: beanstalkd does
// not always quote them. An id is text in the answer to stats only.
var texts = map[string]bool{
	"name": true, "tube": true, "dead-tube": true, "dead": true, "via": true, "state": true, "version": true,
	"hostname": true, "os": true, "platform": true, "addr": true, "watching": true, "patterns": true,
}

var errYAML = errors.New("not statistics of beanstalkd's kind")

// lines are those of the part of YAML that beanstalkd and Trellis write: after a line "---" a list of scalars, a
// dictionary, or a list of dictionaries. Values are scalars or, in brackets, lists of scalars. A scalar may be quoted;
// there are no escapes in quotes.
func lines(body []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(body)) {
			line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
			if line != "" && line != "---" && !yield(line) {
				return
			}
		}
	}
}

func parseFields(body []byte) (f Fields, err error) {
	for line := range lines(body) {
		field, err := parseField(line)
		if err != nil {
			return nil, err
		}
		f = append(f, field)
	}
	return f, nil
}

// parseStats reads the answer to stats, in which the id is text.
func parseStats(body []byte) (Fields, error) {
	f, err := parseFields(body)
	for i := range f {
		if f[i].Key == "id" {
			f[i].Value.Kind = Text
		}
	}
	return f, err
}

func parseNames(body []byte) (names []string, err error) {
	for line := range lines(body) {
		item, ok := strings.CutPrefix(line, "- ")
		if !ok {
			return nil, fmt.Errorf("%w: %q", errYAML, line)
		}
		names = append(names, unquote(item))
	}
	return names, nil
}

func parseEntries(body []byte) (entries []Fields, err error) {
	for line := range lines(body) {
		if len(line) < 2 || line[:2] != "- " && (line[:2] != "  " || entries == nil) {
			return nil, fmt.Errorf("%w: %q", errYAML, line)
		}
		if line[0] == '-' {
			entries = append(entries, nil)
		}
		field, err := parseField(line[2:])
		if err != nil {
			return nil, err
		}
		last := &entries[len(entries)-1]
		*last = append(*last, field)
	}
	return entries, nil
}

// parseCapabilities reads a dictionary in which one value, the last, is a list on lines of
// its own.
func parseCapabilities(body []byte) (caps Capabilities, err error) {
	list := ""
	for line := range lines(body) {
		if item, ok := strings.CutPrefix(line, "- "); ok && list != "" {
			if list == "extensions" {
				caps.Extensions = append(caps.Extensions, unquote(item))
			}
			continue
		}
		if key, ok := strings.CutSuffix(line, ":"); ok {
			list = key
			continue
		}
		list = ""
		field, err := parseField(line)
		if err != nil {
			return caps, err
		}
		switch f := (Fields{field}); field.Key {
		case "version":
			caps.Version = field.Value.Text
		case "max-job-size":
			caps.MaxJobSize = f.Uint("max-job-size")
		}
	}
	return caps, nil
}

func parseField(line string) (f Field, err error) {
	key, value, ok := strings.Cut(line, ": ")
	if !ok {
		if key, ok = strings.CutSuffix(line, ":"); !ok {
			return f, fmt.Errorf("%w: %q", errYAML, line)
		}
	}
	if key == "" || strings.ContainsAny(key, " \"[]") {
		return f, fmt.Errorf("%w: %q", errYAML, line)
	}
	return Field{key, parseValue(value, texts[key])}, nil
}

func parseValue(s string, text bool) Value {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		v := Value{Kind: List, Text: s}
		if inside := s[1 : len(s)-1]; inside != "" {
			for item := range strings.SplitSeq(inside, ", ") {
				v.List = append(v.List, parseScalar(item, text))
			}
		}
		return v
	}
	return parseScalar(s, text)
}

func parseScalar(s string, text bool) Value {
	v := Value{Text: unquote(s)}
	switch {
	case text || len(v.Text) != len(s):
	case s == "true", s == "false":
		v.Kind = Bool
	case isNumber(s):
		v.Kind = Number
	}
	return v
}

func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// isNumber reports whether JSON would take s as a number, of a length that is no attack. JSON also takes space
// around it.
func isNumber(s string) bool {
	return len(s) <= 40 && s != "" && (s[0] == '-' || isDigit(s[0])) && isDigit(s[len(s)-1]) && json.Valid([]byte(s))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
