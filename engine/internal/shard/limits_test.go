package shard

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// ask sends commands and returns all that comes back.
func (c *simConn) ask(t *testing.T, format string, args ...any) string {
	t.Helper()
	if err := c.Send(fmt.Appendf(nil, format, args...)); err != nil {
		t.Fatal(err)
	}
	b := string(c.out.Buf)
	c.out.Buf = nil
	return b
}

func (c *simConn) expect(t *testing.T, want, format string, args ...any) {
	t.Helper()
	if got := c.ask(t, format, args...); got != want {
		t.Fatalf("%.60q was answered %q, want %q", fmt.Sprintf(format, args...), got, want)
	}
}

func TestAPutBeyondTheMemoryLimitChangesNothingAndSucceedsWhenJobsHaveLeft(t *testing.T) {
	const n = 10
	body := strings.Repeat("x", 1000)
	s := newLimitedSim(65535, 1, Limits{Memory: n * (jobMemory + 1024)})
	c := s.open()
	put := fmt.Sprintf("put 0 0 9 %d\r\n%s\r\n", len(body), body)
	for id := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", id+1), "%s", put)
	}
	before := c.ask(t, "stats-tube default\r\n")
	// That there is no memory comes before all that else is wrong.
	torn := put[:len(put)-2] + ".."
	for cut := range len(put) {
		for _, put := range []string{put, torn} {
			for _, draining := range []bool{false, true} {
				s.engine.Drain(draining)
				c.expect(t, "", "%s", put[:cut])
				c.expect(t, "OUT_OF_MEMORY\r\n", "%s", put[cut:])
			}
		}
	}
	s.engine.Drain(false)
	c.expect(t, before, "stats-tube default\r\n")
	c.expect(t, fmt.Sprintf("RESERVED 1 1000\r\n%s\r\nRELEASED\r\nDELETED\r\n", body), "reserve\r\nrelease 1 0 0\r\ndelete 1\r\n")
	// A refused put uses up no id, and what was refunded is there again.
	c.expect(t, "INSERTED 11\r\nOUT_OF_MEMORY\r\n", "%s%s", put, put)
	for id := 2; id <= n+1; id++ {
		c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
	}
	// Puts that fail for other reasons and clients that go in the middle of one
	// keep nothing.
	for i := range 5 * n {
		c.expect(t, "EXPECTED_CRLF\r\n", "put 0 0 9 %d\r\n%s..", len(body), body)
		s.engine.Drain(true)
		c.expect(t, "DRAINING\r\n", "%s", put)
		s.engine.Drain(false)
		d := s.open()
		d.expect(t, "", "%s", put[:100+i])
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.engine.memory.Used(); got != 0 {
		t.Fatalf("%d bytes are counted for no job", got)
	}
	if got, want := s.engine.Snapshot(s.now).RefusedMemory, uint64(4*len(put)+1); got != want {
		t.Fatalf("%d refusals are counted, want %d", got, want)
	}
}

