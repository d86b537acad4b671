package reactor

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"trellis/engine"
	"trellis/reactor/internal/clock"
	"trellis/reactor/internal/queue"
)

// Detach takes the engine away from a held server. It may be discarded when Detach returns: nothing
// of it is left here. All that was executed has been committed. The server stays held until Attach.
//
// Clients that have no job, and wait for nothing but a job or for room in the journal, do not notice; nor do those to
// whom nothing is left but to take what they are owed. All others are reset: their jobs are ready in the next engine,
// and nobody knows what has become of a command of which a part was executed. So are those for whom more would have to
// be copied than 64 MiB in all, and those who are owed what is not committed.
//
// It reports false, and has done nothing, if the server is not held or is being shut down.
func (s *Server) Detach() bool {
	if !s.held.Load() || !s.beginHold() {
		return false
	}
	defer s.holds.Done()
	s.engine.Store(nil) // no trunk begins any more
	var copied atomic.Int64
	s.onLoops(func(l *loop) { l.detach(&copied) })
	return true
}

// Attach gives a server without an engine one that has the same jobs, whose clock is now, and which
// records changes in j, and ends the Hold. Clients go on with it where they were.
func (s *Server) Attach(e *engine.Engine, now func() engine.Time, j Committer) {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	s.stopDialling()
	// Time may pass between two looks at clocks. The engine's may be late by that, but not early: see replica.Leadership.
	offset := engine.MaxTime
	for range 3 {
		at := engine.Time(s.now())
		offset = min(offset, now()-at)
	}
	s.onLoops(func(l *loop) { l.attach(e, offset, j) })
	s.engine.Store(e)
	s.release()
}

// detach takes the engine away from the loop.
func (l *loop) detach(copied *atomic.Int64) {
	defer l.recovered()
	now := l.server.now()
	l.endTrunks(now, errDetached)
	l.sessions = l.givenIDs()
	k := &l.commits
	if l.journal != nil {
		k.committed = l.journal.Committed()
	}
	for c := l.nextCommitted(); c != nil; c = l.nextCommitted() {
		c.committed(now)
	}
	for _, c := range slices.Clone(l.conns) {
		if !c.detachSession(copied) {
			c.cutOff(now)
		} else if c.phase >= draining {
			c.conclude(now)
		}
	}
	for _, c := range l.postponed {
		if c.phase == ended && c.closure == postponed { // it is in conns no more
			c.gaveBack()
			c.session = engine.Session{}
		}
	}
	l.throttled = throttled{at: engine.MaxTime}
	k.waiting, k.pongs, k.batches = queue.Queue[*conn]{}, queue.Queue[pong]{}, nil
	k.pending.Store(false)
	l.setEngine(new(engine.Loop), nil)
	l.out.Discard()
	l.alarm.Ask(clock.Engine, clock.Never)
}

// detachSession takes out of the connection what belongs to the engine. It reports false if the
// client cannot go on.
func (c *conn) detachSession(copied *atomic.Int64) bool {
	l := c.loop
	if x := c.backlogOrNil(); x != nil {
		if c.DependsOn() != 0 || c.phase == authenticating && x.throttled != nil || !c.copies(c.Pinned(), copied) {
			return false
		}
		c.Unpin()
		x.throttled, x.woken = nil, false
	}
	switch {
	case c.phase == authenticating:
	case c.channel() != nil:
		return false // its gateway's client goes on
	case c.closure != open:
		c.closure = closed // what it has not given back is ready in the next engine
	case l.replays[c] != nil:
		return false // where its commands end that are still to be answered is not kept
	case c.phase < draining:
		d, ok := c.session.Detach()
		if !ok {
			d, ok = c.session.DetachRecorded()
		}
		if !ok || !c.copies(d.Size(), copied) {
			return false
		}
		if l.detached == nil {
			l.detached = make(map[*conn]*engine.Detached)
		}
		l.detached[c] = d
	}
	c.session = engine.Session{}
	return true
}

// copies counts n bytes that are to be copied for the client. It reports false if that is too much.
func (c *conn) copies(n int, copied *atomic.Int64) bool {
	return n == 0 || copied.Add(int64(n)) <= c.loop.server.hooks.copied
}

// attach gives an engine to the loop, which is held. Sessions that have waited longest come first.
func (l *loop) attach(e *engine.Engine, offset engine.Time, j Committer) {
	defer l.recovered()
	now := l.server.now()
	forwards := l.endForwarding(now)
	by := offset - l.offset
	l.offset = offset
	l.setEngine(e.NewLoop(l), j)
	if l.number != 0 {
		l.engine.Number(l.number, l.sessions)
	}
	list := make([]*conn, 0, len(l.detached))
	for _, c := range l.conns {
		if l.detached[c] != nil {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *conn) int {
		return cmp.Compare(l.detached[a].WaitsSince(), l.detached[b].WaitsSince())
	})
	for _, c := range list {
		c.attach(l.detached[c], by, now)
	}
	l.detached = nil
	for i := range forwards {
		forwards[i].goOn(now)
	}
	if l.number != 0 {
		e.CloseAbsent(l.number) // their clients have left meanwhile
	}
}

// attach resumes the session of the connection's client where it was.
func (c *conn) attach(d *engine.Detached, by engine.Time, now time.Duration) {
	l := c.loop
	if c.phase >= draining {
		return // it has left meanwhile
	}
	l.executing = c
	attached := l.engine.Attach(&c.session, d, by, l.time(now))
	l.executing = nil
	if !attached {
		c.cutOff(now)
		return
	}
	if c.phase == waiting {
		c.needBacklog().woken = true
	}
	if c.Pending() != nil {
		c.conclude(now)
	}
}
