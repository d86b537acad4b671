package reactor

import (
	"errors"
	"io"
	"time"

	"trellis/engine"
)

const (
	// drainTimeout is how long a client that has sent its last, or has quit, may
	// take nothing of what could be sent to it before the connection is cut.
	drainTimeout = 5 * time.Minute

	// serverTimeouts is how many times as long such a connection is kept while it is the server that
	// delays. Its client may be gone, and would have a slot for as long as a disk hangs.
	serverTimeouts = 12

	// lingerTime is how long a client that has quit, and was sent everything, may
	// leave its connection open.
	lingerTime = 10 * time.Second
)

// closing is called when gnet is about to close the connection.
func (c *conn) closing(now time.Duration, err error) {
	l := c.loop
	defer l.recovered()
	l.engine.Spend(connCost)
	if c.phase == ended {
		return
	}
	if l.server.aborting.Load() {
		c.reset(now)
		return
	}
	eof := errors.Is(err, io.EOF)
	switch {
	case eof && c.phase < draining:
		c.halfClosed(now)
	case err == nil && l.stopping:
		c.lastRead(now)
	case !eof:
		c.fail()
	}
	c.outlive(now)
}

// outlive goes on with a connection that gnet is about to close, if anything is left to
// do for its client.
func (c *conn) outlive(now time.Duration) {
	if c.exhausted() {
		c.enter(draining)
	}
	if c.phase == draining {
		c.closeSession(now)
	}
	over := c.phase >= draining && !c.Owes() && c.closure == closed
	if c.phase >= broken || c.loop.stopping || over && c.saidGoodbye() {
		c.end(now)
		return
	}
	c.detach(now)
}

// halfClosed answers a client that will send no more. It may have closed its
// connection altogether; that shows only when it is written to.
func (c *conn) halfClosed(now time.Duration) {
	c.loop.streams.End(&c.Stream)
	if c.phase == forwarded {
		c.loop.gateway.HalfClose(c.forwarding())
		return
	}
	if c.loop.held {
		c.postpone()
		return
	}
	c.endInput(now)
}

// endInput tells the engine that the client will send no more, and goes on.
func (c *conn) endInput(now time.Duration) {
	l := c.loop
	l.executing = c
	outcome := c.session.HalfClose(l.time(now), &l.out)
	l.executing = nil
	if outcome == engine.Done && c.phase == waiting {
		c.waited(now)
	}
	c.advance(now)
}

// interrupt tells the engine that the client has sent more behind the command in which it waits, and goes on if that
// ends the wait.
func (c *conn) interrupt(now time.Duration) {
	l := c.loop
	l.executing = c
	outcome := c.session.Interrupt(l.time(now), &l.out)
	l.executing = nil
	if outcome == engine.Done {
		c.waited(now)
		c.advance(now)
	}
}

// detach keeps the connection alive beyond gnet's descriptor, until the client has got
// everything and the engine has given back what it reserved.
func (c *conn) detach(now time.Duration) {
	c.needBacklog()
	if err := c.loop.streams.Detach(&c.Stream); err != nil {
		if c.Owes() || c.phase < draining { // the client loses something
			s := c.loop.server
			c.loop.counts.lacking.Add(1)
			if n, ok := s.cuts.Allow(); ok {
				s.log.Warn("no descriptor is left to send a half-closed client the rest of its replies",
					"error", err, "unreported", n)
			}
		}
		c.end(now)
		return
	}
	c.beginEnding(now)
	c.conclude(now)
}

// readOn reads once from the connection and executes what it gets.
func (c *conn) readOn(now time.Duration) {
	l := c.loop
	l.executing = c
	ok := l.streams.ReadRest(&c.Stream)
	l.executing = nil
	if !ok {
		c.fail()
		return
	}
	c.executePending(now)
	c.flush()
}

// lastRead answers what the client has sent before the server ends, as far as the rate of its account allows.
func (c *conn) lastRead(now time.Duration) {
	c.sendUncommitted(now)
	if c.phase != serving || c.Owes() || c.InputLen() > 0 {
		return
	}
	l := c.loop
	l.executing = c
	rest := l.streams.ReadLast(&c.Stream)
	l.executing = nil
	for len(rest) > 0 && c.phase == serving && !c.throttled() {
		l.newRound() // nobody else waits for a turn
		rest = c.execute(now, rest)
		c.flush()
		c.sendUncommitted(now)
		if c.Owes() {
			return
		}
	}
}

// patience is asked, at the end of the loop, whether to wait for a client that does not take the rest of a TLS
// record. It is nil while others wait for the loop.
func (l *loop) patience() func() bool {
	if !l.stopping {
		return nil
	}
	return func() bool {
		select {
		case <-l.server.giveUp:
			return false
		default:
			return !l.server.aborting.Load()
		}
	}
}

// saidGoodbye reports whether nothing is left to say to a client that was sent all replies.
func (c *conn) saidGoodbye() bool {
	said, ok := c.loop.streams.SayGoodbye(&c.Stream)
	if !ok {
		c.fail()
	}
	return said
}

// linger tells a client that it was sent everything, and leaves it to the client to
// close. It is for clients that have sent more behind their last command: if the
// server closed with that unread, the system would throw away replies that are still
// on their way.
func (c *conn) linger(now time.Duration) {
	if c.phase == broken { // the peer was gone when it was told that the connection ends
		c.end(now)
		return
	}
	c.enter(lingering)
	if err := c.EndOutput(); err != nil {
		c.fail() // the peer is gone
		c.end(now)
		return
	}
	c.beginEnding(now)
}

// abandon ends a connection because its loop ends.
func (c *conn) abandon(now time.Duration) {
	defer c.loop.recovered()
	c.sendUncommitted(now)
	if c.listener.channel() {
		h := c.channel()
		if h.leader().ResumesSessions() {
			h.relay.Part()
		}
	}
	c.end(now)
}

// Disconnect implements engine.Carrier. The client is sent what it is owed as far as it takes
// it at once: one that takes nothing would keep its connection.
func (l *loop) Disconnect(s *engine.Session, at engine.Time) {
	now := l.duration(at)
	c := connOf(s)
	if c.phase < draining {
		c.enter(draining)
	}
	c.closeSession(now)
	if l.streams.Sendable(&c.Stream) {
		c.fail()
	}
	l.revoked = append(l.revoked, c)
}
