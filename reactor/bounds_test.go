package reactor

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine"
	"trellis/reactor/throttle"
)

// serveLimited is serve with limits.
func serveLimited(t testing.TB, network string, limit func(*Config)) *testServer {
	t.Helper()
	return serveConfig(t, network, hooks{}, nil, limit)
}

func TestAConnectionTooManyIsRefusedInWords(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts := serveLimited(t, network, func(c *Config) { c.MaxConnections = 3; c.Loops = 2 })
		var served []*client
		for i := range 3 {
			c := ts.dial()
			c.do(fmt.Sprintf("use t%d\r\n", i), fmt.Sprintf("USING t%d\r\n", i))
			served = append(served, c)
		}
		began := time.Now()
		for range 10 {
			if addr, ok := ts.addr.(tlsAddr); ok {
				// Before the handshake there are no words but alerts.
				if _, err := addr.dial(); err == nil || !strings.Contains(err.Error(), "remote error: tls: internal error") {
					t.Errorf("got %v", err)
				}
				continue
			}
			c := ts.dial()
			c.expect("OUT_OF_MEMORY\r\n")
			c.expectEOF()
			c.Close()
		}
		st := ts.Stats()
		if st.RefusedOver != 10 || st.Refused != 0 || st.Accepted != 3 || st.MaxConnections != 3 {
			t.Errorf("%+v", st)
		}
		most := 1 + int(time.Since(began)/throttle.Interval)
		if n := strings.Count(ts.log.String(), "a connection is refused"); n < 1 || n > most {
			t.Errorf("it was logged %d times", n)
		}
		for _, c := range served { // who did not notice
			c.do("watch more\r\n", "WATCHING 2\r\n")
		}
		for range 5 { // each that leaves makes room for one
			served[0].Close()
			ts.until("it has gone", func() bool { return ts.sum().Connections == 2 })
			c := ts.dial()
			c.do("use next\r\n", "USING next\r\n")
			served[0] = c
		}
	})
}

func TestTheLimitOnConnectionsIsExactOverSeveralListeners(t *testing.T) {
	t.Parallel()
	ts := serveLimited(t, "tcp", func(c *Config) { c.MaxConnections = 20; c.Loops = 2 })
	addrs := []func() *client{ts.dial}
	for range 3 {
		addr := ts.listen("tcp")
		addrs = append(addrs, func() *client { return dial(t, addr) })
	}
	const attempts = 100
	answers := make(chan string, attempts)
	for i := range attempts {
		c := addrs[i%len(addrs)]()
		go func() {
			_, _ = c.Write([]byte("use a\r\n"))
			line, _ := c.r.ReadString('\n')
			answers <- line
		}()
	}
	got := map[string]int{}
	for range attempts {
		got[<-answers]++
	}
	if got["USING a\r\n"] != 20 {
		t.Errorf("%d were served; answers: %v", got["USING a\r\n"], got)
	}
}

func TestTheDefaultLimitOnConnectionsLeavesDescriptors(t *testing.T) {
	t.Parallel()
	n := DefaultMaxConnections()
	var ts *testServer
	if ts = serve(t, "unix", 1, hooks{}); ts.Stats().MaxConnections != n || n < 1 {
		t.Errorf("limit %d, default %d", ts.Stats().MaxConnections, n)
	}
}

func TestIdleClientsAreClosed(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts, put := serveStopped(t, network, hooks{}, nil, func(c *Config) { c.IdleTimeout = time.Hour })
		clients := map[string]*client{}
		for name, send := range map[string]string{
			"silent":           "",
			"after a command":  "use a\r\n",
			"half a command":   "use a",
			"half a body":      "put 0 0 60 100\r\nxxx",
			"half a large one": "put 0 0 60 200000\r\nxxx",
		} {
			c := ts.dial()
			c.send(send)
			if strings.HasSuffix(send, "\r\n") {
				c.expect("USING a\r\n")
			}
			clients[name] = c
		}
		ts.until("all are there, and what they have sent", func() bool {
			begun := 0
			ts.onLoops(func(l *loop) {
				for _, c := range l.conns {
					if !c.decoder.AtStart() {
						begun++
					}
				}
			})
			return begun == 3 && ts.sum().Connections == 5
		})
		put(time.Hour - time.Second)
		if n := ts.sum().Connections; n != 5 {
			t.Errorf("%d of 5 are left before the time is over", n)
		}
		put(time.Second)
		for name, c := range clients {
			if b, err := io.ReadAll(c.r); len(b) > 0 || err != nil {
				t.Errorf("%s: got %q, %v", name, b, err)
			}
		}
		ts.until("all are gone", func() bool { s := ts.sum(); return s.Connections == 0 && s.Idle == 5 })
		if m := ts.engine.Snapshot(ts.cfg.Now()); m.Connections != 0 || m.Tubes != 1 {
			t.Errorf("%+v", m)
		}
	})
}

