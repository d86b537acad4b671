package reactor

import (
	"errors"
	"fmt"

	"github.com/panjf2000/gnet/v2"
	"github.com/valyala/bytebufferpool"
	"golang.org/x/sys/unix"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
)

const (
	// readSize is how much one read brings at most; gnet has one buffer of that
	// size for each loop.
	readSize = 64 << 10

	// keepInput is how much input may wait behind a command that waits. When
	// there is more, the client is not read any more. Because what a read has
	// brought cannot be refused, and gnet may have been told of input before it
	// is told to pause, up to two reads more are kept.
	keepInput = 64 << 10

	// inputCap is how much input may wait where reading cannot be paused, or
	// where gnet reads on to the end of the input all the same, as it does with
	// kqueue. A client that sends more is closed.
	inputCap = 4 << 20
)

// conn is one client's connection. It belongs to its loop's goroutine. There is
// one for each client, most of them idle, so that what is rare lies in backlog.
type conn struct {
	session engine.Session
	decoder codec.Decoder
	loop    *loop     // set by open
	gc      gnet.Conn // nil when gnet has closed, or is about to close, the connection
	x       *backlog  // nil while nothing is pending
	idle    *idler    // nil where connections may be idle for ever
	fd      int32     // valid until end

	waiting   bool // the session waits: nothing is executed until Wake
	paused    bool // gnet does not read
	eof       bool // the peer will send no more
	over      bool // nothing more is executed
	closed    bool // the session is closed
	broken    bool // nothing more is written: writing failed or makes no sense
	lingering bool // all is written and the peer knows that no more will come
	watched   bool // the watcher knows fd
	stuck     bool // it goes on when the client takes output
	unflushed bool // counted in Server.unflushed
	ended     bool // nothing more is done

	command codec.Op // that waits or has yielded
}

// backlog is what a connection has that cannot keep up.
type backlog struct {
	in      *bytebufferpool.ByteBuffer // input that waits to be executed, from inAt on, or nil
	inAt    int
	out     *bytebufferpool.ByteBuffer // output that waits to be written, from outAt on, or nil
	outAt   int
	pos     journal.Pos // of held output: what it waits for
	replies int         // of held output: how many there are
	firm    int         // of held output: where it begins in out
	cut     engine.Time // in loop.ending: when the connection is given up
	held    bool        // the output waits for a commit, and the connection is in loop.commits.held
	timed   bool        // in loop.ending
	armed   bool        // the watcher will ring
	turn    bool        // others have their turn: executing goes on when the watcher rings
	unread  bool        // the peer has sent its last, but not all of it was read
	own     bool        // fd is a copy that gnet knows nothing of
}

// open is the beginning of a connection.
func (c *conn) open(l *loop, gc gnet.Conn, now engine.Time) {
	defer l.recovered()
	c.loop, c.gc, c.fd = l, gc, int32(gc.Fd())
	c.decoder.MaxJobSize = l.server.cfg.MaxJobSize
	l.counts.opened.Add(1)
	l.counts.connections.Add(1)
	l.executing = c
	l.engine.Open(&c.session, c, now)
	l.executing = nil
	l.idle.add(c, now)
}

// action is what gnet is told when it has given c something to do.
func (c *conn) action() gnet.Action {
	if c.ended {
		return gnet.Close
	}
	return gnet.None
}

// traffic takes what the client has sent. p is valid only during the call.
func (c *conn) traffic(now engine.Time, p []byte) {
	l := c.loop
	defer l.recovered()
	l.counts.bytesIn.Add(uint64(len(p)))
	c.touched(now)
	switch {
	case c.over:
		return
	case c.waiting || c.x != nil:
		c.keep(p)
	default:
		rest := c.execute(now, p)
		c.flush()
		if len(rest) > 0 && !c.broken {
			c.keep(rest)
		}
	}
	if c.x != nil || c.over || c.broken || l.draining {
		c.settle(now)
	}
}

// Wake implements engine.Owner.
func (c *conn) Wake(now engine.Time) {
	l := c.loop
	defer l.recovered()
	if c.over {
		return
	}
	l.executing = c
	outcome := c.session.Resume(now, &l.out)
	l.executing = nil
	if outcome == engine.Wait {
		c.flush()
		return
	}
	l.replies++
	c.waiting = false
	l.latency.waited(c.command, now-c.session.WaitingSince())
	c.touched(now)
	c.advance(now)
	c.settle(now)
}

// writable goes on after the watcher has rung, perhaps without cause.
func (c *conn) writable(now engine.Time) {
	defer c.loop.recovered()
	if c.ended || c.x == nil {
		return
	}
	c.x.armed, c.x.turn = false, false
	c.advance(now)
	c.settle(now)
}

// backlog returns c.x, which it makes if need be.
func (c *conn) backlog() *backlog {
	if c.x == nil {
		c.x = new(backlog)
	}
	return c.x
}

func (c *conn) pendingOutput() bool { return c.x != nil && c.x.out != nil }

