package replica

import (
	"testing"
	"time"
)

func TestClusterTimeGoesOnFromTheLastEntry(t *testing.T) {
	machine := &testClock{}
	k := newClusterClock(machine)
	k.hear(1)
	machine.wall.Store(int64(100 * time.Hour))
	at := func(mono, stamp int64, term uint64) {
		machine.mono.Store(mono)
		k.observe(stamp, term)
	}
	expect := func(last, want int64) {
		t.Helper()
		if now := k.lead(last) + machine.Mono(); now != want {
			t.Errorf("%d, want %d", now, want)
		}
	}
	at(1000, 5000, 1)
	at(1500, 5600, 1)
	expect(5600, 5600)
	at(2000, 5700, 1) // the leader's clock is slower than this one
	expect(5700, 5700)
	at(2500, 5800, 2) // of the next leader, who has missed some time
	at(2600, 5750, 1) // an earlier leader's batch, which that one has proposed again
	expect(5800, 5900)
	machine.mono.Store(10_000)
	expect(5800, 13_300)
	expect(15_000, 15_000) // which is not applied yet
}

func TestANodeThatHasHeardALeaderNeverLooksAtTheWallClock(t *testing.T) {
	for _, heard := range []bool{true, false} {
		machine := &testClock{}
		machine.wall.Store(startOfTime + int64(time.Hour))
		k := newClusterClock(machine)
		if heard {
			k.hear(2)
		}
		k.observe(startOfTime, 2)
		want := int64(startOfTime)
		if !heard {
			want += int64(time.Hour)
		}
		if now := k.lead(startOfTime) + machine.Mono(); now != want {
			t.Errorf("heard %v: %d, want %d", heard, now, want)
		}
		machine.wall.Store(startOfTime - int64(time.Hour))
		if now := k.lead(startOfTime) + machine.Mono(); now != startOfTime {
			t.Errorf("heard %v: a wall clock that is late turns time back to %d", heard, now)
		}
	}
}

// All were down for an hour. The first leader is heard, and ends before its first entry
// comes: the hour has passed nevertheless.
func TestALeaderThatEndsBeforeItsFirstEntryTellsNoTime(t *testing.T) {
	machine := &testClock{}
	machine.wall.Store(startOfTime + int64(time.Hour))
	k := newClusterClock(machine)
	k.observe(startOfTime, 2)
	k.hear(3)
	if now := k.lead(startOfTime) + machine.Mono(); now != startOfTime+int64(time.Hour) {
		t.Errorf("%d, want an hour behind %d", now, startOfTime)
	}
	k.observe(startOfTime+int64(time.Minute), 4) // of a leader that was heard later
	if now := k.lead(startOfTime) + machine.Mono(); now != startOfTime+int64(time.Minute) {
		t.Errorf("%d, want a minute behind %d", now, startOfTime)
	}
	k.hear(5)
	if now := k.lead(startOfTime) + machine.Mono(); now != startOfTime+int64(time.Minute) {
		t.Errorf("%d after a leader of whom nothing has come, want what it was", now)
	}
}

// A standby whose clock is an hour ahead must not fire delays an hour early, and one
// that is an hour late must not fire them late.
func TestWrongClocksDoNotMoveClusterTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	for i, p := range c.nodes {
		p.clock.wall.Store(startOfTime + int64(i-1)*int64(time.Hour))
		p.clock.mono.Store(int64(i) * int64(77*time.Minute))
	}
	c.startAll()
	for range 6 {
		l := c.leader()
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		c.restart(l, func() { c.leader(c.others(l)...) })
		c.settled()
	}
	c.checkTime()
	c.served.Lock()
	defer c.served.Unlock()
	first, last := c.servedAll[0], c.servedAll[len(c.servedAll)-1]
	c.net.mu.Lock()
	passed := int64(c.net.tick) * int64(Tick)
	c.net.mu.Unlock()
	if last.now-first.now > passed {
		t.Errorf("cluster time went from %v to %v in %v", first.now, last.now, time.Duration(passed))
	}
}

func TestANodeThatHasLedDoesNotLookAtTheWallClockAgain(t *testing.T) {
	h := newHand(t, 1)
	clock := h.opts.Clock.(*testClock)
	l := h.lead()
	before := l.Now()
	clock.wall.Add(int64(3600e9))
	h.consensus.stepDown("a test")
	for range 2*backoffTicks + 3*electionTicks {
		h.consensus.onTick()
		h.run()
	}
	again, err := h.leading()
	if err != nil || again == l {
		t.Fatal("no second leadership", err)
	}
	if d := again.Now() - before; d != 0 {
		t.Errorf("cluster time jumped by %d ns", d)
	}
}

// The others know the time from the entry that begins the leadership. A leader whose wall clock
// is set while that is committed, or which waits long for it, must not be ahead of them.
func TestALeaderBeginsWithTheTimeThatItHasTold(t *testing.T) {
	h := newHand(t, 3)
	clock := h.opts.Clock.(*testClock)
	clock.wall.Store(startOfTime)
	h.elected()
	clock.wall.Add(int64(time.Hour))
	clock.mono.Add(int64(time.Second))
	h.answer()
	l, err := h.leading()
	if err != nil {
		t.Fatal(err)
	}
	if now := l.Now(); now != startOfTime {
		t.Errorf("its leadership begins %v later than its entry says", time.Duration(now-startOfTime))
	}
}
