package reactor

import (
	"sync/atomic"
	"testing"
	"time"

	"trellis/reactor/internal/trunk"
)

// serveInContact is serveResumed with a clock for contact that stands still until it is put ahead.
func serveInContact(t testing.TB) (ts *testServer, leader *fakeLeader, put func(time.Duration)) {
	t.Helper()
	var clock atomic.Int64
	ts, leader = serveForwarded(t, "tcp", hooks{trunks: trunk.ResumesSince, boot: func() time.Duration { return time.Duration(clock.Load()) }}, func(*Config) {})
	return ts, leader, func(by time.Duration) {
		clock.Add(int64(by))
		for range 2 { // each begins a round
			ts.onLoops(func(*loop) {})
		}
	}
}

// sessionIDs are those of which a leader has heard.
func (g *gateway) sessionIDs() (list []uint64) {
	for _, f := range g.clients {
		if id := g.Session(f, 0).ID; id != 0 {
			list = append(list, id)
		}
	}
	return list
}

// untilContact waits until the leader has answered a ping of that time.
func (ts *testServer) untilContact(k *fakeTrunk, at time.Duration) {
	ts.t.Helper()
	ts.until("a ping is answered", func() bool {
		k.poll()
		return ts.loops[0].counts.contact.Load() == int64(at)
	})
}

// Only what the leader answers to pings counts, and what it was when they were sent.
func TestAGatewayThatHasNoContactResetsItsClients(t *testing.T) {
	t.Parallel()
	for _, trunkEnds := range []bool{false, true} {
		ts, leader, put := serveInContact(t)
		k := leader.welcomeAs(second(1, 0))
		_, _ = k.expectResumed()
		c, silent := ts.dial(), ts.dial()
		first := max(k.expectOpen(1).Session, k.expectOpen(2).Session)
		c.send("use a\r\n")
		k.expectInput(1, "use a\r\n")
		put(LeaderPatience - 1)
		ts.untilContact(k, LeaderPatience-1)
		k.silent.Store(true)
		put(LeaderPatience - 1)
		k.send(replies(1, 7, 0, "USING a\r\n"))
		c.expect("USING a\r\n")
		if trunkEnds {
			k.Close()
			ts.until("the trunk has ended", func() bool { n, _ := ts.Forwarding(); return n == 0 })
		}
		put(0)
		if n := ts.sum(); n.Connections != 2 || n.Contact != LeaderPatience-1 {
			t.Fatalf("%d connections are left, %v behind the last contact", n.Connections, n.Contact)
		}
		put(1)
		c.expectReset("who has no contact with a leader")
		ts.until("it is counted", func() bool { return ts.sum().NoContact == 1 })
		if !trunkEnds {
			k.expectEnd()
		}
		k = leader.welcomeAs(second(2, 0))
		if sessions, _ := k.expectResumed(); len(sessions) != 0 {
			t.Errorf("%+v go on", sessions)
		}
		put(0)
		silent.send("use b\r\n")
		for {
			it, err := k.next()
			if err != nil {
				t.Fatal(err)
			}
			if it.Kind == trunk.KindInput {
				break
			}
		}
		var ids []uint64
		ts.onLoops(func(l *loop) { ids = l.gateway.sessionIDs() })
		if len(ids) != 1 || ids[0] <= first {
			t.Errorf("the sessions are %v, behind %d", ids, first)
		}
	}
}

