package reactor

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine"
)

const (
	// drainPatience is how long a client that has sent its last, or has quit, may
	// take nothing of what it is owed before the connection is cut.
	drainPatience = 5 * time.Minute

	// lingerTime is how long a client that has quit, and was sent everything, may
	// leave its connection open.
	lingerTime = 10 * time.Second
)

// closing is called when gnet is about to close the connection.
func (c *conn) closing(now engine.Time, err error) {
	l := c.loop
	if l == nil {
		return
	}
	defer l.recovered()
	if c.ended {
		return
	}
	eof := errors.Is(err, io.EOF)
	switch {
	case eof && !c.over && !c.broken:
		c.halfClosed(now)
	case err == nil && l.stopping:
		c.lastRead(now)
	case !eof:
		c.broken = true
	}
	if c.eof && c.exhausted() {
		c.over = true
	}
	if c.broken || l.stopping || c.over && !c.pendingOutput() {
		c.end(now)
		return
	}
	c.detach(now)
}

// halfClosed answers a client that will send no more. It may have closed its
// connection altogether; that shows only when it is written to.
func (c *conn) halfClosed(now engine.Time) {
	c.eof = true
	if c.paused {
		// gnet has noticed the end without reading what comes before it.
		c.backlog().unread = true
	}
	l := c.loop
	l.executing = c
	outcome := c.session.HalfClose(now, &l.out)
	l.executing = nil
	if outcome == engine.Done && c.waiting {
		c.waiting = false
		l.replies++
		l.latency.waited(c.command, now-c.session.WaitingSince())
	}
	c.advance(now)
}

// detach keeps the connection alive beyond gnet's descriptor, until the client
// has got everything.
func (c *conn) detach(now engine.Time) {
	x := c.backlog()
	s := c.loop.server
	fd, err := s.spare.duplicate(int(c.fd))
	if err != nil {
		c.loop.counts.lacking.Add(1)
		if n, ok := s.cuts.allow(); ok {
			s.log.Warn("no descriptor is left to send a half-closed client the rest of its replies", "error", err, "unreported", n)
		}
		c.end(now)
		return
	}
	// The watcher knows the connection by its old descriptor.
	if c.watched {
		s.watch.forget(int(c.fd))
	}
	c.fd = int32(fd)
	c.watched, x.armed, x.own = false, false, true
	c.loop.addEnding(c, now+engine.Time(s.hooks.patience))
	c.settle(now)
}

// canReadOn tells that the client's last input is to be read here, because gnet
// will not.
func (c *conn) canReadOn() bool {
	x := c.x
	return x != nil && x.unread && x.in == nil && x.out == nil && !x.turn && !c.waiting && !c.over && !c.broken
}

// readOn reads once from the connection and executes what it gets.
func (c *conn) readOn(now engine.Time) {
	x := c.x
	b := largeBuffers.Get()
	if cap(b.B) < readSize {
		b.B = make([]byte, readSize)
	}
	n, err := readFD(int(c.fd), b.B[:readSize])
	if n <= 0 {
		// All of the client's input has arrived, so that there is nothing to
		// wait for.
		release(b)
		x.unread = false
		c.broken = c.broken || err != nil && err != unix.EAGAIN
		return
	}
	b.B = b.B[:n]
	x.in, x.inAt = b, 0
	counts := &c.loop.counts
	counts.bytesIn.Add(uint64(n))
	counts.pendingInput.Add(int64(n))
	counts.peakInput.Store(max(counts.peakInput.Load(), int64(n)))
	c.executePending(now)
	if c.flush() && !c.over {
		x.turn = true
	}
}

// lastRead answers what the client has sent before the server ends.
func (c *conn) lastRead(now engine.Time) {
	c.sendHeld(now)
	if c.waiting || c.over || c.broken || c.pendingOutput() || c.pendingInput() > 0 {
		return
	}
	b := largeBuffers.Get()
	defer release(b)
	if cap(b.B) < readSize {
		b.B = make([]byte, readSize)
	}
	n, err := readFD(int(c.fd), b.B[:readSize])
	if n <= 0 || err != nil {
		return
	}
	l := c.loop
	l.counts.bytesIn.Add(uint64(n))
	c.execute(now, b.B[:n])
	c.flush()
	c.sendHeld(now)
}

// linger tells a client that has quit, and was sent everything, that no more
// will come, and leaves it to the client to close. If the server closed, and the
// client had sent something behind the quit, the system would throw away what is
// still on its way to the client.
func (c *conn) linger(now engine.Time) {
	c.lingering = true
	if err := unix.Shutdown(int(c.fd), unix.SHUT_WR); err != nil {
		c.broken = true // the peer is gone
		c.end(now)
		return
	}
	c.backlog()
	c.loop.addEnding(c, now+engine.Time(c.loop.server.hooks.linger))
}

// giveUp ends a connection whose time is over.
func (c *conn) giveUp(now engine.Time) {
	defer c.loop.recovered()
	if !c.lingering {
		c.loop.counts.cut.Add(1)
		if n, ok := c.loop.server.cuts.allow(); ok {
			c.loop.server.log.Warn("a client that has sent its last takes no replies; its connection is cut", "unreported", n)
		}
	}
	c.end(now)
}

// abandon ends a connection because its loop ends.
func (c *conn) abandon(now engine.Time) {
	defer c.loop.recovered()
	c.sendHeld(now)
	c.end(now)
}

// readFD reads what is there. n is 0 at the end of the input.
func readFD(fd int, p []byte) (n int, err error) {
	for {
		n, err = unix.Read(fd, p)
		if err != unix.EINTR {
			return n, err
		}
	}
}
