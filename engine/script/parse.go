package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Case is one script: steps to be played on a fresh server.
type Case struct {
	// Name is the file's name without its ending, a slash and the case's title.
	Name string

	marks marks
	steps []step
}

// Applies tells whether the case is meant for a target with these tags.
func (c Case) Applies(tags ...string) bool { return c.marks.hold(tags) }

// Input returns all bytes that the case's clients send, in the order of the steps:
// something for fuzzing to begin with.
func (c Case) Input() []byte {
	var all []byte
	for i := range c.steps {
		all = append(all, c.steps[i].send...)
	}
	return all
}

type verb uint8

const (
	verbServer    verb = iota // start options
	verbClient                // clients with some rights
	verbOpen                  // open a connection
	verbOpenAs                // open a connection of a client with some rights
	verbSend                  // send bytes
	verbReceive               // match received bytes
	verbNothing               // nothing is received
	verbQuery                 // a command whose reply is a dictionary
	verbHalfClose             // close the sending direction
	verbClose                 // close
	verbClosed                // the server has closed
	verbWait                  // let time pass
	verbDrain                 // switch drain mode
	verbRestart               // the server is killed and started again
)

// A step is a line of a script that does something.
type step struct {
	where  string // file:line
	source string // the line as written, for messages
	marks  marks

	verb     verb
	conn     string        // the connection's name
	send     []byte        // verbSend, verbQuery
	text     string        // verbReceive, unparsed: the continuation lines depend on the tags
	data     []dataLine    // verbReceive: continuation lines
	fields   []field       // verbQuery
	options  []string      // verbServer
	client   Client        // verbClient
	as       string        // verbOpenAs: the name of a client
	duration time.Duration // verbWait
	on       bool          // verbDrain
}

// A dataLine is a continuation line.
type dataLine struct {
	marks marks
	text  string
}

// A field is a key of a dictionary and the value it must have.
type field struct {
	key   string
	value text
}

// A mark is a tag that a target must have, or must not have.
type mark struct {
	tag string
	not bool
}

type marks []mark

func (ms marks) hold(tags []string) bool {
	for _, m := range ms {
		if slices.Contains(tags, m.tag) == m.not {
			return false
		}
	}
	return true
}

// Parse parses a file of scripts. The name is used in messages and, up to its last
// dot, in the names of the cases.
func Parse(name, source string) ([]Case, error) {
	base := name
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		base = name[:dot]
	}
	var (
		cases    []Case
		preamble []step
		steps    = &preamble
		titles   = map[string]bool{}
	)
	for i, line := range strings.Split(source, "\n") {
		where := fmt.Sprintf("%s:%d", name, i+1)
		if line == "" || line[0] == '#' {
			continue
		}
		marks, rest, err := parseMarks(line)
		if err == nil && strings.TrimSpace(rest) != rest {
			err = errors.New(`white space around the step; write \s`)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		word, arg, _ := strings.Cut(rest, " ")
		switch word {
		case "==":
			if arg == "" || titles[arg] {
				return nil, fmt.Errorf("%s: case without a title of its own", where)
			}
			titles[arg] = true
			cases = append(cases, Case{Name: base + "/" + arg, marks: marks})
			steps = &cases[len(cases)-1].steps
			*steps = slices.Clone(preamble)
		case "|":
			last := len(*steps) - 1
			if last < 0 || (*steps)[last].verb != verbReceive {
				return nil, fmt.Errorf("%s: continuation of nothing", where)
			}
			(*steps)[last].data = append((*steps)[last].data, dataLine{marks, arg})
		default:
			s := step{where: where, source: rest, marks: marks}
			if err := s.parse(word, arg); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", where, rest, err)
			}
			*steps = append(*steps, s)
		}
	}
	for _, c := range cases {
		for _, s := range c.steps {
			if s.verb != verbReceive {
				continue
			}
			if _, err := s.expected(nil, true); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", s.where, s.source, err)
			}
		}
	}
	return cases, nil
}

