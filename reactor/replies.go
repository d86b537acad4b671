package reactor

import (
	"time"

	"trellis/reactor/internal/latency"
	"trellis/reactor/internal/stream"
)

// flush sends the replies in loop.out, and empties it in any case: what the client does not take becomes its pending
// output. It reports whether nothing is pending.
func (c *conn) flush() bool {
	l := c.loop
	out := &l.out
	switch {
	case len(out.Buf) == 0:
		return !c.Owes() && c.phase < broken
	case c.phase >= broken:
		l.batch = latency.Batch{}
		stream.Empty(out)
		return false
	}
	size := stream.Size(out)
	c.session.Replied(size, out)
	pos, waiting := out.Pos, c.DependsOn() != 0
	sending := l.streams.Send(&c.Stream, out, size, l.mustWait(pos))
	switch sending {
	case stream.Waits:
		c.awaitCommit(pos, waiting)
		return false
	case stream.Lost:
		c.fail()
	}
	l.latency.Answered(&l.batch, l.server.now())
	return sending == stream.Sent
}

// flushPending sends pending output. It reports whether none is left.
func (c *conn) flushPending(now time.Duration) bool {
	n, ok := c.loop.streams.SendPending(&c.Stream)
	if !ok {
		c.fail()
		return false
	}
	if n > 0 {
		c.noteActivity(now)
	}
	return !c.Owes()
}
