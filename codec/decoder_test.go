package codec

import (
	"bufio"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

const followUp = "list-tube-used\r\n"

type edgeCase struct {
	input   string
	answers []string
}

// edgeCases reads the cases in testdata/edge.txt, which says what they are.
func edgeCases(t testing.TB) (cases []edgeCase) {
	t.Helper()
	f, err := os.Open("testdata/edge.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	repeated := regexp.MustCompile(`.\{\d+\}`)
	s := bufio.NewScanner(f)
	for s.Scan() {
		line := s.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		left, right, _ := strings.Cut(line, " => ")
		input, err := strconv.Unquote(left)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		input = repeated.ReplaceAllStringFunc(input, func(s string) string {
			n, _ := strconv.Atoi(s[2 : len(s)-1])
			return strings.Repeat(s[:1], n)
		})
		cases = append(cases, edgeCase{input, strings.Fields(right)})
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// answers says what a server answers to events, in the words of edge.txt.
func answers(events []event) (list []string) {
	for _, e := range events {
		switch {
		case e.Op == OpQuit:
			return append(list, "quit")
		case e.Open || e.Op == OpPutTooBig:
		case e.Op == OpPut && !e.Terminated:
			list = append(list, "EXPECTED_CRLF")
		case e.Op == OpPutTooBigEnd:
			list = append(list, "JOB_TOO_BIG")
		case e.Op == OpBadFormat:
			list = append(list, "BAD_FORMAT")
		case e.Op == OpHTTP:
			return append(list, "UNKNOWN_COMMAND", "quit")
		case e.Op == OpUnknown, e.Op == OpAuth:
			list = append(list, "UNKNOWN_COMMAND")
		default:
			list = append(list, "ok")
		}
	}
	return list
}

func TestDecoderAnswersEdgeCasesLikeBeanstalkd(t *testing.T) {
	t.Parallel()
	cases := edgeCases(t)
	if len(cases) != 386 {
		t.Fatalf("there are %d cases", len(cases))
	}
	for _, c := range cases {
		d := Decoder{MaxJobSize: 65535}
		got := answers(decode(t, &d, nil, c.input+followUp))
		if !slices.Equal(got, c.answers) {
			t.Errorf("%.100q is answered %q, want %q", c.input, got, c.answers)
		}
	}
}

func TestDecoderAgreesWithReferenceOnEdgeCases(t *testing.T) {
	t.Parallel()
	for _, c := range edgeCases(t) {
		check(t, c.input+followUp, 65535, []int{len(c.input) / 3, len(c.input) / 2, len(c.input)})
	}
}

func TestDecoderFillsFields(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", MaxTubeName)
	for _, c := range []struct {
		input string
		want  event
	}{
		{"put 1 2 3 4\r\nbody\r\n", event{Op: OpPut, Pri: 1, Delay: 2, TTR: 3, Size: 4, Body: "body", Terminated: true}},
		{"put 1 2 0 0\r\n\r\n", event{Op: OpPut, Pri: 1, Delay: 2, Terminated: true}},
		{"put 1 2 3 4\r\nbody\n\n", event{Op: OpPut, Pri: 1, Delay: 2, TTR: 3, Size: 4, Body: "body"}},
		{"put 4294967295 4294967295 4294967295 0\r\n\r\n", event{Op: OpPut, Pri: math.MaxUint32, Delay: math.MaxUint32, TTR: math.MaxUint32, Terminated: true}},
		{"peek 1\r\n", event{Op: OpPeek, ID: 1}},
		{"peek-ready\r\n", event{Op: OpPeekReady}},
		{"peek-delayed\r\n", event{Op: OpPeekDelayed}},
		{"peek-buried\r\n", event{Op: OpPeekBuried}},
		{"reserve\r\n", event{Op: OpReserve}},
		{"reserve-with-timeout 2147483647\r\n", event{Op: OpReserveWithTimeout, Timeout: MaxTimeout}},
		{"reserve-with-timeout 2147483648\r\n", event{Op: OpBadFormat, CountAs: OpBadFormat}},
		{"reserve-with-timeout  1.9\r\n", event{Op: OpReserveWithTimeout, Timeout: 1}},
		{"reserve-job 18446744073709551615\r\n", event{Op: OpReserveJob, ID: math.MaxUint64}},
		{"delete 12\r\n", event{Op: OpDelete, ID: 12}},
		{"release 12 34 56\r\n", event{Op: OpRelease, ID: 12, Pri: 34, Delay: 56}},
		{"bury 12 34\r\n", event{Op: OpBury, ID: 12, Pri: 34}},
		{"kick 12\r\n", event{Op: OpKick, Bound: 12}},
		{"kick -1\r\n", event{Op: OpKick, Bound: math.MaxUint32}},
		{"kick 4294967297 or so\r\n", event{Op: OpKick, Bound: 1}},
		{"kick \r\v\f\n\t +3\r\n", event{Op: OpKick, Bound: 3}},
		{"kick-job 12\r\n", event{Op: OpKickJob, ID: 12}},
		{"touch 12\r\n", event{Op: OpTouch, ID: 12}},
		{"stats\r\n", event{Op: OpStats}},
		{"stats-job 12\r\n", event{Op: OpStatsJob, ID: 12}},
		{"stats-tube a\r\n", event{Op: OpStatsTube, Tube: "a"}},
		{"use " + longest + "\r\n", event{Op: OpUse, Tube: longest}},
		{"watch a\r\n", event{Op: OpWatch, Tube: "a", Weight: 1}},
		{"ignore a\r\n", event{Op: OpIgnore, Tube: "a"}},
		{"list-tubes\r\n", event{Op: OpListTubes}},
		{"list-tube-used\r\n", event{Op: OpListTubeUsed}},
		{"list-tubes-watched\r\n", event{Op: OpListTubesWatched}},
		{"pause-tube " + longest + " 4294967295\r\n", event{Op: OpPauseTube, Tube: longest, Delay: math.MaxUint32}},
		{"pause-tubea 1\r\n", event{Op: OpPauseTube, Tube: "a", Delay: 1}},
		{"quit at once\r\n", event{Op: OpQuit}},
		{"\r\n", event{Op: OpUnknown}},
		{"auth ~!x\r\n", event{Op: OpAuth, Token: "~!x"}},
		{"auth \r\n", event{Op: OpUnknown}},
		{"auth a b\r\n", event{Op: OpUnknown}},
		{"auth a\xff\r\n", event{Op: OpUnknown}},
		{"authx\r\n", event{Op: OpUnknown}},
		{"POST /stats HTTP/1.1\r\n", event{Op: OpHTTP}},
		{"kick 1 HTTP/1.0\r\n", event{Op: OpHTTP}},
		{"put 1 2 3 4 HTTP/1.1\r\n", event{Op: OpHTTP}},
		{"x\x00 HTTP/1.1\r\n", event{Op: OpHTTP}},
		{" HTTP/1.1\r\n", event{Op: OpHTTP}},
		{"HTTP/1.1\r\n", event{Op: OpUnknown}},
		{"use HTTP/1.1\r\n", event{Op: OpUse, Tube: "HTTP/1.1"}},
		{"GET / HTTP/1.1 \r\n", event{Op: OpUnknown}},
		{"GET / HTTP/1.2\r\n", event{Op: OpUnknown}},
	} {
		want := c.want
		want.End = len(c.input)
		if want.CountAs == 0 {
			want.CountAs = want.Op
		}
		d := Decoder{MaxJobSize: math.MaxUint32}
		got := decode(t, &d, nil, c.input)
		if !slices.Equal(got, []event{want}) {
			t.Errorf("%q:\n got %+v\nwant %+v", c.input, got, want)
		}
	}
}

func TestDecoderTalliesMalformedLinesThatBeanstalkdCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line    string
		countAs Op
	}{
		{"put 1 2 3 4 5", OpPut},
		{"put 1 2 3 4 ", OpPut},
		{"put 1 2 3 4\t\x00", OpBadFormat},
		{"put 1 2 3", OpBadFormat},
		{"put 1 2 3 4294967296", OpBadFormat},
		{"pause-tube -a 1", OpPauseTube},
		{"pause-tube " + strings.Repeat("n", 201) + " 1", OpPauseTube},
		{"pause-tube -a 1 ", OpBadFormat},
		{"pause-tube -a", OpBadFormat},
		{"pause-tube a 4294967296", OpBadFormat},
		{"release 1 2 3 4", OpBadFormat},
		{"kick x", OpBadFormat},
	} {
		d := Decoder{MaxJobSize: 10}
		var cmd Command
		n, ok := d.Next([]byte(c.line+"\r\n"), &cmd)
		if n != len(c.line)+2 || !ok || cmd.Op != OpBadFormat || cmd.CountAs != c.countAs {
			t.Errorf("%q: %d %v %v, counted as %v; want %v", c.line, n, ok, cmd.Op, cmd.CountAs, c.countAs)
		}
	}
}

func TestJobTooBigWinsOverTrailingGarbage(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"put 1 2 3 5", "put 1 2 3 5 ", "put 1 2 3 5x y"} {
		d := Decoder{MaxJobSize: 4}
		got := decode(t, &d, nil, line+"\r\nabcdeXYquit\r\n")
		var ops []Op
		for _, e := range got {
			ops = append(ops, e.Op)
		}
		if !slices.Equal(ops, []Op{OpPutTooBig, OpPutTooBigEnd, OpQuit}) {
			t.Errorf("%q: %v", line, ops)
		}
	}
}

func TestDecoderCountsOffBodiesOfFourGigabytes(t *testing.T) {
	t.Parallel()
	const size = math.MaxUint32
	piece := make([]byte, 1<<20+3)
	for _, limit := range []uint32{0, size} {
		d := Decoder{MaxJobSize: limit}
		var cmd Command
		line := []byte("put 0 0 1 " + strconv.FormatUint(size, 10) + "\r\n")
		if n, ok := d.Next(line, &cmd); n != len(line) || !ok || cmd.Size != size {
			t.Fatalf("limit %d: %d %v %+v", limit, n, ok, cmd)
		}
		body := uint64(0)
		for left := uint64(size) + 2; left > 0; {
			p := piece[:min(uint64(len(piece)), left)]
			for len(p) > 0 {
				n, ok := d.Next(p, &cmd)
				p = p[n:]
				left -= uint64(n)
				ended := ok && cmd.Op != OpPutChunk
				if ended != (left == 0) {
					t.Fatalf("limit %d: %v with %d bytes to come", limit, cmd.Op, left)
				}
				if ok && cmd.Op == OpPutChunk {
					body += uint64(len(cmd.Body))
				}
			}
		}
		switch {
		case limit == 0 && cmd.Op != OpPutTooBigEnd:
			t.Errorf("limit 0 ends with %v", cmd.Op)
		case limit > 0 && (cmd.Op != OpPutEnd || cmd.Terminated || body != size):
			t.Errorf("limit %d ends with %v, %v, %d bytes", limit, cmd.Op, cmd.Terminated, body)
		}
		if !d.AtStart() {
			t.Errorf("limit %d: not at the start", limit)
		}
	}
}

func TestOverlongLineIsAnsweredOnceAtItsEndAndNotStored(t *testing.T) {
	t.Parallel()
	for length := MaxLine - 3; length < 3*MaxLine+3; length++ {
		line := strings.Repeat("x", length) + "\r\n"
		for _, step := range []int{1, 7, MaxLine, len(line)} {
			var d Decoder
			var cmd Command
			var got []Op
			for at := 0; at < len(line); at += step {
				p := []byte(line[at:min(at+step, len(line))])
				n, ok := d.Next(p, &cmd)
				if n != len(p) {
					t.Fatalf("%d bytes in steps of %d: took %d", len(line), step, n)
				}
				if ok {
					got = append(got, cmd.Op)
					if at+step < len(line) {
						t.Fatalf("%d bytes in steps of %d: answered after %d", len(line), step, at+step)
					}
				}
				if at+len(p) >= MaxLine && !ok && d.line != nil {
					t.Fatalf("%d bytes in steps of %d: stored after %d", len(line), step, at+len(p))
				}
			}
			want := OpBadFormat
			if len(line) <= MaxLine {
				want = OpUnknown
			}
			if !slices.Equal(got, []Op{want}) {
				t.Fatalf("%d bytes in steps of %d: %v, want %v", len(line), step, got, want)
			}
		}
	}
}

// Who sends a request chooses its path, and so how long the line is.
func TestALineOfHTTPIsKnownHoweverLongItIsAndHoweverItIsCut(t *testing.T) {
	t.Parallel()
	step := 7
	if proof {
		step = 1
	}
	for n := MaxLine - 30; n < MaxLine+30; n += step {
		for _, end := range []string{" HTTP/1.1", " HTTP/1.0", " HTTP/1.1x", " HTTP/1.1\r", " HTTP/1. HTTP/1.1"} {
			check(t, "POST /"+strings.Repeat("x", n)+end+"\r\n"+followUp, 0, []int{n, n + 8, n + 15})
		}
	}
	long := "POST /" + strings.Repeat("x", 5*MaxLine)
	for cut := range len(" HTTP/1.1\r\n") {
		check(t, long+" HTTP/1.1\r\n"+followUp, 0, []int{300, len(long) + cut, len(long) + cut + 1})
		check(t, long+" HTTP/1.\r\n"+followUp, 0, []int{300, len(long) + cut, len(long) + cut + 1})
	}
}

func TestADecoderTellsThatALineIsTooLong(t *testing.T) {
	t.Parallel()
	var cmd Command
	d := Decoder{}
	d.Next([]byte(strings.Repeat("x", MaxLine-1)), &cmd)
	if d.Refusing() {
		t.Error("before the line was")
	}
	d.Next([]byte("x"), &cmd)
	if !d.Refusing() {
		t.Error("not when the line was")
	}
	if d.Next([]byte("\r\n"), &cmd); d.Refusing() {
		t.Error("after the line's end")
	}
}

// Neither what ended a body nor what ended an earlier long line says anything
// about a new line, which may begin with LF.
func TestOverlongLineIsIndependentOfWhatCameBefore(t *testing.T) {
	t.Parallel()
	long := "\n" + strings.Repeat("x", MaxLine) + "\r\n"
	for _, before := range []string{"put 0 0 1 3\r\nabc\r\n", "put 0 0 1 9\r\nabcdefghi\r\n", long} {
		input := before + long + followUp
		check(t, input, 5, []int{5, len(before) - 1, len(before), len(before) + 1})
	}
}

func TestKickDoesNotLookForItsNumberInTheNextLine(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"kick \r\n1\r\n", "kick  \t\r\n 1\r\n", "kick \r\r\n1\r\n", "kick -\r\n1\r\n"} {
		check(t, input, 0, nil)
	}
}

