package reactor

import (
	"slices"

	"github.com/valyala/bytebufferpool"
	"golang.org/x/sys/unix"

	"trellis/engine"
)

// keepReplies is the largest capacity in bytes that a loop's buffer of replies
// keeps from one batch to the next.
const keepReplies = 1 << 20

// flush writes the replies in loop.out, and empties it in any case: what the
// client does not take becomes its pending output. It reports whether nothing is
// pending.
func (c *conn) flush() bool {
	l := c.loop
	l.copyBodies()
	b, pos, replies := l.out.Buf, l.out.Pos, l.replies
	l.out.Pos, l.replies = 0, 0
	if len(b) == 0 {
		return !c.pendingOutput() && !c.broken
	}
	l.out.Buf = b[:0]
	if cap(b) > keepReplies {
		l.out.Buf = nil
	}
	if c.broken {
		l.tally = tally{}
		return false
	}
	if wait := l.mustWait(pos); wait || c.pendingOutput() {
		firm := 0
		if c.backlog().out != nil {
			firm = len(c.x.out.B)
		}
		c.addOutput(b)
		if wait || c.x.held {
			c.hold(firm, pos, replies)
		} else {
			l.latency.answered(&l.tally, l.server.cfg.Now())
		}
		return false
	}
	n, ok := c.write(b)
	l.latency.answered(&l.tally, l.server.cfg.Now())
	if !ok {
		return false
	}
	if n == len(b) {
		return true
	}
	x := c.backlog()
	if b = b[n:]; l.out.Buf == nil {
		x.out = &bytebufferpool.ByteBuffer{B: b} // nobody else has it
		c.countOutput(len(b))
	} else {
		c.addOutput(b)
	}
	return false
}

// copyBodies puts large bodies to where they belong among the replies.
func (l *loop) copyBodies() {
	for i := len(l.out.Bodies) - 1; i >= 0; i-- {
		b := &l.out.Bodies[i]
		l.out.Buf = slices.Insert(l.out.Buf, b.At, b.Bytes...)
		b.Release()
		*b = engine.Body{}
	}
	l.out.Bodies = l.out.Bodies[:0]
}

// addOutput adds to the pending output.
func (c *conn) addOutput(b []byte) {
	c.x.out = appendPooled(c.x.out, b)
	c.countOutput(len(b))
}

func (c *conn) countOutput(n int) {
	counts := &c.loop.counts
	counts.pendingOutput.Add(int64(n))
	counts.peakOutput.Store(max(counts.peakOutput.Load(), int64(len(c.x.out.B)-c.x.outAt)))
}

// writePending writes pending output. It reports whether none is left.
func (c *conn) writePending(now engine.Time) bool {
	x := c.x
	if x.held {
		return false
	}
	n, ok := c.write(x.out.B[x.outAt:])
	if !ok {
		return false
	}
	if n > 0 && x.timed {
		x.cut = now + engine.Time(c.loop.server.hooks.patience)
	}
	if n > 0 {
		c.touched(now)
	}
	x.outAt += n
	c.loop.counts.pendingOutput.Add(int64(-n))
	if x.outAt < len(x.out.B) {
		return false
	}
	c.dropOutput()
	return true
}

// dropOutput forgets the pending output.
func (c *conn) dropOutput() {
	x := c.x
	c.loop.counts.pendingOutput.Add(int64(x.outAt - len(x.out.B)))
	release(x.out)
	x.out, x.outAt = nil, 0
}

// write writes what the client takes at once. When the connection turns out to
// be broken, it reports false, and nothing is written any more.
func (c *conn) write(b []byte) (n int, ok bool) {
	for {
		n, err := unix.Write(int(c.fd), b)
		switch err {
		case nil:
			c.loop.counts.bytesOut.Add(uint64(n))
			return n, true
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, true
		default:
			c.broken = true
			return 0, false
		}
	}
}
