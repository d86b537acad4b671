package reactor

import (
	"io"
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/stream"
)

// conn is one client's connection. It belongs to its loop's goroutine. Most clients
// are idle, so that what few need lies in backlog.
type conn struct {
	session engine.Session // the first field: see connOf
	decoder codec.Decoder
	loop    *loop // does not change
	stream.Stream
	deadline *deadline // nil where connections may be idle for ever, until it is being ended
	at       int32     // index in loop.conns

	phase    phase
	closure  closure
	command  codec.Op   // the one that is not finished, while the phase is waiting
	listener listenerID // where it came from; does not change
}

// backlog is what is pending for a connection. Most connections have none.
type backlog struct {
	stream.Pending                // the first field: see conn.backlogOrNil
	since          time.Duration  // of a command that takes long: when it began
	queued         bool           // in loop.run
	woken          bool           // the session can go on, as soon as the client has taken its output
	unflushed      bool           // the connection is counted in Server.unflushed
	behindQuit     bool           // the client has sent something behind its quit
	retired        retirement     // why the connection ends as soon as it can in order
	throttled      *throttledLine // in which it waits; nil for none
}

// connOf is the connection of a session, nil for nil.
func connOf(s *engine.Session) *conn {
	// A conn begins with its session. A pointer in each session would be 8 bytes more.
	return (*conn)(unsafe.Pointer(s))
}

// connOfStream is the connection that a stream is a part of, nil for nil.
func connOfStream(s *stream.Stream) *conn {
	if s == nil {
		return nil
	}
	return (*conn)(unsafe.Add(unsafe.Pointer(s), -int(unsafe.Offsetof(conn{}.Stream))))
}

// open is the beginning of a connection that gnet has.
func (c *conn) open(now time.Duration) {
	l := c.loop
	defer l.recovered()
	early := l.streams.Begin(&c.Stream)
	c.join()
	if l.server.aborting.Load() {
		c.reset(now)
		return
	}
	if l.server.cfg.Access == nil {
		c.forgetCertificates()
	}
	switch {
	case l.server.cfg.Access != nil && !c.listener.own():
		c.identify(now)
	case l.gateway != nil:
		c.enter(forwarded)
		c.forward(now)
	default:
		c.openNow(nil, now)
		c.limitLife(now)
	}
	if early && c.phase < broken {
		c.received(now, nil) // the handshake may have read the client's first commands
	}
}

// join makes the connection one of its loop's.
func (c *conn) join() {
	l := c.loop
	l.enlist(c)
	c.decoder.MaxJobSize = l.server.cfg.MaxJobSize
	c.decoder.Extensions = l.server.cfg.Extensions
	l.counts.opened.Add(1)
	l.counts.connections.Add(1)
}

// Received implements gnetloop.Conn.
func (c *conn) Received(p []byte) {
	l := c.loop
	now := l.server.now()
	l.engine.Spend(connCost)
	c.received(now, p)
	l.serve(now)
}

// Closing implements gnetloop.Conn.
func (c *conn) Closing(err error) {
	l := c.loop
	now := l.server.now()
	if c.Polled() { // otherwise it goes on without gnet already
		c.LeavePoller()
		c.closing(now, err)
	}
	l.serve(now)
	l.server.acceptor.Freed()
}

