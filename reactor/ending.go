package reactor

import (
	"runtime/debug"
	"time"

	"trellis/engine"
	"trellis/reactor/internal/latency"
	"trellis/reactor/internal/stream"
)

// conclude is called behind everything that is done for the connection. It decides
// whether the connection has come to its end, whether it stands in the run queue, and
// whether the client is read.
func (c *conn) conclude(now time.Duration) {
	if c.phase == ended {
		return
	}
	if c.phase == forwarded {
		c.loop.gateway.GiveCredit(c.forwarding())
	}
	if c.exhausted() {
		c.enter(draining)
	}
	if c.retired() && c.mayRetire(now) {
		c.leave()
	}
	if c.phase >= draining {
		c.closeSession(now)
	}
	switch {
	case c.phase == broken:
		c.end(now)
		return
	case c.phase != draining:
	case c.Owes(), c.closure != closed, !c.saidGoodbye():
		if !c.ending() {
			c.beginEnding(now)
		}
	case !c.Polled() || (c.Pending() == nil || !c.backlogOrNil().behindQuit) && !c.Unread():
		c.end(now)
		return
	default:
		if c.linger(now); c.phase == ended {
			return
		}
	}
	l := c.loop
	if c.Pending() == nil && (l.draining || l.streams.Sendable(&c.Stream)) {
		c.needBacklog()
	}
	x := c.backlogOrNil()
	if x == nil {
		return
	}
	if err := l.streams.Supervise(&c.Stream, c.toRead(x)); err != nil {
		if n, ok := l.server.closes.Allow(); ok {
			l.server.log.Warn("a client's connection is closed", "error", err, "unreported", n)
		}
		c.fail()
		c.end(now)
		return
	}
	if c.canGoOn(x) && !x.queued {
		x.queued = true
		l.run.Push(c)
	}
	c.setUnflushed(c.Stalled() || x.queued || c.DependsOn() != 0 || c.takesLong() || c.Outlives() ||
		c.phase == forwarded && l.draining)
	if c.Idle() && !x.queued && !x.unflushed && x.retired == notRetired && x.throttled == nil {
		c.freeBacklog()
	}
}

// canGoOn reports whether there is something to do for the connection that depends
// on nobody else.
func (c *conn) canGoOn(x *backlog) bool {
	if c.Owes() || x.throttled != nil {
		return false
	}
	return c.phase == waiting && x.woken || c.phase == serving && c.HasInput()
}

// toRead is what is to be read of the client.
func (c *conn) toRead(x *backlog) stream.Reading {
	switch {
	case c.phase >= draining || c.loop.server.hooks.unpaused:
		return stream.ReadAll // what it sends behind its quit is thrown away
	case x.throttled != nil || c.loop.draining || c.phase == forwarded && x.In.New() > 0:
		return stream.ReadNothing
	}
	return stream.ReadBounded
}

// exhausted reports whether all that the client has sent was executed, and no more will
// come.
func (c *conn) exhausted() bool {
	if !c.Ended() {
		return false
	}
	if h := c.channel(); h != nil {
		switch {
		case h.relay.AwaitsInput():
			return false
		case c.phase == waiting:
			return h.relay.IsLeaving() && !c.takesLong()
		}
	}
	return c.phase <= serving && !c.HasInput()
}

// mayRetire reports whether nobody loses anything if the connection ends now: the client has sent
// no part of a command, has all replies, and has no job. A reserve that waits may be
// ended, or a worker could stay for ever.
func (c *conn) mayRetire(now time.Duration) bool {
	idle := c.phase == serving || c.phase == waiting && !c.takesLong()
	return idle && !c.loop.held && c.decoder.AtStart() && !c.session.Reserves(c.loop.time(now)) &&
		c.loop.streams.Quiet(&c.Stream)
}

