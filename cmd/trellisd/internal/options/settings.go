package options

import (
	"fmt"
	"net/netip"
	"strings"

	"trellis/binlog/replica/member"
	"trellis/cmd/internal/quantity"
)

// A Setting is an option that was given and is not the default.
type Setting struct {
	Name  string `json:"name"`  // of the long flag, without its dashes
	Value string `json:"value"` // as it was understood
	From  string `json:"from"`  // CommandLine, or the name of a variable in the environment
}

// CommandLine is where a setting comes from that the environment does not give.
const CommandLine = "command line"

// givenFlag is a flag that was given.
type givenFlag struct {
	name, from string
	def        string // its default, as show shows it
	show       func() string
}

// Settings are the options that were given and are not the default, in the order of the manual. Their values are those
// of now: what was lowered or filled in after Parse is shown so.
func (opt *Options) Settings() (all []Setting) {
	for _, f := range opt.given {
		if value := f.show(); value != f.def && value != "" {
			all = append(all, Setting{f.name, value, f.from})
		}
	}
	return all
}

// amount shows a number of units.
func amount[T int | int64 | uint32](of *T, unit quantity.Unit) func() string {
	return func() string { return unit.Format(uint64(*of)) }
}

// shown shows a value that has no unit.
func shown[T string | bool | int | member.Node](of *T) func() string {
	return func() string { return fmt.Sprint(*of) }
}

// list shows several values.
func list[T string | netip.Prefix | member.Node](of *[]T) func() string {
	return func() string {
		var words []string
		for _, v := range *of {
			words = append(words, fmt.Sprint(v))
		}
		return strings.Join(words, ",")
	}
}
