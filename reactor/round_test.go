package reactor

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trellis/engine"
	"trellis/reactor/internal/stream"
)

const (
	// roundSteps is the engine's budget for a round.
	roundSteps = 4096
	// maxOverdraft is how far a round may exceed it: by what has begun when the budget
	// is spent.
	maxOverdraft = 1024
)

// meter sees how many steps a loop does in its rounds, that is, between two polls.
type meter struct {
	rounds, most atomic.Int64
}

func (m *meter) hooks() hooks {
	return hooks{round: func(l *loop) {
		m.rounds.Add(1)
		m.most.Store(max(m.most.Load(), int64(roundSteps-l.engine.Left())))
	}}
}

// check runs f, which makes the server do at least so many steps, and makes sure that
// no round has had many more than its share of them.
func (m *meter) check(ts *testServer, steps int, f func()) {
	t := ts.t
	t.Helper()
	// What reads have taken before is another matter: what has arrived is read.
	ts.onLoops(func(*loop) {})
	m.rounds.Store(0)
	m.most.Store(0)
	f()
	if most := m.most.Load(); most > roundSteps+maxOverdraft {
		t.Errorf("%d steps lay between two polls", most)
	}
	if least := int64(steps / (roundSteps + maxOverdraft)); m.rounds.Load() < least {
		t.Errorf("there were %d rounds, want at least %d", m.rounds.Load(), least)
	}
}

// dialMany returns n clients.
func (ts *testServer) dialMany(n int) []*client {
	ts.t.Helper()
	cs := make([]*client, n)
	for i := range cs {
		cs[i] = ts.dial()
	}
	return cs
}

// sendAll sends the same for each client.
func sendAll(cs []*client, s string) {
	for _, c := range cs {
		c.send(s)
	}
}

func TestTheEndOfAPauseIsSpreadOverRounds(t *testing.T) {
	t.Parallel()
	const n = 600
	var m meter
	ts, put := serveStopped(t, "unix", m.hooks(), nil, func(*Config) {})
	p := ts.dial()
	workers := ts.dialMany(n)
	sendAll(workers, "reserve\r\n")
	ts.untilWaiting(n)
	p.do("pause-tube default 1\r\n", "PAUSED\r\n")
	for range n {
		p.put("x")
	}
	m.check(ts, n*connCost, func() {
		put(time.Second)
		for _, w := range workers {
			if line := w.line(); !strings.HasPrefix(line, "RESERVED ") || w.line() != "x" {
				t.Fatalf("got %q", line)
			}
		}
	})
}

// manyTubes makes n further tubes, with names of 200 bytes, and keeps them.
func manyTubes(c *client, n int) {
	c.t.Helper()
	const batch = 500
	name := func(i int) string { return fmt.Sprintf("%0200d", i) }
	for i := 0; i < n; i += batch {
		var b strings.Builder
		for j := i; j < i+batch; j++ {
			fmt.Fprintf(&b, "use %s\r\nput 0 1000 9 1\r\nx\r\n", name(j))
		}
		go io.WriteString(c, b.String())
		for j := i; j < i+batch; j++ {
			c.expect("USING " + name(j) + "\r\n")
			if line := c.line(); !strings.HasPrefix(line, "INSERTED") {
				c.t.Fatalf("got %q", line)
			}
		}
	}
}

func TestListsAreSpreadOverRoundsAndTakeLittleMemory(t *testing.T) {
	t.Parallel()
	const tubes, clients = 5000, 12
	var m meter
	ts := serve(t, "unix", 1, m.hooks())
	manyTubes(ts.dial(), tubes)
	cs := ts.dialMany(clients)
	m.check(ts, tubes*clients, func() {
		sendAll(cs, "list-tubes\r\nlist-tube-used\r\n")
		for _, c := range cs {
			if n := strings.Count(c.data(), "\n- "); n != tubes+1 {
				t.Fatalf("%d tubes are listed", n)
			}
			c.expect("USING default\r\n")
		}
	})
	if _, out := ts.peaks(); out > stream.HighWater {
		t.Errorf("%d bytes of output were kept for a client", out)
	}
}

func TestKicksAreSpreadOverRounds(t *testing.T) {
	t.Parallel()
	const n = 30_000
	for name, kicks := range map[string]int{"one": 1, "two clients": 2, "many in one write": 74} {
		t.Run(name, func(t *testing.T) {
			var m meter
			ts := serve(t, "unix", 1, m.hooks())
			a, b := ts.dial(), ts.dial()
			manyDelayed(a, n)
			m.check(ts, n, func() {
				if kicks == 2 {
					b.send(fmt.Sprintf("kick %d\r\n", n/2))
					a.do(fmt.Sprintf("kick %d\r\n", n/2), fmt.Sprintf("KICKED %d\r\n", n/2))
					b.expect(fmt.Sprintf("KICKED %d\r\n", n/2))
					return
				}
				a.send(strings.Repeat(fmt.Sprintf("kick %d\r\n", n/kicks), kicks))
				a.expect(strings.Repeat(fmt.Sprintf("KICKED %d\r\n", n/kicks), kicks))
			})
		})
	}
}

