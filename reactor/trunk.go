package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/clock"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/tlsmem"
	"trellis/reactor/internal/trunk"
)

const (
	// trunkTick is between two looks at a trunk, each of which sends a pulse. In trunkPatience of them something
	// has to come, and something of what waits has to leave.
	trunkTick     = time.Second
	trunkPatience = 3
)

// TrunkConn is a connection that two members have agreed to use as a trunk.
type TrunkConn struct {
	// Conn is the socket. It is closed when the trunk has taken it over, and goes on under another
	// descriptor.
	Conn net.Conn
	// TLS is the connection above Conn after its handshake, nil without TLS. Nobody reads from it or
	// writes to it any more. Exchange makes it use another net.Conn than Conn from then on.
	TLS      *tls.Conn
	Exchange func(net.Conn)
	// Rest is what was read from Conn, or from TLS, and belongs to the trunk.
	Rest []byte
	// Peer is the name of the member at the other end.
	Peer string
	// Number is that of the gateway's loop, with which the ids of its sessions begin.
	Number uint32
	// Version is the latest of what is said on trunks that the gateway speaks; 0 is 1. It is for the leader's
	// end, as are the next three.
	Version uint16
	// Term is the one in which this server leads, and Fence an index of the log: what was executed for the
	// loop before is in entries up to that, or never will be anywhere.
	Term, Fence uint64
	// Leaves is told, once, that the gateway ends and that all sessions that came over this trunk have. It does
	// not block. Nil does nothing.
	Leaves func()
	// Until ends the trunk, with its cause, when it is done. Nil is never.
	Until context.Context
	// Ended is told, once, that the connection is over and why, also if it never became a trunk. It does not
	// block. Nil does nothing.
	Ended func(error)
}

func (c *TrunkConn) ended(err error) {
	if c.Ended != nil {
		c.Ended(err)
	}
}

// trunkEnd is what a trunk does for: the channels of a leader, or the clients of a gateway. The
// trunk's loop calls it.
type trunkEnd interface {
	// take takes what the other end has sent; it and its data are valid during the call. An error ends the trunk.
	take(now time.Duration, it *trunk.Item) error
	// writable tells that there is room again.
	writable(now time.Duration)
	// disconnected is called once, when nothing more is sent or taken.
	disconnected(now time.Duration, err error)
}

// trunkLine is one side of a trunk. It belongs to its loop's goroutine.
type trunkLine struct {
	loop *loop
	end  trunkEnd
	peer string
	from trunk.Side // the other one
	fd   int32
	tls  *trunkTLS // nil without TLS

	reader trunk.Reader
	writer trunk.Writer
	item   trunk.Item // which is being taken

	dirty      bool // in trunks.dirty
	crowded    bool // somebody has found too little room
	relieved   bool // in trunks.relieved
	armed      bool // the loop is told when the socket takes output
	registered bool // it was told so before
	closing    bool // gnet is about to close the descriptor
	over       bool

	heard, moved    bool // since the last tick: something has come, something has left
	silent, blocked int  // ticks in a row in which nothing did
	forget          func() bool
	done            func(error)
}

// trunkTLS is a trunk's TLS, over memory.
type trunkTLS struct {
	conn   *tls.Conn
	memory tlsmem.Memory
	plain  []byte // what was decrypted; made when first needed
	sent   int    // how many bytes of memory.Sealed have been sent
}

// trunks are the trunks of a loop.
type trunks struct {
	list     []*trunkLine
	dirty    []*trunkLine  // that have something to write
	relieved []*trunkLine  // that have room again
	tick     time.Duration // when the next one is to be looked at; never while there is none
}

// layTrunk makes a connection a trunk of a loop, which brings what one side sends. The loop makes its end, nil if it
// has no use for one any more: all that goes wrong from then on is told there. After an error, Conn is closed. It
// does not wait. Any goroutine may call it.
func (s *Server) layTrunk(l *loop, c TrunkConn, from trunk.Side, end func(*trunkLine) trunkEnd) error {
	if !s.beginHold() {
		_ = c.Conn.Close()
		c.ended(ErrClosed)
		return ErrClosed
	}
	fd, err := s.takeDescriptor(c.Conn)
	if err != nil {
		s.holds.Done()
		err = fmt.Errorf("reactor: making a connection with %s a trunk: %w", c.Peer, err)
		c.ended(err)
		return err
	}
	t := &trunkLine{loop: l, peer: c.Peer, from: from, fd: int32(fd), reader: trunk.NewReader(from), done: c.ended}
	if c.TLS != nil {
		t.tls = &trunkTLS{conn: c.TLS}
		c.Exchange(&t.tls.memory)
	}
	l.call(func(l *loop) {
		defer s.holds.Done()
		t.begin(end(t), &c)
	})
	return nil
}

// takeDescriptor takes a connection out of Go's poller, and returns the descriptor that it
// has now.
func (s *Server) takeDescriptor(c net.Conn) (fd int, err error) {
	defer c.Close()
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a %T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	if closed := raw.Control(func(old uintptr) { fd, err = s.acceptor.Duplicate(int(old)) }); closed != nil {
		return -1, closed
	}
	return fd, err
}