// pendingInput is the number of bytes that wait to be executed.
func (c *conn) pendingInput() int {
	if c.x == nil || c.x.in == nil {
		return 0
	}
	return len(c.x.in.B) - c.x.inAt
}

// settle draws the conclusions after something was done for the connection: who
// is watched, who is read, and whether it has come to its end.
func (c *conn) settle(now engine.Time) {
	if c.ended {
		return
	}
	if c.eof && c.exhausted() {
		c.over = true
	}
	if c.over {
		c.closeSession(now)
	}
	switch {
	case c.broken:
		c.end(now)
		return
	case !c.over || c.lingering:
	case c.pendingOutput():
		if !c.x.timed {
			c.loop.addEnding(c, now+engine.Time(c.loop.server.hooks.patience))
		}
	case c.gc == nil:
		c.end(now)
		return
	default:
		c.linger(now)
	}
	x := c.x
	if x == nil && c.loop.draining {
		x = c.backlog()
	}
	if x == nil {
		return
	}
	c.setStuck(x.out != nil && !x.held || x.turn)
	c.setUnflushed(c.stuck || x.held || x.own)
	if err := c.supervise(); err != nil {
		switch err {
		case errTooMuchInput:
			c.loop.counts.overLimit.Add(1)
		case errTooMuchOutput:
			c.loop.counts.overOutput.Add(1)
		}
		if n, ok := c.loop.server.closes.allow(); ok {
			c.loop.server.log.Warn("a client's connection is closed", "error", err, "unreported", n)
		}
		c.broken = true
		c.end(now)
		return
	}
	if !c.stuck && !x.held && x.in == nil && !x.timed {
		c.x = nil
	}
}

// exhausted tells that all that the client has sent was executed.
func (c *conn) exhausted() bool {
	return !c.waiting && c.pendingInput() == 0 && (c.x == nil || !c.x.unread)
}

var (
	errTooMuchInput  = errors.New("it sends further ahead of its replies than may be kept")
	errTooMuchOutput = errors.New("it is owed more replies than may be kept")
)

// supervise has the watcher tell when a client that is stuck can go on, and has
// gnet read the client or not.
func (c *conn) supervise() error {
	l, x := c.loop, c.x
	if x.out != nil && int64(len(x.out.B)-x.outAt) > l.server.cfg.MaxOutput {
		return errTooMuchOutput
	}
	if c.stuck && !x.armed {
		if err := l.server.watch.arm(c); err != nil {
			return fmt.Errorf("waiting until it takes output: %w", err)
		}
		c.watched, x.armed = true, true
	}
	if c.gc == nil {
		return nil
	}
	if c.pendingInput() >= inputCap {
		return errTooMuchInput
	}
	if !l.pause.works {
		return nil
	}
	// What a client sends behind its quit is read and thrown away.
	pause := !c.over && (c.stuck || c.pendingInput() >= keepInput || l.draining)
	if pause == c.paused {
		return nil
	}
	change := l.pause.resume
	if pause {
		change = l.pause.pause
	}
	if err := change(int(c.fd)); err != nil {
		return fmt.Errorf("pausing or resuming to read from it: %w", err)
	}
	c.paused = pause
	return nil
}

// closeSession gives back what the client has reserved.
func (c *conn) closeSession(now engine.Time) {
	if c.closed {
		return
	}
	c.closed, c.over, c.waiting = true, true, false
	l := c.loop
	l.executing = c
	c.session.Close(now)
	l.executing = nil
	c.decoder.Release()
}

// setStuck notes whether the client has to take output before it can go on.
func (c *conn) setStuck(stuck bool) {
	if stuck == c.stuck {
		return
	}
	c.stuck = stuck
	if !stuck {
		c.loop.counts.stalled.Add(-1)
		return
	}
	c.loop.counts.stalled.Add(1)
	c.loop.counts.stalls.Add(1)
}

// setUnflushed tells Shutdown whether to wait for c.
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
func (c *conn) end(now engine.Time) {
	if c.ended {
		return
	}
	c.ended = true
	c.closeSession(now)
	l := c.loop
	counts := &l.counts
	counts.connections.Add(-1)
	l.server.open.Add(-1)
	l.members.Add(-1)
	if c.idle != nil {
		l.idle.remove(c.idle)
	}
	c.setStuck(false)
	c.setUnflushed(false)
	if c.watched {
		l.server.watch.forget(int(c.fd))
	}
	if x := c.x; x != nil {
		if x.timed {
			delete(l.ending, c)
			counts.ending.Add(-1)
		}
		if x.in != nil {
			counts.pendingInput.Add(-int64(c.pendingInput()))
			release(x.in)
		}
		if x.out != nil {
			c.dropOutput()
		}
		if x.own {
			_ = unix.Close(int(c.fd))
			l.server.descriptorFreed()
		}
		c.x = nil
	}
	// gnet closes the connection that it is just dealing with by itself. It
	// must not be told directly to close others, because it may have events at
	// hand for them.
	if c.gc != nil && l.serving != c {
		_ = c.gc.Close()
	}
}
