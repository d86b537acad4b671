package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/tlsmem"
	"trellis/reactor/internal/trunk"
)

const (
	// Tick is between two looks at a link, each of which sends a pulse. In Patience of them something has to come, and
	// something of what waits has to leave.
	Tick     = time.Second
	Patience = 3
)

// Why a link ends.
var (
	ErrOtherSide = errors.New("the other side has ended it")
	ErrSilence   = errors.New("nothing comes")
	ErrBlocked   = errors.New("the other side takes nothing")
)

// End is what a link brings items for: the channels of a leader, or the clients of a gateway.
type End interface {
	// TakeItem takes what the other side has sent; it and its data are valid during the call. An error ends the link.
	TakeItem(now time.Duration, it *trunk.Item) error
	// HasRoom is called when there is much room again, after there was little.
	HasRoom(now time.Duration)
	// Disconnect is called once, when nothing more is sent or taken.
	Disconnect(now time.Duration, err error)
}

// Link is one side of a trunk: its socket, and what waits for it. It belongs to its loop's goroutine.
type Link struct {
	links *Links
	end   End
	peer  string
	from  trunk.Side // the other one
	fd    int32
	tls   *secure // nil without TLS

	reader trunk.Reader
	writer trunk.Writer
	item   trunk.Item // which is being taken

	dirty      bool // in Links.dirty
	crowded    bool // somebody has found too little room
	relieved   bool // in Links.relieved
	armed      bool // the loop is told when the socket takes output
	registered bool // it was told so before
	closing    bool // gnet is about to close the descriptor
	over       bool

	heard, moved    bool // since the last tick: something has come, something has left
	silent, blocked int  // ticks in a row in which nothing did
	done            func(error)
}

// secure is a link's TLS, over memory.
type secure struct {
	conn   *tls.Conn
	memory tlsmem.Memory
	plain  []byte // what was decrypted; made when first needed
	sent   int    // how many bytes of memory.Sealed have been sent
}

// New returns a link of a loop over a socket, which does not block, to the side from, which is the member peer. done is
// called once, with the reason why the link has ended. Any goroutine may call New. Links.Add follows.
func New(ls *Links, fd int, from trunk.Side, peer string, done func(error)) *Link {
	return &Link{links: ls, peer: peer, from: from, fd: int32(fd), reader: trunk.NewReader(from), done: done}
}

// UseTLS makes the link use TLS: c, after its handshake, which exchange makes use another connection. It is called
// before Links.Add.
func (t *Link) UseTLS(c *tls.Conn, exchange func(net.Conn)) {
	t.tls = &secure{conn: c}
	exchange(&t.tls.memory)
}

// End is what the link brings items for.
func (t *Link) End() End { return t.end }

// FD is the link's socket.
func (t *Link) FD() int { return int(t.fd) }

// Send adds an item to what is written at the end of the round. What is sent on a trunk that has ended is dropped.
func (t *Link) Send(it *trunk.Item) {
	if t.over {
		return
	}
	t.writer.Add(it)
	t.soil()
}

// Room is how many bytes may be added by those who can wait. When they are few, End.HasRoom comes
// when there are many again.
func (t *Link) Room() int {
	n := t.Pending()
	t.crowded = t.crowded || n >= relay.FewOutput
	return max(0, relay.MaxOutput-n)
}

// Pending is how many bytes the socket has not taken.
func (t *Link) Pending() int {
	n := t.writer.Len()
	if t.tls != nil {
		n += len(t.tls.memory.Sealed) - t.tls.sent
	}
	return n
}

// soil notes that the trunk is to be written at the end of the round.
func (t *Link) soil() {
	if !t.dirty {
		t.dirty = true
		t.links.dirty = append(t.links.dirty, t)
	}
}

// Begin takes what was read before the link began.
func (t *Link) Begin(now time.Duration, p []byte) {
	if err := t.takeItems(now, p); err != nil {
		t.Fail(now, err)
	}
	t.Received(now, nil) // TLS may have read more than the handshake
}

// Received takes apart what has come. p is valid only during the call.
func (t *Link) Received(now time.Duration, p []byte) {
	if t.over {
		return
	}
	t.heard = true
	t.links.In.Add(uint64(len(p)))
	if err := t.read(now, p); err != nil {
		t.Fail(now, err)
	}
}

func (t *Link) read(now time.Duration, p []byte) error {
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
			return ErrOtherSide
		case err != nil || t.over:
			return err
		}
	}
}

// decrypt reads plain text. A panic in crypto/tls is an error of what has come.
func (t *Link) decrypt() (n int, err error) {
	defer t.failed(&err)
	n, err = t.tls.conn.Read(t.tls.plain)
	if len(t.tls.memory.Sealed) > t.tls.sent {
		t.soil() // it has something to say by itself
	}
	return n, err
}

// failed makes a panic an error.
func (t *Link) failed(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("a panic: %v\n%s", r, debug.Stack())
	}
}

