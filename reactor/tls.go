package reactor

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"time"
	"unique"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/buffer"
	"trellis/reactor/internal/tlsmem"
)

const (
	// sealChunk is how many bytes of replies are sealed at a time. What was sealed
	// cannot be taken back, so this is also how much of it is kept for a client that
	// does not take it.
	sealChunk = 64 << 10

	// maxHeld is how many sealed bytes are kept for a client: a chunk, and answers to
	// requests for new keys. A client that makes more of these is closed.
	maxHeld = sealChunk + 16<<10

	// plainSize is more than one call of decrypt can bring: what one read of a loop
	// brings, and what the handshake has left.
	plainSize = readSize + accept.MaxInput + 16<<10

	// cryptoCost is how much dearer a byte is to encrypt or decrypt than to copy.
	cryptoCost = 3
)

// tlsConn is the connection of a client that speaks TLS, after the handshake. It
// belongs to its loop's goroutine.
type tlsConn struct {
	conn // the first field: see conn.tls
	// The client's certificate and those behind it, in DER, one after the other; the zero Handle if
	// it has none. Connections with the same share them.
	certificates unique.Handle[string]
	tls          *tls.Conn

	// Sealed bytes that the socket has not taken, from heldAt on; nil if there are
	// none. The first inFlight bytes of the pending output are in them: they stay
	// pending until held has left, so that the rest of the reactor need not know.
	held     *buffer.Buffer
	heldAt   int
	inFlight int

	torn bool // the socket has taken a part of a record, and held begins with the rest
	mute bool // the client has broken the protocol: no more can be sealed for it
}

// newTLS makes a connection whose handshake is done one of a loop.
func newTLS(l *loop, n accept.Arrival) *tlsConn {
	n.Wire.ReadWriter = &l.tls
	return &tlsConn{tls: n.TLS, certificates: n.Certificates}
}

// tls is the connection that c is a part of. c must have come from a listener for
// TLS.
func (c *conn) tls() *tlsConn {
	// A tlsConn begins with its conn. A pointer in each conn would be 8 bytes more for
	// clients that do not need it.
	return (*tlsConn)(unsafe.Pointer(c))
}

// tlsBuffers are what a loop's connections share. They are empty, or their contents
// of no meaning, whenever another connection may be dealt with.
type tlsBuffers struct {
	tlsmem.Memory        // of the connection that is dealt with
	plain         []byte // what was decrypted; made when first needed
	gathered      []byte // pieces of replies that are sealed together
}

// begin begins to serve a connection that is open. The handshake may have read the
// client's first commands already.
func (t *tlsConn) begin(now time.Duration) {
	if t.loop.server.cfg.Access == nil {
		t.freeCertificates()
	}
	t.received(now, nil)
}

// nobody takes the place of certificates that are forgotten.
var nobody = new(x509.Certificate)