func parseMarks(line string) (ms marks, rest string, err error) {
	rest = line
	for strings.HasPrefix(rest, "[") {
		inner, after, ok := strings.Cut(rest[1:], "]")
		if !ok || inner == "" {
			return nil, "", errors.New("bad mark")
		}
		tag, not := strings.CutPrefix(inner, "!")
		ms = append(ms, mark{tag, not})
		rest = after
	}
	if len(ms) > 0 {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, " "); !ok {
			return nil, "", errors.New("no step after the mark")
		}
	}
	return ms, rest, nil
}

func (s *step) parse(word, arg string) (err error) {
	switch word {
	case "server":
		s.verb = verbServer
		s.options = strings.Fields(arg)
		return nil
	case "client":
		words := strings.Fields(arg)
		if len(words) != 3 {
			return errors.New("not a name, rights and tubes")
		}
		s.verb = verbClient
		s.client = Client{Name: words[0], Rights: strings.Split(words[1], ","), Tubes: strings.Split(words[2], ",")}
		return nil
	case "wait":
		s.verb = verbWait
		s.duration, err = time.ParseDuration(arg)
		return err
	case "drain":
		s.verb = verbDrain
		s.on = arg == "on"
		if arg != "on" && arg != "off" {
			return errors.New("neither on nor off")
		}
		return nil
	case "restart":
		s.verb = verbRestart
		if arg != "" {
			return errors.New("nothing stands behind restart")
		}
		return nil
	case "conn":
		var action, text string
		s.conn, action, _ = strings.Cut(arg, " ")
		action, text, _ = strings.Cut(action, " ")
		if strings.HasPrefix(text, " ") {
			return errors.New(`text begins with a space; write \s`)
		}
		return s.parseAction(action, text)
	}
	return errors.New("unknown step")
}

func (s *step) parseAction(action, text string) (err error) {
	bare := text == ""
	switch action {
	case ">":
		s.verb = verbSend
		s.send, err = parseLiteral(text)
		s.send = append(s.send, "\r\n"...)
		return err
	case ">>":
		s.verb = verbSend
		s.send, err = parseLiteral(text)
		return err
	case "<":
		s.verb = verbReceive
		if text == "nothing" {
			s.verb = verbNothing
		}
		s.text = text
		return nil
	case "?":
		s.verb = verbQuery
		return s.parseQuery(text)
	case "as":
		s.verb = verbOpenAs
		s.as = text
		if bare {
			return errors.New("no name of a client")
		}
		return nil
	case "open":
		s.verb = verbOpen
	case "half-close":
		s.verb = verbHalfClose
	case "close":
		s.verb = verbClose
	case "closed":
		s.verb = verbClosed
	default:
		return errors.New("unknown step")
	}
	if !bare {
		return errors.New("unexpected text")
	}
	return nil
}

func (s *step) parseQuery(query string) (err error) {
	command, fields, ok := strings.Cut(query, ": ")
	if !ok {
		return errors.New("no values after the command")
	}
	if s.send, err = parseLiteral(command); err != nil {
		return err
	}
	s.send = append(s.send, "\r\n"...)
	for f := range strings.SplitSeq(fields, ", ") {
		key, value, ok := strings.Cut(f, " ")
		if !ok {
			return fmt.Errorf("no value for %q", key)
		}
		// The line end makes the value end with a literal, as compare needs it.
		t, err := parseText(value + `\n`)
		if err != nil {
			return err
		}
		s.fields = append(s.fields, field{key, t})
	}
	return nil
}

// expected returns the text that is to be received by a target with these tags,
// or, for a check of the syntax, the text with all continuation lines.
func (s *step) expected(tags []string, all bool) (text, error) {
	source := strings.Builder{}
	source.WriteString(s.text)
	source.WriteString(`\r\n`)
	for _, line := range s.data {
		if all || line.marks.hold(tags) {
			source.WriteString(line.text)
			source.WriteString(`\n`)
		}
	}
	if len(s.data) > 0 {
		source.WriteString(`\r\n`)
	}
	return parseText(source.String())
}