// begin is a trunk's beginning.
func (t *trunkLine) begin(end trunkEnd, c *TrunkConn) {
	l := t.loop
	defer l.recovered()
	now := l.server.now()
	if end == nil {
		_ = unix.Close(int(t.fd))
		l.server.acceptor.Freed()
		t.done(errNoRole)
		return
	}
	t.end = end
	stream.LimitUnsent(int(t.fd))
	if err := l.gnet.Adopt(int(t.fd), t); err != nil {
		t.closing = true
		t.fail(now, err)
		return
	}
	l.trunks.list = append(l.trunks.list, t)
	l.trunks.tick = min(l.trunks.tick, now+trunkTick)
	if ctx := c.Until; ctx != nil {
		t.forget = context.AfterFunc(ctx, func() {
			l.call(func(l *loop) { t.part(l.server.now(), context.Cause(ctx)) })
		})
	}
	if l.server.aborting.Load() {
		t.fail(now, errAborted)
		return
	}
	if err := t.takeItems(now, c.Rest); err != nil {
		t.fail(now, err)
	}
	t.received(now, nil) // TLS may have read more than the handshake
}

// Send adds an item to what is written at the end of the round. What is sent on a trunk that has ended is dropped.
func (t *trunkLine) Send(it *trunk.Item) {
	if t.over {
		return
	}
	t.writer.Add(it)
	t.soil()
}

// Room is how many bytes may be added by those who can wait. When they are few, end.writable comes
// when there are many again.
func (t *trunkLine) Room() int {
	n := t.pending()
	t.crowded = t.crowded || n >= relay.FewOutput
	return max(0, relay.MaxOutput-n)
}

// pending is how many bytes the socket has not taken.
func (t *trunkLine) pending() int {
	n := t.writer.Len()
	if t.tls != nil {
		n += len(t.tls.memory.Sealed) - t.tls.sent
	}
	return n
}

// soil notes that the trunk is to be written at the end of the round.
func (t *trunkLine) soil() {
	if !t.dirty {
		t.dirty = true
		t.loop.trunks.dirty = append(t.loop.trunks.dirty, t)
	}
}

var (
	errNoRole    = errors.New("reactor: the server has changed its role")
	errOtherSide = errors.New("the other side has ended it")
	errSilence   = errors.New("nothing comes")
	errBlocked   = errors.New("the other side takes nothing")
)

// received takes apart what has come. p is valid only during the call.
func (t *trunkLine) received(now time.Duration, p []byte) {
	defer t.loop.recovered()
	if t.over {
		return
	}
	t.heard = true
	t.loop.counts.trunkIn.Add(uint64(len(p)))
	if err := t.read(now, p); err != nil {
		t.fail(now, err)
	}
}

func (t *trunkLine) read(now time.Duration, p []byte) error {
	if t.tls == nil {
		return t.takeItems(now, p)
	}
	if len(t.tls.plain) == 0 {
		t.tls.plain = make([]byte, stream.ReadSize)
	}
	t.tls.memory.In = p
	for {
		n, err := t.decrypt()
		if taken := t.takeItems(now, t.tls.plain[:n]); taken != nil {
			return taken
		}
		switch {
		case err == tlsmem.ErrNoInput:
			return nil
		case err == io.EOF:
			return errOtherSide
		case err != nil || t.over:
			return err
		}
	}
}

// decrypt reads plain text. A panic in crypto/tls is an error of what has come.
func (t *trunkLine) decrypt() (n int, err error) {
	defer t.failed(&err)
	n, err = t.tls.conn.Read(t.tls.plain)
	if len(t.tls.memory.Sealed) > t.tls.sent {
		t.soil() // it has something to say by itself
	}
	return n, err
}

// failed makes a panic an error.
func (t *trunkLine) failed(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("a panic: %v\n%s", r, debug.Stack())
	}
}

// takeItems hands items over to the end.
func (t *trunkLine) takeItems(now time.Duration, p []byte) error {
	for {
		rest, ok, err := t.reader.Take(p, &t.item)
		if !ok {
			return err
		}
		p = rest
		if err := t.end.take(now, &t.item); err != nil {
			return err
		}
		if t.over {
			return nil
		}
	}
}

// flush writes what the socket takes.
func (t *trunkLine) flush(now time.Duration) {
	defer t.loop.recovered()
	for !t.over && !t.armed {
		b, err := t.sendable()
		if err != nil {
			t.fail(now, err)
			return
		}
		if len(b) == 0 {
			break
		}
		n, err := stream.Write(int(t.fd), b)
		if err == unix.EINTR {
			continue
		}
		if n > 0 {
			t.sent(n)
		}
		switch {
		case err != nil && err != unix.EAGAIN:
			t.part(now, fmt.Errorf("writing to it: %w", err))
			return
		case n < len(b):
			if err := t.awaitOutput(); err != nil {
				t.fail(now, err)
				return
			}
		}
	}
	if t.crowded && !t.over && t.pending() < relay.FewOutput {
		t.crowded = false
		t.relieve()
	}
}