// freeCertificates frees the client's certificates when it is known who the client is, or nobody
// wants to know: crypto/tls would keep them until the connection ends, 3 KB for each. They
// can be reached only through the slices that it shows, which it wants left alone for the
// sake of those that read them; nobody does from here on.
func (t *tlsConn) freeCertificates() {
	state := t.tls.ConnectionState()
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

// received takes what the client has sent. p is valid only during the call.
func (t *tlsConn) received(now time.Duration, p []byte) {
	if t.phase >= draining {
		t.traffic(now, p) // which throws it away
		return
	}
	defer t.loop.recovered()
	plain, err := t.decrypt(p)
	t.loop.counts.bytesIn.Add(uint64(max(0, len(p)-len(plain)))) // traffic counts the rest
	if t.phase == broken {
		t.conclude(now)
		return
	}
	if len(plain) > 0 {
		t.traffic(now, plain)
	}
	switch {
	case t.phase >= draining:
	case err == nil:
		if t.held != nil {
			t.conclude(now) // so that it is sent
		}
	case err == io.EOF:
		// gnet would read on behind a close_notify: the connection goes on without it,
		// as a plain one does after its end.
		t.inGnet = false
		t.loop.gnet.Close(int(t.fd))
		t.halfClosed(now)
		t.outlive(now)
	default:
		// The client is to see the alert: it must not get lost because the connection
		// is closed with something unread.
		t.enter(draining)
		t.backlog().behindQuit = true
		t.conclude(now)
	}
}

// decrypt returns the plain text of the records that p completes. It is valid until
// the loop decrypts again. Beside plain text there may be an error, with which the
// client's input ends: io.EOF after a close_notify. An alert for the client, and what
// else crypto/tls wants to answer, has been written.
func (t *tlsConn) decrypt(p []byte) (plain []byte, err error) {
	l := t.loop
	defer l.recovered() // from a panic in crypto/tls, as from one in a command
	l.executing = &t.conn
	if l.tls.plain == nil {
		l.tls.plain = make([]byte, plainSize)
	}
	l.tls.In = p
	n := 0
	for err == nil {
		var m int
		m, err = t.tls.Read(l.tls.plain[n:])
		n += m
	}
	l.tls.In = nil
	l.executing = nil
	l.engine.Spend(cryptoCost * bytesCost(n))
	if err == tlsmem.ErrNoInput {
		err = nil
	}
	t.mute = t.mute || err != nil && err != io.EOF
	if len(l.tls.Sealed) > 0 {
		t.sendSealed()
	}
	return l.tls.plain[:n], err
}

// sendSealed writes what crypto/tls has to say by itself.
func (t *tlsConn) sendSealed() {
	l := t.loop
	if t.sendHeld() {
		if n, _ := t.writeRaw(l.tls.Sealed); n < len(l.tls.Sealed) {
			t.torn = n > 0
			t.hold(l.tls.Sealed[n:])
		}
	} else {
		t.hold(l.tls.Sealed)
	}
	l.tls.Sealed = l.tls.Sealed[:0]
}

// hold keeps sealed bytes that the socket does not take.
func (t *tlsConn) hold(b []byte) {
	switch {
	case t.phase >= broken:
	case t.held != nil && len(t.held.B)-t.heldAt+len(b) > maxHeld:
		t.fail()
	default:
		t.held = buffer.Append(t.held, b)
	}
}

// sendHeld writes what is held. It reports whether nothing is left of it.
func (t *tlsConn) sendHeld() bool {
	if t.held == nil {
		return true
	}
	n, _ := t.writeRaw(t.held.B[t.heldAt:])
	if n > 0 {
		t.torn = true
		t.noteActivity(t.loop.server.now())
	}
	if t.heldAt += n; t.heldAt < len(t.held.B) {
		return false
	}
	t.discardHeld()
	return true
}

func (t *tlsConn) discardHeld() {
	if t.held != nil {
		buffer.Release(t.held)
		t.held, t.heldAt, t.torn = nil, 0, false
	}
}

// send writes what the client takes at once of pieces, which begin with the pending
// output if there is any. n is how many of their bytes the client has taken, or the
// system in its place. It does not count a chunk that was taken in part: that will
// be at the beginning of the next call's pieces. When the connection turns out to be
// broken, send reports false. It changes pieces.
func (t *tlsConn) send(pieces [][]byte) (n int, ok bool) {
	if !t.sendHeld() {
		return 0, t.phase < broken
	}
	n, t.inFlight = t.inFlight, 0
	pieces = skip(pieces, n)
	l := t.loop
	for len(pieces) > 0 {
		var chunk []byte
		chunk, pieces = l.tls.chunk(pieces, sealChunk)
		if !t.seal(chunk) {
			n += len(chunk) // nobody could read it
			continue
		}
		sealed := l.tls.Sealed
		l.tls.Sealed = sealed[:0]
		taken, ok := t.writeRaw(sealed)
		if !ok {
			return n, false
		}
		if taken < len(sealed) {
			t.torn = taken > 0
			t.hold(sealed[taken:])
			t.inFlight = len(chunk)
			return n, t.phase < broken
		}
		n += len(chunk)
	}
	return n, true
}

// seal encrypts b to the loop's buffer. It reports false when that cannot be done any
// more.
func (t *tlsConn) seal(b []byte) bool {
	if t.mute {
		return false
	}
	l := t.loop
	l.engine.Spend(cryptoCost * bytesCost(len(b)))
	if _, err := t.tls.Write(b); err != nil {
		t.mute = true
		l.tls.Sealed = l.tls.Sealed[:0]
		return false
	}
	return true
}

// sayGoodbye tells the client that no more will come. It reports whether that has been
// sent as a whole, or cannot be; otherwise the rest is held.
func (t *tlsConn) sayGoodbye() bool {
	if !t.mute {
		t.mute = true
		if err := t.tls.CloseWrite(); err == nil {
			t.sendSealed()
		}
	}
	return t.sendHeld() || t.phase >= broken
}

// close ends TLS on a connection that ends. A client whose replies are dropped is sent no
// close_notify, and can tell from that.
func (t *tlsConn) close() {
	if t.phase < lingering && !t.pendingOutput() {
		for !t.sayGoodbye() && t.loop.stopping && t.torn && t.awaitSocket() {
		}
	}
	t.discardHeld()
}

// saidGoodbye tells whether nothing is left to say to a client that was sent all
// replies.
func (c *conn) saidGoodbye() bool { return !c.listener.tls() || c.tls().sayGoodbye() }

// awaitSocket waits until the client takes output again. It is for the end of the loop,
// when nobody else waits. It reports false if the server waits for nothing any more.
func (t *tlsConn) awaitSocket() bool {
	const interval = 10 // milliseconds
	if t.loop.server.aborting.Load() {
		return false
	}
	select {
	case <-t.loop.server.giveUp:
		return false
	default:
		fds := []unix.PollFd{{Fd: t.fd, Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds, interval)
		return true
	}
}

// chunk takes the bytes that are sealed, or sent over a trunk, next from pieces, which hold some: up
// to most. It returns the rest.
func (b *tlsBuffers) chunk(pieces [][]byte, most int) (chunk []byte, rest [][]byte) {
	if first := pieces[0]; len(pieces) == 1 || len(first) >= most {
		chunk = first[:min(len(first), most)]
		return chunk, skip(pieces, len(chunk))
	}
	// Small pieces go together: a record, or an item, of its own for each would be dear.
	b.gathered = b.gathered[:0]
	for _, p := range pieces {
		b.gathered = append(b.gathered, p[:min(len(p), most-len(b.gathered))]...)
		if len(b.gathered) == most {
			break
		}
	}
	return b.gathered, skip(pieces, len(b.gathered))
}

// skip drops the first n bytes of pieces, and changes pieces.
func skip(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}
