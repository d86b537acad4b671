package reactor

import (
	"fmt"
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
	command  codec.Op          // the one that is not finished, while the phase is waiting
	listener accept.ListenerID // where it came from; does not change
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

// join makes the connection one of its loop's.
func (c *conn) join() {
	l := c.loop
	l.enlist(c)
	c.decoder.MaxJobSize = l.server.cfg.MaxJobSize
	c.decoder.Extensions = l.server.cfg.Extensions
	l.counts.opened.Add(1)
	l.counts.connections.Add(1)
}

// noteActivity notes that the client has sent or taken something.
func (c *conn) noteActivity(now time.Duration) {
	if c.deadline != nil {
		c.deadline.active = now
	}
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

// takesLong reports whether the session waits in a command that ends without the
// help of other clients.
func (c *conn) takesLong() bool {
	return c.phase == waiting && c.command != codec.OpReserve && c.command != codec.OpReserveWithTimeout &&
		c.command != codec.OpReserveBatch
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

// resetOnClose tells the client, when the connection is closed, that it was not answered.
func (c *conn) resetOnClose() { c.loop.streams.ResetOnClose(&c.Stream) }

// enter moves the connection to another phase.
func (c *conn) enter(p phase) {
	if p <= c.phase && !(p == serving && (c.phase == waiting || c.phase == forwarded)) {
		panic(fmt.Sprintf("reactor: a connection that is %v becomes %v", c.phase, p))
	}
	if c.phase == authenticating && c.deadline != nil {
		c.loop.unauthenticated.Leave(c.deadline.place)
	}
	c.phase = p
}

// fail notes that nothing more can, or is to, be read from the connection or written
// to it.
func (c *conn) fail() {
	if c.phase < broken {
		c.enter(broken)
	}
}

func (c *conn) retired() bool {
	x := c.backlogOrNil()
	return x != nil && x.retired != notRetired
}

// postpone makes the loop call makeUp for the connection when commands are executed again.
func (c *conn) postpone() { c.loop.postponed = append(c.loop.postponed, c) }

// Took implements stream.Owner.
func (l *loop) Took(s *stream.Stream) { connOfStream(s).noteActivity(l.server.now()) }

// throttled reports whether the connection waits because of its account's rate.
func (c *conn) throttled() bool { return c.throttledIn() != nil }

// throttledIn is the line in which the connection waits because of its account's rate, nil for none.
func (c *conn) throttledIn() *throttledLine {
	if x := c.backlogOrNil(); x != nil {
		return x.throttled
	}
	return nil
}