func TestTimeOutsOfOneMomentAreSpreadOverRounds(t *testing.T) {
	t.Parallel()
	const n = 600
	var m meter
	var ahead atomic.Int64
	ts := serveConfig(t, "unix", m.hooks(), nil, func(c *Config) {
		now := c.Now
		c.Now = func() engine.Time { return now() + engine.Time(ahead.Load()) }
	})
	workers := ts.dialMany(n)
	sendAll(workers, "reserve-with-timeout 1000\r\n")
	ts.untilWaiting(n)
	m.check(ts, n*connCost, func() {
		ahead.Store(int64(2000 * time.Second))
		ts.dial().send("list-tube-used\r\n") // the server's timer knows nothing of the leap
		for _, w := range workers {
			w.expect("TIMED_OUT\r\n")
		}
	})
}

func TestTheCloseOfAClientWithManyReservationsIsSpreadOverRounds(t *testing.T) {
	t.Parallel()
	const n = 20_000
	var m meter
	ts := serve(t, "unix", 1, m.hooks())
	p, c := ts.dial(), ts.dial()
	go io.WriteString(p, strings.Repeat("put 0 0 1000 1\r\nx\r\n", n))
	go io.WriteString(c, strings.Repeat("reserve\r\n", n))
	for i := range n {
		p.expect(fmt.Sprintf("INSERTED %d\r\n", i+1))
		c.expect(reserved(uint64(i+1), "x"))
	}
	m.check(ts, n, func() {
		c.Close()
		ts.until("all jobs are ready again", func() bool { return ts.engine.Snapshot(ts.cfg.Now()).Ready == n })
		p.do("list-tube-used\r\n", "USING default\r\n") // ends the last round but one
	})
}

func TestCommittedRepliesAreHandedBackOverRounds(t *testing.T) {
	t.Parallel()
	const n = 600
	var m meter
	j := new(fakeJournal)
	ts := serveJournaled(t, "unix", 1, m.hooks(), j)
	cs := ts.dialMany(n)
	sendAll(cs, "put 0 0 9 1\r\nx\r\n")
	j.untilRecorded(ts, n)
	m.check(ts, n*connCost, func() {
		j.commit(ts, n)
		for _, c := range cs {
			c.line()
		}
	})
}

func TestManyCommandsOfOneReadAreSpreadOverRounds(t *testing.T) {
	t.Parallel()
	const n = 8 * roundSteps
	var m meter
	ts := serve(t, "unix", 1, m.hooks())
	c := ts.dial()
	m.check(ts, n, func() {
		go io.WriteString(c, strings.Repeat("use a\r\n", n))
		c.expect(strings.Repeat("USING a\r\n", n))
	})
}

// A reserve looks at every tube that the client watches.
func TestDearCommandsOfOneReadAreSpreadOverRounds(t *testing.T) {
	t.Parallel()
	const tubes, n = 4000, 32
	var m meter
	ts := serve(t, "unix", 1, m.hooks())
	c := ts.dial()
	var b strings.Builder
	for i := range tubes {
		fmt.Fprintf(&b, "watch %d\r\n", i)
	}
	go io.WriteString(c, b.String())
	for i := range tubes {
		c.expect(fmt.Sprintf("WATCHING %d\r\n", i+2))
	}
	m.check(ts, n*tubes/8, func() {
		c.do(strings.Repeat("reserve-with-timeout 0\r\n", n), strings.Repeat("TIMED_OUT\r\n", n))
	})
}

func TestALoopWithNothingToDoDoesNothing(t *testing.T) {
	t.Parallel()
	var m meter
	ts := serve(t, "unix", 1, m.hooks())
	a, b := ts.dial(), ts.dial()
	b.do("watch a\r\n", "WATCHING 2\r\n")
	a.send("reserve\r\n")
	ts.untilWaiting(1)
	b.do("use default\r\nput 0 0 1000 1\r\nx\r\n", "USING default\r\nINSERTED 1\r\n")
	a.expect(reserved(1, "x"))
	ts.until("it rests", func() bool {
		before := m.rounds.Load()
		time.Sleep(20 * time.Millisecond)
		return m.rounds.Load() == before
	})
}
