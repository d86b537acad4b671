package reactor

import (
	"errors"
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
)

// conn is one client's connection. It belongs to its loop's goroutine. Most clients
// are idle, so that what few need lies in backlog.
type conn struct {
	session  engine.Session // the first field: see connOf
	decoder  codec.Decoder
	loop     *loop     // set by open
	x        *backlog  // nil while nothing is pending
	deadline *deadline // nil where connections may be idle for ever, until it is being ended
	fd       int32     // valid until end
	at       int32     // index in loop.conns

	phase   phase
	intake  intake
	closure closure
	command codec.Op // the one that is not finished, while the phase is waiting

	inGnet    bool // gnet has fd, and is not about to close it
	stalled   bool // the client has to take output before it can go on
	unflushed bool // counted in Server.unflushed

	listener listenerID // where it came from; does not change
}

// backlog is what is pending for a connection. Most connections have none.
type backlog struct {
	in         inputQueue
	out        outputQueue
	since      time.Duration  // of a command that takes long: when it began
	queued     bool           // in loop.run
	woken      bool           // the session can go on, as soon as the client has taken its output
	armed      bool           // the loop is told when the client takes output
	behindQuit bool           // the client has sent something behind its quit
	retired    retirement     // why the connection ends as soon as it can in order
	owedAt     int32          // index in loop.owed, if owed is not 0
	owed       int            // bytes for which it stands there
	throttled  *throttledLine // in which it waits; nil for none
}

// connOf is the connection of a session, nil for nil.
func connOf(s *engine.Session) *conn {
	// A conn begins with its session. A pointer in each session would be 8 bytes more.
	return (*conn)(unsafe.Pointer(s))
}

