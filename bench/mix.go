package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A Mix is a set of commands with weights, as the scenario "mix" sends them. The zero value is empty.
type Mix struct {
	Steps []MixStep
}

// A MixStep is one command of a Mix.
type MixStep struct {
	// Weight is how often the command comes, in proportion to the weights of the others; from 1 to 65,535.
	Weight uint32
	// Command is one of MixCommands.
	Command string
	// Priority and Delay, in seconds, are those of put and release. Bound is that of kick.
	Priority, Delay, Bound Range
}

// A Range is a range of numbers to choose from at random, both ends included.
type Range struct{ Least, Most uint32 }

// MixCommands are the commands that a mix may have. Its reserve does not wait. Those that need a reserved job take
// one that the connection holds, and reserve one instead when it holds none.
var MixCommands = []string{
	"put", "reserve", "delete", "release", "bury", "touch", "stats-job", "kick", "peek-ready", "peek-delayed",
	"peek-buried",
	"stats", "stats-tube", "list-tubes",
}

// ParseMix reads a mix. Each line has a weight, a command of MixCommands and its options; # begins a comment:
//
//	40 put pri=0-1000 delay=0
//	40 reserve
//	35 delete
//	 4 release pri=5 delay=0-1
//	 1 bury
//	 1 kick bound=10
//
// A number may be a range. The bound of a kick is 1 unless it is given, other numbers 0.
func ParseMix(in io.Reader) (Mix, error) {
	var m Mix
	sc := bufio.NewScanner(in)
	for line := 1; sc.Scan(); line++ {
		text, _, _ := strings.Cut(sc.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		step, err := parseMixStep(fields)
		if err != nil {
			return Mix{}, fmt.Errorf("mix, line %d: %w", line, err)
		}
		m.Steps = append(m.Steps, step)
	}
	if err := sc.Err(); err != nil {
		return Mix{}, fmt.Errorf("reading the mix: %w", err)
	}
	if len(m.Steps) == 0 {
		return Mix{}, errors.New("the mix has no commands")
	}
	return m, nil
}

func parseMixStep(fields []string) (MixStep, error) {
	weight, err := strconv.ParseUint(fields[0], 10, 16)
	if err != nil || weight == 0 || len(fields) < 2 {
		return MixStep{}, fmt.Errorf("want a weight from 1 to 65535 and a command, not %q", strings.Join(fields, " "))
	}
	step := MixStep{Weight: uint32(weight), Command: fields[1], Bound: Range{1, 1}}
	if !slices.Contains(MixCommands, step.Command) {
		return MixStep{}, fmt.Errorf("command %q is not known", step.Command)
	}
	options := map[string]*Range{"pri": &step.Priority, "delay": &step.Delay, "bound": &step.Bound}
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		least, most, isRange := strings.Cut(value, "-")
		if !isRange {
			most = least
		}
		l, err1 := strconv.ParseUint(least, 10, 32)
		m, err2 := strconv.ParseUint(most, 10, 32)
		option := options[key]
		if option == nil || err1 != nil || err2 != nil || m < l {
			return MixStep{}, fmt.Errorf("option %q is not understood", f)
		}
		*option = Range{uint32(l), uint32(m)}
	}
	return step, nil
}