// received takes what was read of the client. p is valid only during the call.
func (c *conn) received(now time.Duration, p []byte) {
	l := c.loop
	defer l.recovered()
	if c.phase >= draining || l.server.aborting.Load() {
		l.streams.Counts.BytesIn.Add(uint64(len(p)))
		return // it is thrown away
	}
	l.executing = c // a panic of crypto/tls is one of this client's input
	p, err := l.streams.Decrypt(&c.Stream, p)
	l.executing = nil
	if err == stream.ErrLost {
		c.fail()
		c.conclude(now)
		return
	}
	if len(p) > 0 {
		c.traffic(now, p)
	}
	switch {
	case err != nil && c.phase < draining:
		c.inputEnds(now, err)
	case c.backlogOrNil() == nil && l.streams.Sendable(&c.Stream):
		c.conclude(now) // so that what TLS has to say is sent
	}
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

// traffic takes the plain text that the client has sent.
func (c *conn) traffic(now time.Duration, p []byte) {
	l := c.loop
	l.streams.Counts.BytesIn.Add(uint64(len(p)))
	if c.phase == forwarded {
		c.pass(now, p)
		return
	}
	c.session.Received(len(p))
	c.take(now, p)
}

// take executes what the client has sent, or keeps it.
func (c *conn) take(now time.Duration, p []byte) {
	l := c.loop
	if c.phase == authenticating {
		if c.throttled() {
			return // it is refused in any case
		}
		if l.held {
			l.streams.Keep(&c.Stream, p)
			c.postpone()
			c.conclude(now)
			return
		}
		var ok bool
		if p, ok = c.authenticate(now, p); !ok {
			return
		}
		if l.gateway != nil {
			c.beginPassing(now, p)
			return
		}
	}
	c.noteActivity(now)
	switch {
	case c.phase == waiting || c.Pending() != nil || l.held:
		c.flush() // the reply to a token may stand in l.out
		first := c.InputLen() == 0
		l.streams.Keep(&c.Stream, p)
		switch {
		case c.phase != waiting || !first:
		case l.held:
			c.postpone()
		default:
			c.interrupt(now)
		}
	default:
		rest := c.execute(now, p)
		c.flush()
		if len(rest) > 0 && c.phase < broken {
			l.streams.Keep(&c.Stream, rest)
		}
	}
	c.limitBody(now)
	if c.Pending() != nil || c.phase >= draining || l.draining {
		c.conclude(now)
	}
}

// noteActivity notes that the client has sent or taken something.
func (c *conn) noteActivity(now time.Duration) {
	if c.deadline != nil {
		c.deadline.active = now
	}
}

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

// Writable implements gnetloop.Handler.
func (l *loop) Writable(fd int) {
	if l.streams.Writable(fd) {
		l.serve(l.server.now())
	} else {
		l.trunks.takesOutput(fd)
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

// backlogOrNil is what is pending for the connection, nil for nothing.
func (c *conn) backlogOrNil() *backlog {
	// A backlog begins with its Pending. A pointer in each conn would be 8 bytes more.
	return (*backlog)(unsafe.Pointer(c.Pending()))
}

// needBacklog returns the connection's backlog, which it makes if need be.
func (c *conn) needBacklog() *backlog {
	if c.Pending() == nil {
		c.SetPending(c.loop.NewPending())
	}
	return c.backlogOrNil()
}

// NewPending implements stream.Owner.
func (l *loop) NewPending() *stream.Pending {
	n := len(l.backlogs)
	if n == 0 {
		return &new(backlog).Pending
	}
	x := l.backlogs[n-1]
	l.backlogs = l.backlogs[:n-1]
	return &x.Pending
}

// maxBacklogs is how many unused backlogs a loop keeps, so that replies which wait
// for a commit allocate nothing.
const maxBacklogs = 256

// freeBacklog gives the connection's backlog, in which nothing is pending, back to the loop.
func (c *conn) freeBacklog() {
	l, x := c.loop, c.backlogOrNil()
	if len(l.backlogs) < maxBacklogs {
		*x = backlog{}
		l.backlogs = append(l.backlogs, x)
	}
	c.SetPending(nil)
}

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

// takesLong tells whether the session waits in a command that ends without the
// help of other clients.
func (c *conn) takesLong() bool {
	return c.phase == waiting && c.command != codec.OpReserve && c.command != codec.OpReserveWithTimeout &&
		c.command != codec.OpReserveBatch
}

// exhausted tells whether all that the client has sent was executed, and no more will
// come.
func (c *conn) exhausted() bool {
	if !c.Ended() {
		return false
	}
	if c.listener.channel() {
		switch h := c.channel(); {
		case h.relay.AwaitsInput():
			return false
		case c.phase == waiting:
			return h.relay.IsLeaving() && !c.takesLong()
		}
	}
	return c.phase <= serving && !c.HasInput()
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
	if c.listener.channel() && c.channel().relay.Parts() {
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
	gave := c.closure == closed
	c.closure = closed
	if !gave && c.listener.channel() {
		c.channel().leader().sessionEnded()
	}
}

// setUnflushed has Shutdown wait for c or not: its client is owed replies, or the answer to input that can be
// executed.
func (c *conn) setUnflushed(u bool) {
	x := c.backlogOrNil()
	if x == nil || u == x.unflushed {
		return
	}
	x.unflushed = u
	s := c.loop.server
	if u {
		s.unflushed.Add(1)
		return
	}
	if s.unflushed.Add(-1) == 0 {
		select {
		case s.flushed <- struct{}{}:
		default:
		}
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
	if c.listener.channel() {
		l.server.channels.Add(-1)
	} else {
		l.server.acceptor.Closed(accept.ListenerID(c.listener))
	}
	counts.connections.Add(-1)
	l.streams.Close(&c.Stream, l.server.aborting.Load())
}

// resetOnClose has the client told, when the connection is closed, that it was not answered.
func (c *conn) resetOnClose() { c.loop.streams.ResetOnClose(&c.Stream) }
