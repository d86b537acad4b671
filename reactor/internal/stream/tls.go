package stream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/buffer"
	"trellis/reactor/internal/tlsmem"
)

const (
	// SealChunk is how many bytes of replies are sealed at a time. What was sealed cannot be taken back, so
	// this is also how much of it is kept for a client that does not take it.
	SealChunk = 64 << 10

	// maxHeld is how many sealed bytes are kept for a client: a chunk, and answers to requests for new keys.
	// A client that makes more of these is closed.
	maxHeld = SealChunk + 16<<10

	// MaxHandshakeInput is how many bytes a handshake reads of its client at most.
	MaxHandshakeInput = 64 << 10

	// plainSize is more than one call of Decrypt can bring: what one read of a loop brings, and what the
	// handshake has left.
	plainSize = ReadSize + MaxHandshakeInput + 16<<10

	// CryptoCost is how much dearer a byte is to encrypt or decrypt than to copy.
	CryptoCost = 3
)

// ErrLost says that the client is gone: nothing more is to be read or written.
var ErrLost = errors.New("stream: the client is gone")

// TLS is what a stream of the kind OnTLS has beside others, after the handshake. Its owner keeps it.
type TLS struct {
	conn *tls.Conn    // over wire
	wire *tlsmem.Wire // to the memory of the loop

	// Sealed bytes that the socket has not taken, from heldAt on; nil if there are none. The first inFlight
	// bytes of the pending output are in them: they stay pending until held has left, so that nobody else need
	// know.
	held     *buffer.Buffer
	heldAt   int
	inFlight int

	torn   bool // the socket has taken a part of a record, and held begins with the rest
	mute   bool // no more can be sealed: the client has broken the protocol, or was told that no more comes
	broken bool // writing has failed
}

// Init gives t a connection, whose handshake may not have begun yet, and the wire that it is over.
func (t *TLS) Init(conn *tls.Conn, wire *tlsmem.Wire) { t.conn, t.wire = conn, wire }

// ConnectionState is what the handshake has brought.
func (t *TLS) ConnectionState() tls.ConnectionState { return t.conn.ConnectionState() }

// nobody takes the place of certificates that are forgotten.
var nobody = new(x509.Certificate)

// ForgetCertificates frees the client's certificates when it is known who the client is, or nobody wants to know:
// crypto/tls would keep them until the connection ends, 3 KB for each. They can be reached only through the
// slices that it shows, which it wants left alone for the sake of those that read them; nobody does from here on.
func (t *TLS) ForgetCertificates() {
	state := t.conn.ConnectionState()
	drop := func(all []*x509.Certificate) {
		for i := range all {
			all[i] = nobody
		}
	}
	drop(state.PeerCertificates)
	for _, chain := range state.VerifiedChains {
		drop(chain)
	}
}

// Decrypt returns the plain text of the records that p, which was read, completes; p itself without TLS. It is
// valid until the streams read again. Beside plain text there may be an error, with which the client's input
// ends: io.EOF after a close_notify, ErrLost, or what is wrong with a record. An alert for the client, and what
// else crypto/tls wants to answer, has been written.
func (ss *Streams) Decrypt(s *Stream, p []byte) (plain []byte, err error) {
	if s.kind != OnTLS {
		return p, nil
	}
	return ss.cfg.Owner.TLS(s).decrypt(ss, s, p)
}

func (t *TLS) decrypt(ss *Streams, s *Stream, p []byte) (plain []byte, err error) {
	if ss.plain == nil {
		ss.plain = make([]byte, plainSize)
	}
	ss.memory.In = p
	n := 0
	for err == nil {
		var m int
		m, err = t.conn.Read(ss.plain[n:])
		n += m
	}
	ss.memory.In = nil
	ss.Counts.BytesIn.Add(uint64(max(0, len(p)-n))) // the owner counts the plain text
	ss.Engine.Spend(CryptoCost * BytesCost(n))
	if err == tlsmem.ErrNoInput {
		err = nil
	}
	t.mute = t.mute || err != nil && err != io.EOF
	if len(ss.memory.Sealed) > 0 {
		t.sendSealed(ss, s)
	}
	if t.broken {
		err = ErrLost
	}
	return ss.plain[:n], err
}

// write writes what the socket takes at once.
func (t *TLS) write(ss *Streams, s *Stream, b []byte) int {
	n, ok := ss.writeSocket(s, b)
	t.broken = t.broken || !ok
	return n
}