// open is the beginning of a connection that gnet has.
func (c *conn) open(now time.Duration) {
	l := c.loop
	defer l.recovered()
	c.inGnet = true
	c.join()
	if l.server.aborting.Load() {
		c.reset(now)
		return
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
	if c.listener.tls() && c.phase < broken {
		c.tls().begin(now)
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
	if c.listener.tls() {
		c.tls().received(now, p)
	} else {
		c.traffic(now, p)
	}
	l.serve(now)
}

// Closing implements gnetloop.Conn.
func (c *conn) Closing(err error) {
	l := c.loop
	now := l.server.now()
	if c.inGnet { // otherwise it goes on without gnet already
		c.inGnet = false
		c.closing(now, err)
	}
	l.serve(now)
	l.server.acceptor.Freed()
}

// traffic takes what the client has sent. p is valid only during the call.
func (c *conn) traffic(now time.Duration, p []byte) {
	l := c.loop
	defer l.recovered()
	l.counts.bytesIn.Add(uint64(len(p)))
	if c.phase >= draining || l.server.aborting.Load() {
		return
	}
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
			c.backlog().in.add(p, &l.counts)
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
	case c.phase == waiting || c.x != nil || l.held:
		c.flush() // the reply to a token may stand in l.out
		c.backlog().in.add(p, &l.counts)
	default:
		rest := c.execute(now, p)
		c.flush()
		if len(rest) > 0 && c.phase < broken {
			c.backlog().in.add(rest, &l.counts)
		}
	}
	c.limitBody(now)
	if c.x != nil || c.phase >= draining || l.draining {
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
	case c.pendingOutput():
		c.x.woken = true
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
	if c := l.stalled[int32(fd)]; c != nil {
		l.writable = append(l.writable, c)
		l.serve(l.server.now())
	} else {
		l.trunks.takesOutput(fd)
	}
}

// takesOutput goes on when the client takes output again, perhaps.
func (c *conn) takesOutput(now time.Duration) {
	if c.phase < broken && c.x != nil {
		c.x.armed = false
		if c.listener.tls() {
			c.tls().sendHeld()
		}
		c.goOn(now)
	}
	if c.listener.channel() {
		c.channel().trunk.next()
	}
}

// backlog returns c.x, which it makes if need be.
func (c *conn) backlog() *backlog {
	l := c.loop
	if n := len(l.backlogs); c.x == nil && n > 0 {
		c.x = l.backlogs[n-1]
		l.backlogs = l.backlogs[:n-1]
	} else if c.x == nil {
		c.x = new(backlog)
	}
	return c.x
}

// maxBacklogs is how many unused backlogs a loop keeps, so that replies which wait
// for a commit allocate nothing.
const maxBacklogs = 256

// freeBacklog gives c.x, in which nothing is pending, back to the loop.
func (c *conn) freeBacklog() {
	l := c.loop
	if len(l.backlogs) < maxBacklogs {
		*c.x = backlog{}
		l.backlogs = append(l.backlogs, c.x)
	}
	c.x = nil
}

// sendable tells whether the client is owed something that could be sent now.
func (c *conn) sendable() bool {
	return c.x != nil && c.x.out.sendable() || c.listener.tls() && c.tls().held != nil
}

func (c *conn) pendingOutput() bool { return c.x != nil && !c.x.out.empty() }

// pendingInput is the number of bytes that wait to be executed.
func (c *conn) pendingInput() int {
	if c.x == nil {
		return 0
	}
	return c.x.in.len()
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
	case c.pendingOutput(), c.closure != closed, !c.saidGoodbye():
		if !c.ending() {
			c.beginEnding(now)
		}
	case !c.inGnet || (c.x == nil || !c.x.behindQuit) && !unread(int(c.fd)):
		c.end(now)
		return
	default:
		if c.linger(now); c.phase == ended {
			return
		}
	}
	x := c.x
	if x == nil && (c.loop.draining || c.sendable()) {
		x = c.backlog()
	}
	if x == nil {
		return
	}
	c.setStalled(c.sendable())
	if c.loop.server.cfg.MaxOutputTotal > 0 {
		c.noteOwed()
	}
	if c.canGoOn() && !x.queued {
		x.queued = true
		c.loop.run.push(c)
	}
	c.setUnflushed(c.stalled || x.queued || x.out.uncommitted() || c.takesLong() || c.intake == detached ||
		c.phase == forwarded && c.loop.draining)
	if err := c.supervise(); err != nil {
		switch err {
		case errTooMuchInput:
			c.loop.counts.overLimit.Add(1)
		case errTooMuchOutput:
			c.loop.counts.overOutput.Add(1)
		}
		if n, ok := c.loop.server.closes.Allow(); ok {
			c.loop.server.log.Warn("a client's connection is closed", "error", err, "unreported", n)
		}
		c.fail()
		c.end(now)
		return
	}
	if x.out.empty() && x.in.empty() && !x.in.rest && !x.queued && !c.takesLong() && !c.stalled && !c.retired() && x.throttled == nil {
		c.freeBacklog()
	}
}

// canGoOn tells whether there is something to do for the connection that depends
// on nobody else.
func (c *conn) canGoOn() bool {
	x := c.x
	if !x.out.empty() || x.throttled != nil {
		return false
	}
	return c.phase == waiting && x.woken || c.phase == serving && (!x.in.empty() || x.in.rest)
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
	if c.intake < finished {
		return false
	}
	if c.listener.channel() {
		switch h := c.channel(); {
		case h.more:
			return false
		case c.phase == waiting:
			return h.leaving && !c.takesLong()
		}
	}
	return c.phase <= serving && (c.x == nil || c.x.in.empty() && !c.x.in.rest)
}

var (
	errTooMuchInput  = errors.New("it sends further ahead of its replies than may be kept")
	errTooMuchOutput = errors.New("it is owed more replies than may be kept")
)

// supervise has gnetloop tell when a client that has stalled takes output again,
// and has gnet read the client or not.
func (c *conn) supervise() error {
	l, x := c.loop, c.x
	if int64(x.out.len()) > l.server.cfg.MaxOutput {
		return errTooMuchOutput
	}
	if c.stalled && !x.armed {
		if err := c.awaitOutput(); err != nil {
			return err
		}
		x.armed = true
	}
	if !c.inGnet {
		return nil
	}
	if x.in.overflowed() {
		return errTooMuchInput
	}
	if l.server.hooks.unpaused {
		return nil
	}
	// What a client sends behind its quit is read and thrown away.
	full := x.in.full() || c.phase == forwarded && x.in.news() > 0
	return c.pause(c.phase < draining && (c.stalled || x.throttled != nil || full || l.draining))
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
	if c.listener.channel() && c.channel().parts {
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
		c.channel().trunk.sessionEnded()
	}
}

// setStalled notes whether the client has to take output before it can go on.
func (c *conn) setStalled(stalled bool) {
	if stalled == c.stalled {
		return
	}
	c.stalled = stalled
	if !stalled {
		c.loop.counts.stalled.Add(-1)
		return
	}
	c.loop.counts.stalled.Add(1)
	c.loop.counts.stalls.Add(1)
}

// setUnflushed tells Shutdown whether to wait for c: its client is owed replies or the
// answer to input that can be executed.
func (c *conn) setUnflushed(u bool) {
	if u == c.unflushed {
		return
	}
	c.unflushed = u
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
	if c.listener.tls() {
		c.tls().close()
	}
	c.enter(ended)
	c.closeSession(now)
	l := c.loop
	l.strike(c)
	counts := &l.counts
	if d := c.deadline; d != nil {
		l.deadlines.remove(d)
		if d.ending {
			counts.ending.Add(-1)
		}
		c.deadline = nil
	}
	c.setStalled(false)
	c.setUnflushed(false)
	c.forgetForwarded()
	delete(l.granted, c)
	delete(l.detached, c)
	delete(l.proxied, c)
	c.forgetDecided()
	c.forgetOutput()
	c.forgetOwed()
	if x := c.x; x != nil {
		x.unthrottle()
		x.in.discard(counts)
		x.out.discard(counts)
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
	c.closeSocket()
}