func TestReleaseForgetsWhatHasBegun(t *testing.T) {
	t.Parallel()
	for _, begun := range []string{
		"", "pu", "put 0 0 1 3\r\n", "put 0 0 1 3\r\nab", "put 0 0 1 3\r\nabc\r",
		"put 0 0 1 9\r\nab", strings.Repeat("x", 300), strings.Repeat("x", 300) + "\r",
	} {
		d := Decoder{MaxJobSize: 5}
		decode(t, &d, nil, begun)
		if d.AtStart() != (begun == "") {
			t.Errorf("%q: AtStart is %v", begun, d.AtStart())
		}
		d.Release()
		if !d.AtStart() || d != (Decoder{MaxJobSize: 5}) {
			t.Errorf("%q: Release leaves %+v", begun, d)
		}
	}
}

func TestDecoderIsSmall(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(Decoder{}); size > 48 {
		t.Errorf("a Decoder has %d bytes", size)
	}
}

func TestDecodingWholeLinesAllocatesNothing(t *testing.T) {
	var input []byte
	for _, c := range edgeCases(t) {
		if len(c.input) < 1000 && strings.HasSuffix(c.input, "\r\n") {
			input = append(input, c.input...)
		}
	}
	d := Decoder{MaxJobSize: 65535}
	var cmd Command
	allocs := testing.AllocsPerRun(10, func() {
		for p := input; len(p) > 0; {
			n, _ := d.Next(p, &cmd)
			p = p[n:]
		}
		d.Release()
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestEveryOpHasAName(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for op := range OpHTTP + 1 {
		if op == NumCommands {
			continue
		}
		s := op.String()
		if s == "(no op)" || seen[s] {
			t.Errorf("Op %d is called %q", op, s)
		}
		if named := OpNamed(s); named != op {
			t.Errorf("%q is Op %d, not %d", s, named, op)
		}
		seen[s] = true
	}
	for _, row := range table {
		if row.op > NumCommands {
			continue
		}
		if want := strings.TrimSpace(row.prefix); row.op.String() != want {
			t.Errorf("%q is called %q", want, row.op)
		}
	}
	for _, op := range []Op{NumCommands, OpHTTP + 1, math.MaxUint8} {
		if s := op.String(); s != "(no op)" {
			t.Errorf("Op %d is called %q", op, s)
		}
	}
	for _, s := range []string{"", "no-command", "(no op)"} {
		if op := OpNamed(s); op != OpUnknown {
			t.Errorf("%q is Op %d", s, op)
		}
	}
}

// Whatever has come of a line, another decoder that takes it goes on as the first would.
func TestWhatHasBegunIsTakenByAnotherDecoder(t *testing.T) {
	long := "use " + strings.Repeat("x", MaxLine) + "\r\n"
	put := "put 0 0 9 4\r\n"
	for _, in := range []string{
		"reserve\r\n", "use a\r\nwatch b\r\n", "use a\rb\r\nreserve\r\n", put + "abcd\r\nreserve\r\n", put + "abcdx\nreserve\r\n",
		put + "abcd\rxreserve\r\n", put + "abcd\n\nreserve\r\n", long + "reserve\r\n", "put 0 0 9 400\r\n" + strings.Repeat("y", 400) + "\r\nreserve\r\n",
		"put 0 0 9 4 idp:\r\nabcd\r\nreserve\r\n",
	} {
		all := func(p string, d *Decoder) (list []string, body int) {
			var cmd Command
			for b := []byte(p); ; {
				n, ok := d.Next(b, &cmd)
				if b = b[n:]; !ok {
					return list, body
				}
				switch cmd.Op {
				case OpPutBegin:
					body = 0
				case OpPutChunk:
					body += len(cmd.Body)
					continue
				case OpPut:
					cmd.set(OpPutEnd)
				}
				list = append(list, cmd.Op.String()+strconv.FormatBool(cmd.Op == OpPutEnd && cmd.Terminated))
			}
		}
		for cut := range len(in) {
			first := Decoder{MaxJobSize: 300, Extensions: true}
			before, body := all(in[:cut], &first)
			begun, ok := first.Held()
			known := first.state == stateLine || first.state == stateBody || first.state == stateBadBody
			if ok != known {
				t.Errorf("%.20q, cut at %d: what has come is known: %v", in, cut, ok)
			}
			if !ok {
				continue
			}
			second := Decoder{MaxJobSize: 300, Extensions: true}
			again := ""
			if first.InBody() {
				again = put + "abcd"[:body]
				before = before[:len(before)-1]
			}
			after, _ := all(again+string(begun)+in[cut:], &second)
			strip := func(list []string) (s string) {
				for _, x := range list {
					if !strings.HasPrefix(x, OpPutBegin.String()) {
						s += x + " "
					}
				}
				return s
			}
			whole := Decoder{MaxJobSize: 300, Extensions: true}
			want, _ := all(in, &whole)
			if got := strip(before) + strip(after); got != strip(want) {
				t.Errorf("%.20q, cut at %d: %s, want %s", in, cut, got, strip(want))
			}
		}
	}
}
