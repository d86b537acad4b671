package reactor

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/clock"
)

// deadline is when a connection ends unless its client does something: when it has
// been idle for too long, when too long nothing of a body has come, or when it is being ended
// and takes nothing. A connection has at most one.
type deadline struct {
	conn   *conn
	at     time.Duration        // when the loop looks at it: when the connection is to end, or earlier
	active time.Duration        // when the client last sent or took something
	old    time.Duration        // when the connection is to be retired, or once it is, to end in any case; 0 for never
	place  *accept.Place[*conn] // of the client, while it has to authenticate
	index  int32                // in deadlines, or -1
	ending bool                 // the connection is being ended, and counted so
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
func (h *deadlines) set(d *deadline, at time.Duration) {
	d.at = at
	if d.index < 0 {
		heap.Push(h, d)
	} else {
		heap.Fix(h, int(d.index))
	}
}

func (h *deadlines) remove(d *deadline) {
	if d.index >= 0 {
		heap.Remove(h, int(d.index))
	}
}

// The rest is for package heap.

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].at < h[j].at }

func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j)
}

func (h *deadlines) Push(d any) {
	d.(*deadline).index = int32(len(*h))
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

// limitLife gives the connection a deadline for being idle, and for its age, if Config.IdleTimeout
// or Config.MaxConnectionAge sets one.
func (c *conn) limitLife(now time.Duration) {
	cfg := &c.loop.server.cfg
	if cfg.IdleTimeout == 0 && cfg.MaxConnectionAge == 0 || c.listener == accept.Own {
		return
	}
	c.deadline = &deadline{conn: c, active: now, index: -1}
	if age := cfg.MaxConnectionAge; age > 0 {
		// Those that came together, as after a restart, do not all go at once.
		c.deadline.old = now + age - rand.N(age/10+1)
	}
	c.loop.deadlines.set(c.deadline, c.endsAt(now))
}

// limitBody gives the connection a deadline for the rest of a body that has begun, if Config.BodyTimeout sets
// one and nothing else ends the connection before.
func (c *conn) limitBody(now time.Duration) {
	timeout := c.loop.server.cfg.BodyTimeout
	at := now + timeout
	switch {
	case timeout == 0 || !c.decoder.InBody() || c.listener == accept.Own || c.phase >= draining:
	case c.deadline == nil:
		c.deadline = &deadline{conn: c, active: now, index: -1}
		c.loop.deadlines.set(c.deadline, at)
	case c.deadline.at > at:
		c.loop.deadlines.set(c.deadline, at)
	}
}

// awaitsBody reports whether the body whose beginning has come is the client's to go on with.
func (c *conn) awaitsBody() bool {
	return c.phase == serving && c.Awaited() && !c.loop.held
}

// beginEnding gives the connection a deadline for its client to take what it is owed, and
// counts it as being ended.
func (c *conn) beginEnding(now time.Duration) {
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

// ending reports whether the connection is being ended.
func (c *conn) ending() bool { return c.deadline != nil && c.deadline.ending }

// endsAt is when the connection ends if its client does nothing more.
func (c *conn) endsAt(now time.Duration) time.Duration {
	s := c.loop.server
	d := c.deadline
	switch {
	case c.phase == authenticating && c.loop.held:
		return now + authTimeout // its token may have come
	case c.phase == authenticating:
		return d.active + authTimeout
	case c.phase == lingering:
		return d.active + s.hooks.linger
	case c.awaitsLeader():
		until, _ := c.forwarding().AwaitsLeader()
		return until
	case d.ending && c.waits() && !c.loop.streams.Sendable(&c.Stream):
		timeout := s.hooks.drain
		return min(now+timeout, d.active+serverTimeouts*timeout)
	case d.ending:
		return d.active + s.hooks.drain
	}
	at := clock.Never
	if d.old > 0 {
		at = d.old
	}
	if c.retired() {
		at = min(at, now+s.hooks.retire)
	}
	if timeout := s.cfg.IdleTimeout; timeout > 0 {
		since := d.active
		if c.waits() || c.loop.held || c.session.Reserves(c.loop.time(now)) {
			since = now
		}
		at = min(at, since+timeout)
	}
	if timeout := s.cfg.BodyTimeout; timeout > 0 && c.decoder.InBody() {
		since := now
		if c.awaitsBody() {
			since = d.active
		}
		at = min(at, since+timeout)
	}
	return at
}

// waits reports whether the connection waits for what is not its client's to do.
func (c *conn) waits() bool {
	return c.phase == waiting || c.phase == forwarded || c.throttled() || c.DependsOn() != 0
}

// forgetDeadline takes the deadline off the connection, if that is the leader's to set.
func (c *conn) forgetDeadline() {
	if d := c.deadline; d != nil && !d.ending && !c.retired() {
		c.loop.deadlines.remove(d)
		c.deadline = nil
	}
}