// leave ends the session of a retired connection. What the client has reserved is given back.
func (c *conn) leave() {
	counts := &c.loop.counts
	if c.backlogOrNil().retired == uncertified {
		counts.unverified.Add(1)
	} else {
		counts.aged.Add(1)
	}
	c.enter(draining)
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

// closeSession gives back what the client has reserved.
func (c *conn) closeSession(now time.Duration) {
	l := c.loop
	if l.gateway != nil {
		c.closeForwarded()
		return
	}
	if c.closure == open && !l.resumes() {
		c.closure = postponed
		c.postpone()
	}
	if c.closure > postponed || !l.resumes() {
		return
	}
	c.closure = closing
	c.decoder.Release()
	if l.server.aborting.Load() {
		return // nothing changes the engine any more
	}
	l.executing = c
	done := false
	if h := c.channel(); h != nil && h.relay.Parts() {
		done = c.session.Part(l.time(now))
	} else {
		done = c.session.Close(l.time(now))
	}
	if done {
		c.gaveBack()
	}
	l.executing = nil
}

// gaveBack notes that the client has given back all that it had in the engine.
func (c *conn) gaveBack() {
	before := c.closure
	c.closure = closed
	if h := c.channel(); h != nil && before != closed {
		h.leader().sessionEnded()
	}
}

// end is the end of a connection. Nothing is done for it afterwards.
func (c *conn) end(now time.Duration) {
	if c.phase == ended {
		return
	}
	l := c.loop
	l.streams.EndTLS(&c.Stream, c.phase < lingering, l.patience())
	c.enter(ended)
	c.closeSession(now)
	l.strike(c)
	counts := &l.counts
	if d := c.deadline; d != nil {
		l.deadlines.remove(d)
		if d.ending {
			counts.ending.Add(-1)
		}
		c.deadline = nil
	}
	c.setUnflushed(false)
	c.forgetForwarded()
	delete(l.granted, c)
	delete(l.detached, c)
	delete(l.proxied, c)
	delete(l.replays, c)
	l.streams.Discard(&c.Stream)
	if x := c.backlogOrNil(); x != nil {
		x.unthrottle()
		if !x.queued { // otherwise the queue needs it
			c.freeBacklog()
		}
	}
	// Who counts connections finds nothing else of those that have gone.
	l.members.Add(-1)
	if c.channel() != nil {
		l.server.channels.Add(-1)
	} else {
		l.server.acceptor.Closed(c.listener)
	}
	counts.connections.Add(-1)
	l.streams.Close(&c.Stream, l.server.aborting.Load())
}

// reset ends a connection of an aborted server.
func (c *conn) reset(now time.Duration) {
	defer c.loop.recovered()
	c.fail()
	c.end(now)
}

// cutOff resets a connection whose client cannot go on with another engine.
func (c *conn) cutOff(now time.Duration) {
	c.gaveBack()
	c.session = engine.Session{}
	c.resetOnClose()
	c.fail()
	c.end(now)
}

// recovered is deferred around everything that the loop does for a connection,
// and around the rest. A panic inside a command costs the client that sent it its
// connection, unless the engine was interrupted with a lock held: then, and if the
// panic came from elsewhere, nobody knows what is broken, and the process ends.
func (l *loop) recovered() {
	r := recover()
	if r == nil {
		return
	}
	l.gnet.Wake() // whoever comes behind is served after the next poll
	s := l.server
	c := l.executing
	stack := string(debug.Stack())
	busy := l.engine.Busy() || s.hooks.busy != nil && s.hooks.busy()
	switch {
	case busy:
		s.die("a panic has interrupted the engine", "panic", r, "stack", stack)
	case c == nil:
		s.die("a panic outside of any command", "panic", r, "stack", stack)
	}
	l.batch = latency.Batch{}
	if !busy { // otherwise a body's lock may be held
		stream.Empty(&l.out)
	}
	if c == nil {
		return
	}
	l.executing = nil
	l.counts.panics.Add(1)
	if n, ok := s.panics.Allow(); ok {
		s.log.Error("a command has panicked; its connection is closed",
			"panic", r, "stack", stack, "unreported", n)
	}
	defer func() {
		if r := recover(); r != nil {
			s.die("a panic while closing a connection after a panic", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	c.fail()
	c.end(s.now())
}