func TestClientsThatWaitOrHoldAJobAreNotIdle(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute // of which the job has twice as much
	ts, put := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.IdleTimeout = timeout })
	waiting, holding := ts.dial(), ts.dial()
	waiting.do("watch w\r\n", "WATCHING 2\r\n")
	waiting.do("ignore default\r\n", "WATCHING 1\r\n")
	waiting.send("reserve\r\n")
	ts.untilSeenWaiting(1)
	holding.put("x")
	holding.do("reserve\r\n", reserved(1, "x"))
	// Others that do nothing are closed in the meantime.
	for n := range uint64(4) {
		silent := ts.dial()
		ts.until("it is there", func() bool { return ts.sum().Opened == 3+n })
		put(timeout)
		silent.expectEOF()
		holding.do("touch 1\r\n", "TOUCHED\r\n")
	}
	p := ts.dial()
	p.do("use w\r\nput 0 0 1 1\r\ny\r\n", "USING w\r\nINSERTED 2\r\n")
	waiting.expect(reserved(2, "y"))
	// The one loses its job to its time to run, the other to itself.
	holding.do("delete 1\r\n", "DELETED\r\n")
	put(time.Second)
	put(timeout)
	holding.expectEOF()
	waiting.expectEOF()
	p.expectEOF()
	ts.until("all are gone", func() bool { return ts.sum().Connections == 0 })
	if s := ts.sum(); s.Idle != 7 {
		t.Errorf("%d were closed for idleness, want 7", s.Idle)
	}
}

func TestAClientThatIsOwedRepliesAndTakesNoneIsIdle(t *testing.T) {
	t.Parallel()
	ts, put := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.IdleTimeout = time.Hour })
	c := ts.dial()
	send, _ := floodReplies(c, 4000)
	c.send(send)
	ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
	put(time.Hour + time.Second)
	ts.until("it was closed", func() bool { s := ts.sum(); return s.Connections == 0 && s.Idle == 1 })
}

// A busy client is looked at once in a timeout, however much it sends.
func TestBusyClientsAreNotClosed(t *testing.T) {
	t.Parallel()
	ts := serveLimited(t, "tcp", func(c *Config) { c.IdleTimeout = time.Hour })
	c := ts.dial()
	for range 50 {
		looked := make(chan struct{})
		ts.loops[0].call(func(l *loop) {
			for _, d := range l.deadlines {
				d.conn.checkDeadline(ts.now())
			}
			close(looked)
		})
		<-looked
		c.do("use a\r\n", "USING a\r\n")
	}
	if s := ts.sum(); s.Idle != 0 {
		t.Errorf("%d were closed", s.Idle)
	}
}

func TestIdlenessUnderASimulatedClock(t *testing.T) {
	t.Parallel()
	const timeout = 800 * time.Second
	var clock atomic.Int64
	clock.Store(int64(12345 * time.Second))
	c, _ := loneConfig(t, nil, func(c *Config) {
		c.IdleTimeout = timeout
		c.Now = func() engine.Time { return engine.Time(clock.Load()) }
	})
	l := c.loop
	now := time.Duration(clock.Load())
	c.limitLife(now)
	looks := 0
	pass := func(d time.Duration) {
		now = time.Duration(clock.Add(int64(d)))
		if f := l.deadlines.first(); f != nil && f.at <= now {
			looks++
		}
		l.newRound()
		l.serve(now)
	}
	for range 100 { // something every tenth of a timeout
		c.noteActivity(now)
		pass(timeout / 10)
		if c.phase == ended || len(l.deadlines) != 1 {
			t.Fatal("a busy client was closed, or lost")
		}
	}
	if looks > 11 {
		t.Errorf("it was looked at %d times in 10 timeouts", looks)
	}
	last := now - timeout/10
	for c.phase != ended {
		if now-last > timeout {
			t.Fatal("an idle client is not closed")
		}
		pass(time.Second)
	}
	if now-last < timeout {
		t.Errorf("closed after %v", time.Duration(now-last))
	}
	if len(l.deadlines) != 0 {
		t.Errorf("%d are still to be looked at", len(l.deadlines))
	}
}

func TestAClientWithTooMuchOutputIsClosed(t *testing.T) {
	t.Parallel()
	const size = 400_000
	for limit, closed := range map[int64]bool{size + 100_000: false, size - 100_000: true} {
		c, _ := loneConfig(t, nil, func(c *Config) { c.MaxOutput = limit })
		if err := unix.SetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096); err != nil {
			t.Fatal(err)
		}
		s := c.loop.server
		c.traffic(s.now(), fmt.Appendf(nil, "put 0 0 60 %d\r\n%s\r\npeek 1\r\n", size, strings.Repeat("x", size)))
		n := &c.loop.streams.Counts
		if over, pending := n.TooMuchOutput.Load() == 1, n.PendingOutput.Load() > 0; (c.phase == ended) != closed || over != closed || pending == closed {
			t.Errorf("limit %d: closed %t, counted %t, output pending %t", limit, c.phase == ended, over, pending)
		}
	}
}

// Back-pressure comes first: with the usual limits a client that reads nothing
// is not closed but no longer read.
func TestBackPressureComesBeforeTheLimitOnOutput(t *testing.T) {
	t.Parallel()
	ts := serveLimited(t, "tcp", func(c *Config) { c.MaxOutput = 4 << 20 })
	c := ts.dial()
	const n = 4000
	send, reply := floodReplies(c, n)
	c.send(send)
	ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
	c.expectMany(n, reply)
	if s := ts.sum(); s.OverOutput != 0 {
		t.Error("it was closed")
	}
}
