package reactor

import (
	"time"

	"trellis/codec"
)

// resume goes on with a session whose wait is over, or that is closed completely.
func (c *conn) resume(now time.Duration) {
	defer c.loop.recovered()
	switch {
	case c.closure == closing:
		c.gaveBack()
	case c.phase != waiting:
		return // it is being ended
	case c.Owes():
		c.backlogOrNil().woken = true
	default:
		if c.resumeMetered(now) {
			c.advance(now)
		}
	}
	c.conclude(now)
}

// goOn goes on with a connection out of the run queue.
func (c *conn) goOn(now time.Duration) {
	defer c.loop.recovered()
	c.loop.engine.Spend(connCost)
	if c.phase < broken {
		c.advance(now)
		c.conclude(now)
	}
}

// takesOutput goes on when the client takes output again, perhaps.
func (c *conn) takesOutput(now time.Duration) {
	ss := c.loop.streams
	if c.phase < broken && c.Pending() != nil {
		if !ss.BeginTurn(&c.Stream) {
			c.fail()
		}
		c.goOn(now)
	}
	ss.EndTurn(&c.Stream)
}

// committed goes on once the journal is committed as far as c's output depends on it,
// or never will be.
func (c *conn) committed(now time.Duration) {
	l := c.loop
	defer l.recovered()
	l.engine.Spend(connCost)
	switch pos := c.DependsOn(); {
	case pos == 0:
		return // it has ended
	case pos <= l.commits.committed:
		c.noteActivity(now) // its client's time to take the output begins
		c.Committed()
		c.advance(now)
	default:
		l.streams.DiscardUncommitted(&c.Stream)
		if c.phase < draining {
			c.enter(draining)
		}
	}
	c.conclude(now)
}

// goOnThrottled gives a connection its turn.
func (l *loop) goOnThrottled(c *conn, now time.Duration) {
	defer func() { l.throttled.turn = nil }()
	l.throttled.turn = c
	if c.phase != authenticating {
		c.goOn(now)
		return
	}
	defer l.recovered()
	l.engine.Spend(connCost)
	c.refuse(codec.ReplyOutOfMemory, now)
}

// revoke ends a connection whose client may do nothing any more.
func (c *conn) revoke(now time.Duration) {
	defer c.loop.recovered()
	c.loop.engine.Spend(connCost)
	if c.phase < draining {
		c.enter(draining)
	}
	c.conclude(now)
}
