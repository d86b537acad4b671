package reactor

import (
	"trellis/engine"
	"trellis/engine/account"
	"trellis/reactor/internal/queue"
)

const (
	// rateTurn is how many commands a connection may have executed at a time while others of
	// its account wait.
	rateTurn = 32
	// rateCost is the cost for which a command that takes long counts as one more: that of a
	// usual command with its read and its write.
	rateCost = connCost
	// rateConnection is how many commands a connection counts as: to accept and to end one
	// costs the system as much.
	rateConnection = 10
)

// throttled are the connections of a loop whose accounts have had as many commands executed as
// they may. They are not read, and wait in a line for each account, first come, first served,
// until the loop's alarm goes off. The loop's goroutine owns them.
type throttled struct {
	lines map[*account.Rate]*throttledLine // those that are not empty
	at    engine.Time                      // when to look at the lines; MaxTime while there is none
	turn  *conn                            // whose turn it is
}

// throttledLine is the connections of one account.
type throttledLine struct {
	conns queue.Queue[*conn] // also of some that have ended since
	ended int                // those, at least
	at    engine.Time        // when the first may go on
}

// throttle puts the connection into its account's line.
func (c *conn) throttle(r *account.Rate, now engine.Time) {
	t := &c.loop.throttled
	line := t.lines[r]
	if line == nil {
		line = &throttledLine{at: r.Ready(now)}
		if t.lines == nil {
			t.lines = make(map[*account.Rate]*throttledLine)
		}
		t.lines[r] = line
		t.at = min(t.at, line.at)
	}
	c.needBacklog().throttled = line
	line.conns.Push(c)
	r.Waited()
}

// unthrottle takes a connection that has ended off its line, sooner or later.
func (x *backlog) unthrottle() {
	line := x.throttled
	if line == nil {
		return
	}
	x.throttled = nil
	if line.ended++; line.ended > 16+line.conns.Len()/2 {
		line.conns.DeleteFunc(func(c *conn) bool { return !c.waitsIn(line) })
		line.ended = 0
	}
}

// waitsIn reports whether the connection stands in a line.
func (c *conn) waitsIn(line *throttledLine) bool { return line == c.throttledIn() }

// next takes out a connection whose account has commands left, nil if there is none. Lines
// that have to wait on are looked at again later.
func (t *throttled) next(now engine.Time) *conn {
	if t.at > now {
		return nil
	}
	t.at = engine.MaxTime
	for r, line := range t.lines {
		for line.at <= now && !line.conns.Empty() && r.Left(now) > 0 {
			c := line.conns.Pop()
			if !c.waitsIn(line) {
				line.ended--
				continue
			}
			c.backlogOrNil().throttled = nil
			t.at = now // there may be more
			return c
		}
		if line.conns.Empty() {
			delete(t.lines, r)
			continue
		}
		if line.at <= now {
			line.at = max(r.Ready(now), now+1)
		}
		t.at = min(t.at, line.at)
	}
	return nil
}

// LimitsChanged has loops look again whether those may go on who wait because of the rate of
// their account. It is called when the limits of accounts have changed. Any goroutine may call it.
func (s *Server) LimitsChanged() {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	s.onLoops(func(l *loop) {
		for _, line := range l.throttled.lines {
			line.at, l.throttled.at = 0, 0
		}
	})
}
