package reactor

import (
	"time"

	"golang.org/x/sys/unix"
)

// keepReplies is the largest capacity in bytes that a loop's buffer of replies
// keeps from one batch to the next.
const keepReplies = 1 << 20

// replyBytes is the size of the replies in l.out.
func (l *loop) replyBytes() int {
	n := len(l.out.Buf)
	for i := range l.out.Bodies {
		n += len(l.out.Bodies[i].Bytes)
	}
	return n
}

// discardReplies empties l.out.
func (l *loop) discardReplies() {
	if cap(l.out.Buf) > keepReplies {
		l.out.Buf = nil
	}
	l.out.Discard()
}

// flush writes the replies in loop.out, and empties it in any case: what the
// client does not take becomes its pending output. It reports whether nothing is
// pending.
func (c *conn) flush() bool {
	l := c.loop
	out := &l.out
	if len(out.Buf) == 0 {
		return !c.pendingOutput() && c.phase < broken
	}
	if c.phase >= broken {
		l.batch = batch{}
		l.discardReplies()
		return false
	}
	total := l.replyBytes()
	c.session.Replied(total, out)
	if wait := l.mustWait(out.Pos); wait || c.pendingOutput() {
		x := c.backlog()
		firm := 0
		if x.out.buf != nil {
			firm = len(x.out.buf.B)
		}
		pos := out.Pos
		c.retain(0)
		if wait || x.out.uncommitted() {
			c.awaitCommit(firm, pos)
		} else {
			l.latency.answered(&l.batch, l.server.now())
		}
		return false
	}
	l.pieces = appendPieces(l.pieces[:0], out.Buf, 0, out.Bodies, 0)
	n, ok := c.write(l.pieces)
	l.latency.answered(&l.batch, l.server.now())
	if ok && n < total {
		c.retain(n)
		return false
	}
	l.discardReplies()
	return ok
}

// retain makes the replies in loop.out pending output. Their first n bytes have been
// written.
func (c *conn) retain(n int) {
	l := c.loop
	x := c.backlog()
	if b := l.out.Buf; len(l.out.Bodies) > 0 {
		x.out.add(b, l.out.Bodies, &l.counts)
		x.out.sent(n, &l.counts)
		clear(l.out.Bodies) // they are x.out's now
		l.out.Bodies = l.out.Bodies[:0]
	} else if cap(b) > keepReplies && x.out.empty() {
		x.out.adopt(b[n:], &l.counts)
		l.out.Buf = nil
	} else {
		x.out.add(b[n:], nil, &l.counts)
	}
	l.discardReplies()
}

// writePending writes pending output. It reports whether none is left.
func (c *conn) writePending(now time.Duration) bool {
	l, q := c.loop, &c.x.out
	if !q.sendable() {
		return false // all of it waits for a commit
	}
	l.pieces = q.pieces(l.pieces[:0])
	n, ok := c.write(l.pieces)
	if !ok {
		return false
	}
	if n > 0 {
		c.noteActivity(now)
		q.sent(n, &l.counts)
	}
	return q.empty()
}

// write writes what the client takes at once of pieces, and may change these. When the
// connection turns out to be broken, it reports false, and nothing is written any more.
func (c *conn) write(pieces [][]byte) (n int, ok bool) {
	if c.listener.tls() {
		return c.tls().send(pieces)
	}
	if c.listener.channel() {
		return c.channel().send(pieces)
	}
	if len(pieces) == 1 {
		return c.writeRaw(pieces[0])
	}
	for {
		n, err := writevFD(int(c.fd), pieces)
		if err != unix.EINTR {
			return c.wrote(n, err)
		}
	}
}

// writeRaw writes what the socket takes at once.
func (c *conn) writeRaw(b []byte) (n int, ok bool) {
	for {
		n, err := writeFD(int(c.fd), b)
		if err != unix.EINTR {
			return c.wrote(n, err)
		}
	}
}

// wrote takes the result of a write.
func (c *conn) wrote(n int, err error) (int, bool) {
	switch err {
	case nil:
		c.loop.counts.bytesOut.Add(uint64(n))
		c.loop.engine.Spend(bytesCost(n))
		return n, true
	case unix.EAGAIN:
		return 0, true
	}
	c.fail()
	return 0, false
}