// Who waits for this member to apply what was executed for him waits for a while.
func TestClientsWaitForTheFenceForAWhile(t *testing.T) {
	t.Parallel()
	ts, put := serveStopped(t, "tcp", hooks{trunks: trunk.ResumesSince, boot: func() time.Duration { return 0 }}, nil, func(c *Config) { c.Engine = nil })
	leader := forwardTo(ts)
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	c := ts.dial()
	k.expectOpen(1)
	idle := ts.dial()
	k.expectOpen(2)
	c.send("use a\r\n")
	k.expectInput(1, "use a\r\n")
	k.Close()
	ts.until("the trunk has ended", func() bool { n, _ := ts.Forwarding(); return n == 0 })
	put(time.Minute)
	k = leader.welcomeAs(second(2, 9))
	_, channels := k.expectResumed()
	ts.Applied(8, nil)
	put(LeaderPatience - 1)
	idle.send("use b\r\n")
	k.expectInput(channels[session(2)], "use b\r\n")
	if n := ts.sum(); n.Connections != 2 || n.Attaches != 2 || n.Apart != time.Minute || ts.Fence() != 9 {
		t.Errorf("%d connections are left, %d times attached, %v apart, up to %d", n.Connections, n.Attaches, n.Apart, ts.Fence())
	}
	put(time.Second)
	c.expectReset("who has waited for long")
	ts.until("it is counted", func() bool { return ts.sum().Lags == 1 })
	k.expect(trunk.KindClose, channels[session(1)])
	put(time.Hour)
	k.send(replies(channels[session(2)], 7, 0, "USING b\r\n"))
	idle.expect("USING b\r\n")
}

// A server that has led was in contact when it was held, however late it begins to forward its clients.
func TestAServerThatHasLedWasInContactWhenItWasHeld(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{LeaderPatience - 1, LeaderPatience} {
		k := newCluster(t)
		var clock atomic.Int64
		ts := k.server("tcp", hooks{}, func(c *Config) { c.Loops = 1 })
		ts.hooks.boot = func() time.Duration { return time.Duration(clock.Load()) }
		c := ts.dial()
		c.do("use u\r\n", "USING u\r\n")
		k.resign(ts)
		clock.Add(int64(late))
		ts.Forward(noLeader)
		for range 2 { // each begins a round
			ts.onLoops(func(*loop) {})
		}
		if late < LeaderPatience {
			if n := ts.sum().Connections; n != 1 {
				t.Errorf("%d connections are left", n)
			}
			continue
		}
		c.expectReset("who has no contact with a leader")
	}
}

// A server whose loops give up has had no leader since its last contact, and not since it gave up: nobody else is to come.
func TestWhoGivesUpHasHadNoLeaderSinceTheLastContact(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	boot := func() time.Duration { return time.Duration(clock.Load()) }
	ts, put := serveStopped(t, "tcp", hooks{trunks: trunk.ResumesSince, boot: boot}, nil, func(c *Config) { c.Engine = nil })
	leader := forwardTo(ts)
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	c := ts.dial()
	k.expectOpen(1)
	c.send("x")
	k.expectInput(1, "x")
	k.silent.Store(true)
	clock.Add(int64(LeaderPatience))
	put(LeaderPatience)
	c.expectReset("who has no contact with a leader")
	k.expectEnd()
	if loops, without := ts.Forwarding(); loops != 0 || without != LeaderPatience {
		t.Errorf("it forwards on %d trunks, and does not since %v", loops, without)
	}
}

// Whatever the loop has to do, it looks first whether its clients are still in contact.
func TestARoundBeginsWithALookAtTheContact(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	ts, leader := serveForwarded(t, "tcp", hooks{trunks: trunk.ResumesSince, boot: func() time.Duration { return time.Duration(clock.Load()) }}, func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	ts.dial()
	k.expectOpen(1)
	k.silent.Store(true)
	ts.onLoops(func(*loop) {})
	clock.Add(int64(LeaderPatience))
	ts.onLoops(func(l *loop) {
		if n := len(l.gateway.sessionIDs()); n > 0 {
			t.Errorf("the round has begun with %d sessions", n)
		}
	})
}

// A leader has others have the jobs of a loop that it has not heard for 8 seconds. The loop gives up well before that.
func TestAGatewayGivesUpBeforeItsLeaderDoes(t *testing.T) {
	t.Parallel()
	if LeaderPatience > 6*time.Second {
		t.Errorf("it gives up after %v", LeaderPatience)
	}
}
