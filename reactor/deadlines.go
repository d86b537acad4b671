package reactor

import (
	"container/heap"
	"time"

	"trellis/engine"
)

// deadline is when a connection ends unless its client does something: when it has
// been idle for too long, or when it is being ended and takes nothing. A connection
// has at most one.
type deadline struct {
	conn   *conn
	at     engine.Time // when the loop looks at it: when the connection is to end, or earlier
	active engine.Time // when the client last sent or took something
	index  int         // in deadlines, or -1
	ending bool        // the connection is being ended, and counted so
}

// deadlines are those of a loop's connections, a heap by the time at which they
// are to be looked at. That a client does something is only noted; when the loop
// then looks, it puts the deadline off. So a busy connection costs one look in
// each timeout. It belongs to the loop's goroutine.
type deadlines []*deadline

// first is the one to be looked at next, or nil.
func (h deadlines) first() *deadline {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

// set sets d for at.
func (h *deadlines) set(d *deadline, at engine.Time) {
	d.at = at
	if d.index < 0 {
		heap.Push(h, d)
	} else {
		heap.Fix(h, d.index)
	}
}

func (h *deadlines) remove(d *deadline) {
	if d.index >= 0 {
		heap.Remove(h, d.index)
	}
}

// The rest is for package heap.

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].at < h[j].at }

func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *deadlines) Push(d any) {
	d.(*deadline).index = len(*h)
	*h = append(*h, d.(*deadline))
}

func (h *deadlines) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	d.index = -1
	return d
}

// limitIdleness gives the connection a deadline for being idle, if Config.IdleTimeout
// sets one.
func (c *conn) limitIdleness(now engine.Time) {
	timeout := c.loop.server.cfg.IdleTimeout
	if timeout == 0 || c.listener.own() {
		return
	}
	c.deadline = &deadline{conn: c, active: now, index: -1}
	c.loop.deadlines.set(c.deadline, now+engine.Time(timeout))
}

// beginEnding gives the connection a deadline for its client to take what it is owed, and
// counts it as being ended.
func (c *conn) beginEnding(now engine.Time) {
	if c.deadline == nil {
		c.deadline = &deadline{conn: c, index: -1}
	}
	d := c.deadline
	d.active = now
	if !d.ending {
		d.ending = true
		c.loop.counts.ending.Add(1)
	}
	c.loop.deadlines.set(d, c.endsAt(now))
}

// ending tells whether the connection is being ended.
func (c *conn) ending() bool { return c.deadline != nil && c.deadline.ending }

// endsAt is when the connection ends if its client does nothing more.
func (c *conn) endsAt(now engine.Time) engine.Time {
	s := c.loop.server
	d := c.deadline
	switch {
	case c.phase == authenticating:
		return d.active + engine.Time(authTimeout)
	case c.phase == lingering:
		return d.active + engine.Time(s.hooks.linger)
	case d.ending && c.waits() && !c.sendable():
		timeout := engine.Time(s.hooks.drain)
		return min(now+timeout, d.active+serverTimeouts*timeout)
	case d.ending:
		return d.active + engine.Time(s.hooks.drain)
	case c.waits(), c.session.Reserves(now):
		return now + engine.Time(s.cfg.IdleTimeout)
	}
	return d.active + engine.Time(s.cfg.IdleTimeout)
}

// waits tells whether the connection waits for what is not its client's to do.
func (c *conn) waits() bool {
	return c.phase == waiting || c.x != nil && c.x.out.uncommitted()
}

// checkDeadline ends a connection whose deadline has come, or puts it off.
func (c *conn) checkDeadline(now engine.Time) {
	l := c.loop
	defer l.recovered()
	l.engine.Spend(lookCost)
	d := c.deadline
	if at := c.endsAt(now); at > now {
		l.deadlines.set(d, at)
		return
	}
	s := l.server
	switch {
	case c.phase == authenticating:
		c.countRefusal(RefusedSilent)
	case c.phase == lingering: // it need not have known better
	case d.ending:
		c.fail() // it is not told that this was all
		l.counts.cut.Add(1)
		if n, ok := s.cuts.Allow(); ok {
			s.log.Warn("a client that has sent its last takes no replies; its connection is cut", "unreported", n)
		}
	default:
		l.counts.idle.Add(1)
		if n, ok := s.idles.Allow(); ok {
			s.log.Info("an idle connection is closed", "timeout", time.Duration(s.cfg.IdleTimeout), "unreported", n)
		}
	}
	c.end(now)
}
