package codec

import (
	"bytes"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An event is what a Command says, independent of how the input was cut: a put
// is always OpPut here.
type event struct {
	Op, CountAs                           Op
	Pri, Delay, TTR, Size, Bound, Timeout uint32
	Weight                                uint32
	ID                                    uint64
	Tube, Token, Tags, Body               string
	Terminated                            bool
	Open                                  bool // the input ends within the body
	End                                   int  // offset in the input behind it
}

// reference decodes a whole stream in the plainest way: one pattern for each row
// of the table of commands, tried in the order of the table. Of extensions it knows the
// tags of a put and the weight of a watch.
func reference(input string, maxJobSize uint32, extensions bool) (events []event) {
	for at := 0; at < len(input); {
		n := strings.Index(input[at:], "\r\n")
		if n < 0 {
			break
		}
		e := referenceLine(input[at:at+n], maxJobSize)
		if extensions && e.Op == OpBadFormat {
			referenceWeight(input[at:at+n], &e)
			if taken := referenceTags(input[at:at+n], &e); taken > len(input)-at {
				return events
			} else if taken > 0 {
				at += taken
				e.End = at
				events = append(events, e)
				continue
			}
		}
		at += n + 2
		if e.Op == OpPut || e.Op == OpPutTooBig {
			rest := input[at:]
			whole := int64(len(rest)) >= int64(e.Size)+2
			switch {
			case e.Op == OpPutTooBig:
				e.End = at
				events = append(events, e)
				if !whole {
					return events
				}
				at += int(e.Size) + 2
				e = event{Op: OpPutTooBigEnd, CountAs: OpPutTooBigEnd}
			case whole:
				e.Body = rest[:e.Size]
				e.Terminated = rest[e.Size:e.Size+2] == "\r\n"
				at += int(e.Size) + 2
			default:
				e.Body = rest[:min(len(rest), int(e.Size))]
				e.Open = true
				return append(events, e)
			}
		}
		e.End = at
		events = append(events, e)
	}
	return events
}

const name = `([-A-Za-z0-9+/;.$_()]+)`

var table = []struct {
	op      Op
	prefix  string
	pattern string // of what follows the prefix
}{
	{OpPut, "put ", `^ *(\d+) +(\d+) +(\d+) +(\d+)((?s:.*))$`},
	{OpPeek, "peek ", `^ *(\d+)$`},
	{OpPeekReady, "peek-ready", `^$`},
	{OpPeekDelayed, "peek-delayed", `^$`},
	{OpPeekBuried, "peek-buried", `^$`},
	{OpReserveWithTimeout, "reserve-with-timeout ", `^ *(\d+)`},
	{OpReserveJob, "reserve-job ", `^ *(\d+)$`},
	{OpReserve, "reserve", `^$`},
	{OpDelete, "delete ", `^ *(\d+)$`},
	{OpRelease, "release ", `^ *(\d+) +(\d+) +(\d+)$`},
	{OpBury, "bury ", `^ *(\d+) +(\d+)$`},
	{OpKick, "kick ", `^[ \t\n\v\f\r]*([-+]?\d+)`},
	{OpKickJob, "kick-job ", `^ *(\d+)$`},
	{OpTouch, "touch ", `^ *(\d+)$`},
	{OpStatsJob, "stats-job ", `^ *(\d+)$`},
	{OpStatsTube, "stats-tube ", `^` + name + `$`},
	{OpStats, "stats", `^$`},
	{OpUse, "use ", `^` + name + `$`},
	{OpWatch, "watch ", `^` + name + `$`},
	{OpIgnore, "ignore ", `^` + name + `$`},
	{OpListTubesWatched, "list-tubes-watched", `^$`},
	{OpListTubeUsed, "list-tube-used", `^$`},
	{OpListTubes, "list-tubes", `^$`},
	{OpQuit, "quit", ``},
	{OpPauseTube, "pause-tube", `^ *` + name + ` +(\d+)$`},
	{OpAuth, "auth ", `^([!-~]+)$`},
}

const tagKey = `([A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,63})`

var (
	weighted  = regexp.MustCompile(`^watch ` + name + ` +0*([1-9]\d{0,3})$`)
	number    = regexp.MustCompile(`\d+`)
	taggedPut = regexp.MustCompile(`^put  *\d+ +\d+ +\d+ +(\d+) +[A-Za-z]+:`)
	goodPut   = regexp.MustCompile(`^put +(\d+) +(\d+) +(\d+) +(\d+)((?: +\S+)+)$`)
	goodTag   = regexp.MustCompile(`^(?:(idp|con):` + tagKey + `(?::(\d+))?|(fair|grp):` + tagKey + `|(aft):` + tagKey + `(:settled)?|(exp):(\d+))$`)
)

// referenceWeight makes e a watch if the line is one with a good weight.
func referenceWeight(line string, e *event) {
	if args := weighted.FindStringSubmatch(line); args != nil && len(line)+2 <= MaxLine && len(args[1]) <= MaxTubeName && args[1][0] != '-' {
		w, _ := strconv.Atoi(args[2])
		*e = event{Op: OpWatch, CountAs: OpWatch, Tube: args[1], Weight: uint32(w)}
	}
}

// referenceTags says what a line is with extensions that is malformed without: e becomes a put
// if the line has good tags; otherwise taken is how many bytes the line takes with its body, 0 if
// it does not take it along.
func referenceTags(line string, e *event) (taken int) {
	args := taggedPut.FindStringSubmatch(line)
	if args == nil {
		return 0
	}
	for _, number := range number.FindAllString(args[0], 4) {
		if v, _ := new(big.Int).SetString(number, 10); v.BitLen() > 32 {
			return 0
		}
	}
	size, _ := strconv.Atoi(args[1])
	if good := goodPut.FindStringSubmatch(line); good != nil && len(line)+2 <= MaxLine {
		if tags, ok := referenceTagList(strings.Fields(good[5])); ok {
			var numbers [4]uint32
			for i := range numbers {
				v, _ := strconv.ParseUint(good[1+i], 10, 64)
				numbers[i] = uint32(v)
			}
			*e = event{Op: OpPut, CountAs: OpPut, Pri: numbers[0], Delay: numbers[1], TTR: numbers[2], Size: numbers[3], Tags: tags}
			return 0
		}
	}
	*e = event{Op: OpBadFormat, CountAs: OpPut}
	return len(line) + 2 + size + 2
}

// referenceTagList says what tags are, each by its kind, and whether they are good.
func referenceTagList(words []string) (tags string, ok bool) {
	kinds := map[string]string{}
	for _, w := range words {
		m := goodTag.FindStringSubmatch(w)
		if m == nil {
			return "", false
		}
		kind, key, n := m[1]+m[4]+m[6]+m[9], m[2]+m[5]+m[7], m[3]+m[10]
		if n == "" && kind == "con" {
			n = "1"
		}
		v, _ := new(big.Int).SetString("0"+n, 10)
		if _, twice := kinds[kind]; twice || v.BitLen() > 32 || kind == "con" && v.Sign() == 0 {
			return "", false
		}
		kinds[kind] = fmt.Sprintf("%s:%s%s:%v", kind, key, m[8], v)
	}
	if g := kinds["grp"]; g != "" && strings.TrimPrefix(g, "grp") == strings.Replace(strings.TrimPrefix(kinds["aft"], "aft"), ":settled", "", 1) {
		return "", false
	}
	return strings.Join(slices.Sorted(maps.Values(kinds)), " "), true
}

var requestLine = regexp.MustCompile(`(?s)^.* HTTP/1\.[01]$`)

var patterns = func() (list []*regexp.Regexp) {
	for _, row := range table {
		list = append(list, regexp.MustCompile(row.pattern))
	}
	return list
}()

func referenceLine(line string, maxJobSize uint32) event {
	e := referenceCommand(line, maxJobSize)
	switch e.Op {
	case OpUse, OpWatch, OpIgnore, OpStatsTube, OpAuth: // of something that is called HTTP/1.1
		return e
	}
	if requestLine.MatchString(line) {
		return event{Op: OpHTTP, CountAs: OpHTTP}
	}
	return e
}

func referenceCommand(line string, maxJobSize uint32) event {
	bad := event{Op: OpBadFormat, CountAs: OpBadFormat}
	if len(line)+2 > 224 || strings.Contains(line, "\x00") {
		return bad
	}
	for i, row := range table {
		rest, ok := strings.CutPrefix(line, row.prefix)
		if !ok {
			continue
		}
		args := patterns[i].FindStringSubmatch(rest)
		if args == nil && row.op == OpAuth {
			break
		}
		if args == nil {
			return bad
		}
		args = args[1:]
		e := event{Op: row.op, CountAs: row.op}
		good := true
		n64 := func(i int) uint64 {
			v, _ := new(big.Int).SetString(args[i], 10)
			good = good && v.BitLen() <= 64
			return v.Uint64()
		}
		n32 := func(i int) uint32 {
			v := n64(i)
			good = good && v < 1<<32
			return uint32(v)
		}
		switch row.op {
		case OpPut:
			e.Pri, e.Delay, e.TTR, e.Size = n32(0), n32(1), n32(2), n32(3)
			switch {
			case !good:
				return bad
			case e.Size > maxJobSize:
				e.Op = OpPutTooBig
			case args[4] != "":
				return event{Op: OpBadFormat, CountAs: OpPut}
			}
		case OpReserveWithTimeout:
			e.Timeout = n32(0)
			good = good && e.Timeout < 1<<31
		case OpRelease:
			e.ID, e.Pri, e.Delay = n64(0), n32(1), n32(2)
		case OpBury:
			e.ID, e.Pri = n64(0), n32(1)
		case OpKick:
			v := n64(0)
			if args[0][0] == '-' {
				v = -v
			}
			e.Bound = uint32(v)
		case OpStatsTube, OpUse, OpWatch, OpIgnore:
			e.Tube = args[0]
			good = len(e.Tube) <= 200 && e.Tube[0] != '-'
			if row.op == OpWatch {
				e.Weight = 1
			}
		case OpAuth:
			e.Token = args[0]
		case OpPauseTube:
			e.Tube, e.Delay = args[0], n32(1)
			if good && (len(e.Tube) > 200 || e.Tube[0] == '-') {
				return event{Op: OpBadFormat, CountAs: OpPauseTube}
			}
		default:
			if len(args) > 0 {
				e.ID = n64(0)
			}
		}
		if !good {
			return bad
		}
		return e
	}
	return event{Op: OpUnknown, CountAs: OpUnknown}
}

// decode runs the pieces of a stream through d, checks what holds for every
// single call, and returns the events. boundary is called between two pieces.
func decode(t *testing.T, d *Decoder, boundary func(at int), pieces ...string) (events []event) {
	t.Helper()
	at := 0
	var cmd Command
	for i, piece := range pieces {
		if i > 0 {
			boundary(at)
		}
		// A slice of its own, so that reading too far is noticed.
		p := append(make([]byte, 0, len(piece)), piece...)
		all := p[:len(p):len(p)]
		for {
			n, ok := d.Next(p, &cmd)
			if n < 0 || n > len(p) || !ok && n != len(p) {
				t.Fatalf("Next(%q) took %d bytes and said %v", p, n, ok)
			}
			at += n
			taken := p[:n]
			p = p[n:]
			if !ok {
				break
			}
			events = add(t, events, &cmd, taken, p, at)
		}
		// Nobody may look at an input after it was given back.
		for i := range all {
			all[i] = '!'
		}
	}
	return events
}

// tagsText says what tags are, as referenceTagList does.
func tagsText(t *Tags) string {
	var list []string
	for _, k := range []struct {
		kind string
		key  []byte
		n    uint32
	}{
		{"aft", t.After, 0},
		{"con", t.Limited, t.Limit},
		{"fair", t.Fair, 0},
		{"grp", t.Group, 0},
		{"idp", t.Unique, t.Seconds},
	} {
		if settled := ""; k.key != nil {
			if k.kind == "aft" && t.Settled {
				settled = ":settled"
			}
			list = append(list, fmt.Sprintf("%s:%s%s:%d", k.kind, k.key, settled, k.n))
		}
	}
	if t.HasExpiry {
		list = append(list, fmt.Sprintf("exp::%d", t.Expires))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// add appends what cmd says to events. It was decoded from taken, the end of
// which is at offset at, and is followed by rest.
func add(t *testing.T, events []event, cmd *Command, taken, rest []byte, at int) []event {
	t.Helper()
	e := event{Op: cmd.Op, CountAs: cmd.CountAs, End: at}
	wantCountAs := cmd.Op
	var last *event
	if len(events) > 0 {
		last = &events[len(events)-1]
	}
	switch cmd.Op {
	case OpPut, OpPutBegin, OpPutTooBig:
		wantCountAs = OpPut
		e.Pri, e.Delay, e.TTR, e.Size = cmd.Pri, cmd.Delay, cmd.TTR, cmd.Size
		if cmd.Tags != nil && cmd.Op != OpPutTooBig {
			e.Tags = tagsText(cmd.Tags)
		}
	case OpPeek, OpReserveJob, OpDelete, OpKickJob, OpTouch, OpStatsJob:
		e.ID = cmd.ID
	case OpReserveWithTimeout:
		e.Timeout = cmd.Timeout
	case OpRelease:
		e.ID, e.Pri, e.Delay = cmd.ID, cmd.Pri, cmd.Delay
	case OpBury:
		e.ID, e.Pri = cmd.ID, cmd.Pri
	case OpKick:
		e.Bound = cmd.Bound
	case OpStatsTube, OpUse, OpIgnore:
		e.Tube = string(cmd.Tube)
	case OpWatch:
		e.Tube, e.Weight = string(cmd.Tube), cmd.Weight
	case OpPauseTube:
		e.Tube, e.Delay = string(cmd.Tube), cmd.Delay
	case OpAuth:
		e.Token = string(cmd.Token)
	case OpBadFormat:
		wantCountAs = cmd.CountAs // compared with the reference's
	}
	if cmd.CountAs != wantCountAs {
		t.Fatalf("%v has CountAs %v", cmd.Op, cmd.CountAs)
	}
	switch cmd.Op {
	case OpPut:
		e.Body, e.Terminated = string(cmd.Body), cmd.Terminated
		if !bytes.Equal(cmd.Body, taken[len(taken)-2-len(cmd.Body):len(taken)-2]) {
			t.Fatalf("the body is %q, and the input %q", cmd.Body, taken)
		}
		if len(cmd.Body) > 0 && &cmd.Body[0] != &taken[len(taken)-2-len(cmd.Body)] {
			t.Fatal("the body was copied")
		}
	case OpPutBegin:
		if uint64(len(rest)) >= uint64(cmd.Size)+2 {
			t.Fatal("a put came in pieces although its body was in hand")
		}
		e.Op, e.Open, e.End = OpPut, true, 0
	case OpPutChunk:
		if len(cmd.Body) == 0 || len(cmd.Body) != len(taken) || &cmd.Body[0] != &taken[0] {
			t.Fatalf("the chunk %q was made of %q", cmd.Body, taken)
		}
		if last == nil || !last.Open {
			t.Fatal("a chunk came without a beginning")
		}
		last.Body += string(cmd.Body)
		return events
	case OpPutEnd:
		if last == nil || !last.Open || uint64(len(last.Body)) != uint64(last.Size) {
			t.Fatal("the end of a body came too early")
		}
		last.Open, last.Terminated, last.End = false, cmd.Terminated, at
		return events
	}
	return append(events, e)
}

var extensionLine = func() *regexp.Regexp {
	var words []string
	for word := range extensions {
		words = append(words, regexp.QuoteMeta(word))
	}
	return regexp.MustCompile(strings.Join(words, "|"))
}()

// check compares the decoder with the reference, without and with extensions, however the
// input is cut.
func check(t *testing.T, input string, maxJobSize uint32, cuts []int) {
	t.Helper()
	everywhere := len(input) <= 4*MaxLine
	checkWith(t, input, maxJobSize, false, everywhere, cuts)
	if !extensionLine.MatchString(input) { // which the reference does not know
		checkWith(t, input, maxJobSize, true, everywhere, cuts)
	}
}

// checkWith cuts the input in two at every place if everywhere is set, and else only at cuts.
func checkWith(t *testing.T, input string, maxJobSize uint32, extensions, everywhere bool, cuts []int) {
	t.Helper()
	want := reference(input, maxJobSize, extensions)
	atStart := map[int]bool{0: true}
	for _, e := range want {
		if e.Op != OpPutTooBig && !e.Open {
			atStart[e.End] = true
		}
	}
	try := func(pieces ...string) {
		t.Helper()
		fresh := Decoder{MaxJobSize: maxJobSize, Extensions: extensions}
		d := fresh
		checkStart := func(at int) {
			if d.AtStart() != atStart[at] {
				t.Fatalf("%q cut into %q: AtStart is %v after %d bytes", input, pieces, d.AtStart(), at)
			}
			if d.held == 0 && d.line != nil {
				t.Fatalf("%q cut into %q: a buffer is kept after %d bytes", input, pieces, at)
			}
		}
		got := decode(t, &d, checkStart, pieces...)
		if !slices.Equal(got, want) {
			t.Fatalf("%q with extensions %v, cut into %q:\n got %+v\nwant %+v", input, extensions, pieces, got, want)
		}
		checkStart(len(input))
		d.Release()
		if d != fresh || !d.AtStart() {
			t.Fatalf("%q cut into %q: Release leaves %+v", input, pieces, d)
		}
	}
	try(input)
	if everywhere {
		bytewise := make([]string, len(input))
		for i := range bytewise {
			bytewise[i] = input[i : i+1]
		}
		try(bytewise...)
		for i := range len(input) {
			try(input[:i], input[i:])
		}
	}
	slices.Sort(cuts)
	var pieces []string
	from := 0
	for _, cut := range cuts {
		if from <= cut && cut <= len(input) {
			pieces = append(pieces, input[from:cut])
			from = cut
		}
	}
	try(append(pieces, input[from:])...)
}
