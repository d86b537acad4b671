package reactor

import (
	"errors"
	"io"
	"time"

	"trellis/engine"
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

// inputEnds goes on when no more can come of the client, although its socket has not ended.
func (c *conn) inputEnds(now time.Duration, err error) {
	if err == io.EOF {
		// gnet would read on behind a close_notify: the connection goes on without it, as one without TLS does
		// after its end.
		c.LeavePoller()
		c.loop.gnet.Close(c.FD())
		c.halfClosed(now)
		c.outlive(now)
		return
	}
	// The client is to see the alert: it must not get lost because the connection is closed with something unread.
	c.enter(draining)
	c.needBacklog().behindQuit = true
	c.conclude(now)
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

// sendUncommitted commits what c's output waits for and goes on, or gives up. It is
// for the end of the loop, when there is no other round.
func (c *conn) sendUncommitted(now time.Duration) {
	const interval = 50 * time.Microsecond // a sync takes longer
	l := c.loop
	for c.DependsOn() != 0 && !l.server.aborting.Load() {
		l.journal.Flush()
		for l.mustWait(c.DependsOn()) {
			if l.commits.failing.Load() || l.server.aborting.Load() {
				return
			}
			select {
			case <-l.server.giveUp:
				return
			case <-time.After(interval):
			}
		}
		c.Committed()
		c.advance(now)
	}
}

// abandon ends a connection because its loop ends.
func (c *conn) abandon(now time.Duration) {
	defer c.loop.recovered()
	c.sendUncommitted(now)
	if h := c.channel(); h != nil && h.leader().ResumesSessions() {
		h.relay.Part()
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