// sendable is what is to be written next.
func (t *trunkLine) sendable() (b []byte, err error) {
	s := t.tls
	if s == nil {
		return t.writer.Bytes(), nil
	}
	if len(s.memory.Sealed) == s.sent && t.writer.Len() > 0 {
		s.memory.Sealed, s.sent = s.memory.Sealed[:0], 0
		defer t.failed(&err)
		chunk := t.writer.Bytes()
		chunk = chunk[:min(len(chunk), stream.SealChunk)]
		t.loop.engine.Spend(stream.CryptoCost * bytesCost(len(chunk)))
		if _, err := s.conn.Write(chunk); err != nil {
			return nil, err
		}
		t.writer.Sent(len(chunk))
	}
	return s.memory.Sealed[s.sent:], nil
}

// sent notes that the socket has taken n bytes.
func (t *trunkLine) sent(n int) {
	t.moved = true
	t.loop.counts.trunkOut.Add(uint64(n))
	t.loop.engine.Spend(bytesCost(n))
	if t.tls != nil {
		t.tls.sent += n
	} else {
		t.writer.Sent(n)
	}
}

// awaitOutput makes the poller report, once, that the socket takes output.
func (t *trunkLine) awaitOutput() error {
	if err := t.loop.gnet.AwaitOutput(int(t.fd), t.registered); err != nil {
		return fmt.Errorf("waiting until it takes output: %w", err)
	}
	t.armed, t.registered = true, true
	return nil
}

// relieve notes that the end is to hear that there is room.
func (t *trunkLine) relieve() {
	if !t.relieved {
		t.relieved = true
		t.loop.trunks.relieved = append(t.loop.trunks.relieved, t)
		t.loop.gnet.Wake()
	}
}

// tick sends a pulse, and ends the trunk when the other side has done nothing for too long.
func (t *trunkLine) tick(now time.Duration) {
	blocks := t.pending() > 0 && !t.moved
	t.silent, t.blocked = inARow(t.silent, !t.heard), inARow(t.blocked, blocks)
	t.heard, t.moved = false, false
	switch {
	case t.silent == trunkPatience:
		t.fail(now, errSilence)
	case t.blocked == trunkPatience:
		t.fail(now, errBlocked)
	case t.pending() == 0:
		t.writer.Pulse()
		t.soil()
	}
}

// inARow counts how often something was so.
func inARow(n int, so bool) int {
	if so {
		return n + 1
	}
	return 0
}

// fail ends the trunk.
func (t *trunkLine) fail(now time.Duration, err error) {
	if t.over {
		return
	}
	t.over = true
	l := t.loop
	defer l.recovered()
	l.trunks.remove(t)
	if t.forget != nil {
		t.forget()
	}
	if t.registered {
		l.gnet.ForgetOutput(int(t.fd))
	}
	if l.server.aborting.Load() {
		stream.Reset(int(t.fd))
	}
	if !t.closing {
		l.gnet.Close(int(t.fd))
	}
	l.gnet.Wake() // what that makes of sessions and clients is dealt with in the next round
	err = fmt.Errorf("the trunk with %s has ended: %w", t.peer, err)
	t.end.disconnected(now, err)
	t.done(err)
}

// maxLate is how much is taken of what has come when a trunk is parted with: more than its two ends keep.
const maxLate = 2 << 20

// part ends the trunk because another one is to follow. What has come for the clients of a gateway is theirs:
// whatever comes to pass afterwards, their leader told the truth when it sent that.
func (t *trunkLine) part(now time.Duration, err error) {
	if t.from == trunk.Leader && !t.closing {
		p := make([]byte, stream.ReadSize)
		for taken := 0; !t.over && taken < maxLate; {
			n, err := stream.Read(int(t.fd), p)
			if n <= 0 || err != nil {
				break
			}
			t.received(now, p[:n])
			taken += n
		}
	}
	t.fail(now, err)
}

func (ts *trunks) remove(t *trunkLine) {
	same := func(o *trunkLine) bool { return o == t }
	ts.list = slices.DeleteFunc(ts.list, same)
	ts.dirty = slices.DeleteFunc(ts.dirty, same)
	ts.relieved = slices.DeleteFunc(ts.relieved, same)
	if len(ts.list) == 0 {
		ts.tick = clock.Never
	}
}

// takesOutput goes on with the trunk whose socket takes output again.
func (ts *trunks) takesOutput(fd int) {
	for _, t := range ts.list {
		if int(t.fd) == fd {
			t.armed = false
			t.soil()
			return
		}
	}
}

// turn does what is to be done.
func (ts *trunks) turn(now time.Duration) {
	if n := len(ts.relieved); n > 0 {
		t := ts.relieved[0]
		ts.relieved = slices.Delete(ts.relieved, 0, 1)
		t.relieved = false
		t.loop.engine.Spend(connCost)
		t.end.writable(now)
	}
	if ts.tick <= now {
		ts.tick = now + trunkTick
		for _, t := range slices.Clone(ts.list) {
			t.tick(now)
		}
	}
}

// left reports whether turn would do something.
func (ts *trunks) left(now time.Duration) bool { return len(ts.relieved) > 0 || ts.tick <= now }