// takeItems hands items over to the end.
func (t *Link) takeItems(now time.Duration, p []byte) error {
	for {
		rest, ok, err := t.reader.Take(p, &t.item)
		if !ok {
			return err
		}
		p = rest
		if err := t.end.TakeItem(now, &t.item); err != nil {
			return err
		}
		if t.over {
			return nil
		}
	}
}

// flush writes what the socket takes.
func (t *Link) flush(now time.Duration) {
	for !t.over && !t.armed {
		b, err := t.sendable()
		if err != nil {
			t.Fail(now, err)
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
			t.Part(now, fmt.Errorf("writing to it: %w", err))
			return
		case n < len(b):
			if err := t.awaitOutput(); err != nil {
				t.Fail(now, err)
				return
			}
		}
	}
	if t.crowded && !t.over && t.Pending() < relay.FewOutput {
		t.crowded = false
		t.relieve()
	}
}

// sendable is what is to be written next.
func (t *Link) sendable() (b []byte, err error) {
	s := t.tls
	if s == nil {
		return t.writer.Bytes(), nil
	}
	if len(s.memory.Sealed) == s.sent && t.writer.Len() > 0 {
		s.memory.Sealed, s.sent = s.memory.Sealed[:0], 0
		defer t.failed(&err)
		chunk := t.writer.Bytes()
		chunk = chunk[:min(len(chunk), stream.SealChunk)]
		t.links.Engine.Spend(stream.CryptoCost * stream.BytesCost(len(chunk)))
		if _, err := s.conn.Write(chunk); err != nil {
			return nil, err
		}
		t.writer.Sent(len(chunk))
	}
	return s.memory.Sealed[s.sent:], nil
}

// sent notes that the socket has taken n bytes.
func (t *Link) sent(n int) {
	t.moved = true
	t.links.Out.Add(uint64(n))
	t.links.Engine.Spend(stream.BytesCost(n))
	if t.tls != nil {
		t.tls.sent += n
	} else {
		t.writer.Sent(n)
	}
}

// awaitOutput makes the poller report, once, that the socket takes output.
func (t *Link) awaitOutput() error {
	if err := t.links.cfg.Poller.AwaitOutput(int(t.fd), t.registered); err != nil {
		return fmt.Errorf("waiting until it takes output: %w", err)
	}
	t.armed, t.registered = true, true
	return nil
}

// relieve notes that the end is to hear that there is room.
func (t *Link) relieve() {
	if !t.relieved {
		t.relieved = true
		t.links.relieved = append(t.links.relieved, t)
		t.links.cfg.Wake()
	}
}

// tick sends a pulse, and ends the trunk when the other side has done nothing for too long.
func (t *Link) tick(now time.Duration) {
	blocks := t.Pending() > 0 && !t.moved
	t.silent, t.blocked = inARow(t.silent, !t.heard), inARow(t.blocked, blocks)
	t.heard, t.moved = false, false
	switch {
	case t.silent == Patience:
		t.Fail(now, ErrSilence)
	case t.blocked == Patience:
		t.Fail(now, ErrBlocked)
	case t.Pending() == 0:
		t.Pulse()
	}
}

// Pulse tells the other side that this one lives.
func (t *Link) Pulse() {
	t.writer.Pulse()
	t.soil()
}

// inARow counts how often something was so.
func inARow(n int, so bool) int {
	if so {
		return n + 1
	}
	return 0
}

// Closed ends the link because the poller is about to close its socket, for that reason.
func (t *Link) Closed(now time.Duration, err error) {
	t.closing = true
	if errors.Is(err, io.EOF) {
		err = ErrOtherSide
	}
	t.Fail(now, err)
}

// Fail ends the link.
func (t *Link) Fail(now time.Duration, err error) {
	if t.over {
		return
	}
	t.over = true
	ls := t.links
	ls.remove(t)
	if t.registered {
		ls.cfg.Poller.ForgetOutput(int(t.fd))
	}
	if ls.Resets {
		stream.Reset(int(t.fd))
	}
	if !t.closing {
		ls.cfg.Poller.Close(int(t.fd))
	}
	ls.cfg.Wake() // what that makes of sessions and clients is dealt with in the next round
	err = fmt.Errorf("the trunk with %s has ended: %w", t.peer, err)
	t.end.Disconnect(now, err)
	t.done(err)
}

// maxLate is how much is taken of what has come when a trunk is parted with: more than its two ends keep.
const maxLate = 2 << 20

// Part ends the trunk because another one is to follow. What has come for the clients of a gateway is theirs:
// whatever comes to pass afterwards, their leader told the truth when it sent that.
func (t *Link) Part(now time.Duration, err error) {
	if t.from == trunk.Leader && !t.closing {
		p := make([]byte, stream.ReadSize)
		for taken := 0; !t.over && taken < maxLate; {
			n, err := stream.Read(int(t.fd), p)
			if n <= 0 || err != nil {
				break
			}
			t.Received(now, p[:n])
			taken += n
		}
	}
	t.Fail(now, err)
}