// sendSealed writes what crypto/tls has to say by itself.
func (t *TLS) sendSealed(ss *Streams, s *Stream) {
	sealed := ss.memory.Sealed
	if t.sendHeld(ss, s) {
		if n := t.write(ss, s, sealed); n < len(sealed) {
			t.torn = n > 0
			t.hold(sealed[n:])
		}
	} else {
		t.hold(sealed)
	}
	ss.memory.Sealed = sealed[:0]
}

// hold keeps sealed bytes that the socket does not take.
func (t *TLS) hold(b []byte) {
	switch {
	case t.broken:
	case t.held != nil && len(t.held.B)-t.heldAt+len(b) > maxHeld:
		t.broken = true
	default:
		t.held = buffer.Append(t.held, b)
	}
}

// sendHeld writes what is held. It reports whether nothing is left of it.
func (t *TLS) sendHeld(ss *Streams, s *Stream) bool {
	if t.held == nil {
		return true
	}
	n := t.write(ss, s, t.held.B[t.heldAt:])
	if n > 0 {
		t.torn = true
		ss.cfg.Owner.Took(s)
	}
	if t.heldAt += n; t.heldAt < len(t.held.B) {
		return false
	}
	t.discardHeld()
	return true
}

func (t *TLS) discardHeld() {
	if t.held != nil {
		buffer.Release(t.held)
		t.held, t.heldAt, t.torn = nil, 0, false
	}
}

// send is Streams.write. n is how many bytes the client has taken, or the system in its place. It does not count
// a chunk that was taken in part: that will be at the beginning of the next call's pieces.
func (t *TLS) send(ss *Streams, s *Stream, pieces [][]byte) (n int, ok bool) {
	if !t.sendHeld(ss, s) {
		return 0, !t.broken
	}
	n, t.inFlight = t.inFlight, 0
	pieces = skip(pieces, n)
	for len(pieces) > 0 {
		var chunk []byte
		chunk, pieces = ss.gather(pieces, SealChunk)
		if !t.seal(ss, chunk) {
			n += len(chunk) // nobody could read it
			continue
		}
		sealed := ss.memory.Sealed
		ss.memory.Sealed = sealed[:0]
		taken := t.write(ss, s, sealed)
		if t.broken {
			return n, false
		}
		if taken < len(sealed) {
			t.torn = taken > 0
			t.hold(sealed[taken:])
			t.inFlight = len(chunk)
			return n, !t.broken
		}
		n += len(chunk)
	}
	return n, true
}

// seal encrypts b to the loop's memory. It reports false when that cannot be done any more.
func (t *TLS) seal(ss *Streams, b []byte) bool {
	if t.mute {
		return false
	}
	ss.Engine.Spend(CryptoCost * BytesCost(len(b)))
	if _, err := t.conn.Write(b); err != nil {
		t.mute = true
		ss.memory.Sealed = ss.memory.Sealed[:0]
		return false
	}
	return true
}

// SayGoodbye tells a client that was sent all replies that no more will come. said reports whether nothing is
// left of that to be sent; otherwise it is called again, when more can be sent. It reports !ok when the client is gone.
func (ss *Streams) SayGoodbye(s *Stream) (said, ok bool) {
	if s.kind != OnTLS {
		return true, true
	}
	t := ss.cfg.Owner.TLS(s)
	if !t.mute {
		t.mute = true
		if err := t.conn.CloseWrite(); err == nil {
			t.sendSealed(ss, s)
		}
	}
	said = t.sendHeld(ss, s) || t.broken
	return said, !t.broken
}

// EndTLS ends TLS on a stream that is about to be closed. With orderly, a client that has taken all is told that no
// more comes, as far as it takes that at once; a client whose replies are dropped is not, and can tell from that.
// patient is called, if it is not nil, while the rest of a record has to be waited for; false gives that up.
func (ss *Streams) EndTLS(s *Stream, orderly bool, patient func() bool) {
	if s.kind != OnTLS {
		return
	}
	t := ss.cfg.Owner.TLS(s)
	for orderly && !s.Owes() {
		if said, _ := ss.SayGoodbye(s); said || patient == nil || !t.torn || !patient() {
			break
		}
		s.awaitSocket()
	}
	t.discardHeld()
}

// awaitSocket waits for a moment until the client takes output again. It is for the end of a loop, when nobody else
// waits.
func (s *Stream) awaitSocket() {
	const interval = 10 // milliseconds
	fds := []unix.PollFd{{Fd: s.fd, Events: unix.POLLOUT}}
	_, _ = unix.Poll(fds, interval)
}