// Whoever announces a body and sends nothing of it keeps nobody from anything.
func TestABodyTakesMemoryAsItArrives(t *testing.T) {
	const size, large = 50_000, 300_000
	s := newLimitedSim(1<<30, 1, Limits{Memory: 1 << 20})
	used := func(arrived, most int) {
		t.Helper()
		if n := s.engine.memory.Used(); n < int64(arrived) || n > int64(most) {
			t.Fatalf("%d bytes are counted when %d have arrived, want at most %d", n, arrived, most)
		}
	}
	var silent []*simConn
	for range 100 {
		c := s.open()
		c.expect(t, "", "put 0 0 9 %d\r\n", size)
		silent = append(silent, c)
	}
	used(0, 100*200)
	// What is announced may be more than there is room for, if it does not come at once.
	c := s.open()
	c.expect(t, "INSERTED 101\r\n", "put 0 0 9 %d\r\n%s\r\n", large, strings.Repeat("x", large))
	before := int(s.engine.memory.Used())
	piece := strings.Repeat("y", 100)
	for n := 0; n < size; n += len(piece) {
		used(before+n, before+n+bodyStep)
		silent[0].expect(t, "", "%s", piece)
	}
	silent[0].expect(t, "INSERTED 1\r\nFOUND 1 50000\r\n"+strings.Repeat(piece, size/len(piece))+"\r\n", "\r\npeek 1\r\n")
	if got, want := int(s.engine.memory.Used()), before+int(jobFootprint(size, nil)-jobFootprint(0, nil)); got != want {
		t.Fatalf("%d bytes are counted, want %d", got, want)
	}
	for _, d := range silent[1:50] {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Puts that came too late for what was left are refused when that shows, and leave nothing.
	inserted, refused := 0, 0
	for _, d := range silent[50:] {
		d.expect(t, "", "%s", strings.Repeat("z", size-1))
	}
	for i, d := range silent[50:] {
		switch reply := d.ask(t, "z\r\nlist-tube-used\r\n"); reply {
		case fmt.Sprintf("INSERTED %d\r\nUSING default\r\n", i+51):
			inserted++
		case "OUT_OF_MEMORY\r\nUSING default\r\n":
			refused++
		default:
			t.Fatalf("%q", reply)
		}
		used(0, 1<<20)
	}
	if inserted == 0 || refused == 0 {
		t.Errorf("%d are inserted, %d are refused", inserted, refused)
	}
	var sessions []*Session
	for _, d := range append(silent[50:], silent[0], c) {
		sessions = append(sessions, &d.session)
	}
	for _, err := range (&census{engine: s.engine, sessions: sessions}).run() {
		t.Error(err)
	}
	c.ask(t, "flush-tube default\r\n")
	c.ask(t, "delete 101\r\n")
	for id := range 101 {
		c.ask(t, "delete %d\r\n", id)
	}
	if n := s.engine.memory.Used(); n != 0 {
		t.Errorf("%d bytes are counted for no job", n)
	}
}

// What is refused in the middle of its body has been nothing, and no other put becomes it.
func TestAPutThatIsRefusedInTheMiddleOfItsBodyLeavesNothing(t *testing.T) {
	s := newLimitedSim(65535, 2, Limits{Memory: 100_000})
	a, b := s.open(), s.open()
	body := strings.Repeat("x", 60_000)
	a.expect(t, "", "put 0 0 9 60000 idp:k con:c\r\n%s", body[:20_000])
	b.expect(t, "INSERTED 2\r\n", "put 0 0 9 60000\r\n%s\r\n", body)
	a.expect(t, "", "%s", body[20_000:])
	before := s.engine.memory.Used()
	a.expect(t, "OUT_OF_MEMORY\r\nNOT_FOUND\r\n", "\r\npeek 1\r\n")
	if after := s.engine.memory.Used(); after != before || after != jobFootprint(60_000, nil) {
		t.Errorf("%d bytes are counted, then %d", before, after)
	}
	for _, err := range (&census{engine: s.engine, sessions: s.sessions()}).run() {
		t.Error(err)
	}
	b.expect(t, "DELETED\r\nINSERTED 3\r\n", "delete 2\r\nput 0 0 9 1 idp:k\r\nx\r\n")
	if got := s.engine.Snapshot(s.now).RefusedMemory; got != 1 {
		t.Errorf("%d refusals are counted", got)
	}
}

func TestTubesBeyondTheLimitAreRefusedUntilOneHasGone(t *testing.T) {
	s := newLimitedSim(65535, 1, Limits{Tubes: 3})
	c := s.open()
	c.expect(t, "USING a\r\nWATCHING 2\r\n", "use a\r\nwatch b\r\n")
	c.expect(t, "OUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n", "use c\r\nwatch c\r\n")
	c.expect(t, "USING a\r\nWATCHING 3\r\nUSING b\r\nWATCHING 2\r\n", "list-tube-used\r\nwatch a\r\nuse b\r\nignore a\r\n")
	c.expect(t, "USING c\r\n", "use c\r\n")
	if got := s.engine.Snapshot(s.now).RefusedTubes; got != 2 {
		t.Fatalf("%d refusals are counted, want 2", got)
	}
}

func TestAWatchListDoesNotGrowBeyondItsLimit(t *testing.T) {
	s := newLimitedSim(65535, 1, Limits{Watched: 2})
	c := s.open()
	c.expect(t, "WATCHING 2\r\nOUT_OF_MEMORY\r\nWATCHING 2\r\n", "watch a\r\nwatch b\r\nwatch a\r\n")
	c.expect(t, "WATCHING 1\r\nWATCHING 2\r\n", "ignore a\r\nwatch b\r\n")
	if got := s.engine.Snapshot(s.now); got.RefusedWatching != 1 || got.Tubes != 2 {
		t.Fatalf("%d refusals and %d tubes, want 1 and 2", got.RefusedWatching, got.Tubes)
	}
}

// The loops share one limit, however much credit each of them has: it is used up before
// a put is refused, and never exceeded.
func TestLoopsShareTheMemoryLimit(t *testing.T) {
	const n = 10_000
	body := strings.Repeat("x", 1000)
	s := newLimitedSim(65535, 3, Limits{Memory: n * (jobMemory + 1024)})
	put := fmt.Sprintf("put 0 0 9 %d\r\n%s\r\n", len(body), body)
	var clients []*simConn
	for range 3 {
		clients = append(clients, s.open())
	}
	if clients[0].loop == clients[1].loop {
		t.Fatal("the clients are on one loop")
	}
	for range 2 {
		first := s.engine.ids.Last.Load() + 1
		for i := range uint64(n) {
			clients[i%3].expect(t, fmt.Sprintf("INSERTED %d\r\n", first+i), "%s", put)
			if used := s.engine.memory.Used(); used != int64(i+1)*(jobMemory+1024) {
				t.Fatalf("%d bytes are counted for %d jobs", used, i+1)
			}
			if counted := Peek[atomic.Int64](&s.engine.memory, "used").Load(); counted > s.engine.cfg.Limits.Memory {
				t.Fatalf("%d bytes are counted", counted)
			}
		}
		for _, c := range clients {
			c.expect(t, "OUT_OF_MEMORY\r\n", "%s", put)
		}
		// Another loop has the credit of the job that goes.
		clients[0].expect(t, "DELETED\r\n", "delete %d\r\n", first)
		clients[1].expect(t, fmt.Sprintf("INSERTED %d\r\nOUT_OF_MEMORY\r\n", first+n), "%s%s", put, put)
		for i := range uint64(n) {
			clients[i%2].expect(t, "DELETED\r\n", "delete %d\r\n", first+1+i)
		}
		if used := s.engine.memory.Used(); used != 0 {
			t.Fatalf("%d bytes are counted for no job", used)
		}
	}
}
