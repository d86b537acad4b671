package reactor

import (
	"crypto/tls"
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watched are the handshakes for which no goroutine waits, but the poller of their acceptor's
// loop: those whose clients are silent, and those whose clients were told that they do not
// speak TLS. A client is silent until its first record is there as a whole.
type watched struct {
	last     atomic.Int32         // the number that was given last
	byNumber map[int32]*handshake // guarded by handshakes.mu
	first    [2 << 10]byte        // what a silent client has sent; guarded by handshakes.mu
}

// watch is how a poller reports a handshake: by a number of its own. A report may be older
// than the end of what it is about, and the descriptor may be somebody else's then. Whoever has
// taken the handshake out of watched has the watch too.
type watch struct {
	on     bool  // the poller has the descriptor
	number int32 // does not change
	bytes  int   // how many have to be there before the poller reports any; 0 if that was not said
}

// beginWatch has the poller of the acceptor's loop watch a connection. It reports false where
// that does not work. It is called on the loop's goroutine.
func (h *handshake) beginWatch() bool {
	l := h.by.loop
	if l.server.hooks.unwatched {
		return false
	}
	w := &h.watch
	w.number = l.server.handshakes.watched.last.Add(1) & math.MaxInt32
	w.on = l.gnet.WatchNews(h.fd, w.number) == nil
	return w.on
}

// endWatch undoes beginWatch. The descriptor is open, and is to be closed or handed over: the
// poller would go on to report a copy of it.
func (h *handshake) endWatch() {
	if h.watch.on {
		h.watch.on = false
		_ = h.by.loop.gnet.Unwatch(h.fd)
		h.awaitBytes(1)
	}
}

// awaitBytes has the poller report nothing before there are n bytes to be read, or no room
// for more, or the end. A Unix socket ignores that.
func (h *handshake) awaitBytes(n int) {
	if n > 1 || h.watch.bytes > 1 {
		h.watch.bytes = n
		_ = unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
	}
}

func (ws *watched) addLocked(h *handshake) {
	if !h.watch.on {
		return
	}
	if ws.byNumber == nil {
		ws.byNumber = make(map[int32]*handshake)
	}
	ws.byNumber[h.watch.number] = h
}

func (ws *watched) removeLocked(h *handshake) {
	if h.watch.on {
		delete(ws.byNumber, h.watch.number)
	}
}

// reported deals with a watched handshake of which the poller of its loop has reported
// something.
func (hs *handshakes) reported(number int32, ended bool) {
	hs.mu.Lock()
	h := hs.watched.byNumber[number]
	if h == nil {
		hs.mu.Unlock()
		return
	}
	// While h is in watched and mu is held, nobody closes the descriptor.
	if h.list == &hs.alerted {
		if h.drain(ended) {
			hs.removeLocked(h)
			hs.mu.Unlock()
			h.finish(nil)
			return
		}
		hs.mu.Unlock()
		return
	}
	if h.awaitsProxy && !hs.proxyReportedLocked(h, ended) {
		return
	}
	first, err := h.look(hs.watched.first[:], ended)
	switch {
	case err != nil:
		hs.removeLocked(h)
		hs.mu.Unlock()
		h.finish(err)
	case first == noTLS:
		hs.removeLocked(h)
		hs.mu.Unlock()
		h.refuse(ended)
	case first == whole:
		hs.watched.removeLocked(h)
		h.endWatch()
		hs.lineUpLocked(h)
		hs.mu.Unlock()
	default:
		hs.mu.Unlock()
	}
}

// proxyReportedLocked deals with a handshake whose PROXY header has not been read. It returns true
// if the client may have begun with TLS, and otherwise unlocks mu.
func (hs *handshakes) proxyReportedLocked(h *handshake, ended bool) bool {
	whole, err := h.takeProxyHeader(h.by.header)
	if err == nil && !whole && ended {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case err != nil:
		hs.removeLocked(h)
		hs.mu.Unlock()
		h.finish(err)
	case !whole:
		hs.mu.Unlock()
	case h.by.tls != nil:
		hs.locateLocked(h)
		return true
	default:
		hs.removeLocked(h)
		hs.running.Add(1) // stop waits until a loop has it
		hs.mu.Unlock()
		h.endWatch()
		h.arrive(h.fd, nil)
		hs.running.Done()
	}
	return false
}

// first is what a client has sent of its first record.
type first uint8

const (
	partial first = iota
	whole         // or as much as crypto/tls needs to find fault with it, or as comes before somebody reads
	noTLS         // it has sent something else
)

// look tells what a silent client has sent, and leaves that where it is. Its error is that of
// a connection that has ended without anything.
func (h *handshake) look(p []byte, ended bool) (first, error) {
	n, err := receive(h.fd, p, unix.MSG_PEEK)
	switch {
	case err == unix.EAGAIN:
		return partial, nil
	case err != nil:
		return partial, os.NewSyscallError("read", err)
	case n == 0:
		return partial, io.EOF
	}
	if isNoTLS(p[:n]) {
		return noTLS, nil
	}
	want := firstRecord(p[:n])
	if n == len(p) && n < want {
		n, _ = unix.IoctlGetInt(h.fd, unix.TIOCINQ) // which is 0 when it fails
	}
	if n >= want || want == h.watch.bytes || ended {
		return whole, nil
	}
	h.awaitBytes(want)
	return partial, nil
}

// What crypto/tls goes by in the first record, RFC 8446, section 5.1.
const (
	recordHeader    = 5
	alertRecord     = 21
	handshakeRecord = 22
	oldHello        = 0x80 // the first byte of SSL 2.0
	maxRecord       = recordHeader + 1<<14
)

// isNoTLS tells whether b is the beginning of what crypto/tls does not answer, as it does not
// take it for a record.
func isNoTLS(b []byte) bool {
	if len(b) < recordHeader || b[0] == oldHello {
		return false
	}
	return b[0] != alertRecord && b[0] != handshakeRecord || b[1] >= 0x10
}

// firstRecord is how many bytes crypto/tls waits for if the first record begins with b.
func firstRecord(b []byte) int {
	if len(b) < recordHeader || b[0] != handshakeRecord {
		return recordHeader
	}
	n := recordHeader + int(b[3])<<8 + int(b[4])
	if n > maxRecord {
		return recordHeader
	}
	return min(n, maxBareInput)
}

// errNoTLS is what crypto/tls says of a client that does not speak TLS.
var errNoTLS = tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}

// refuse tells a client that it does not speak TLS, as explain does, but without a goroutine.
// h is in no list, and does not count as pending until it is told.
func (h *handshake) refuse(ended bool) {
	hs := &h.by.server.handshakes
	h.end(errNoTLS)
	h.awaitBytes(1)
	h.left = alertInput
	_, _ = unix.Write(h.fd, noTLSAlert) // a new connection has room for it
	_ = unix.Shutdown(h.fd, unix.SHUT_WR)
	ended = h.drain(ended)
	hs.mu.Lock()
	h.list = &hs.alerted
	if ended || hs.over {
		hs.mu.Unlock()
		h.finish(nil)
		return
	}
	h.expires = time.Now().Add(hs.alert)
	hs.enterLocked(h, &hs.alerted)
	hs.mu.Unlock()
}

// drain throws away what a client has sent that was told. It reports whether the connection is
// to be closed: after the end, or when the client sends too much.
func (h *handshake) drain(inputEnded bool) (ended bool) {
	var p [8 << 10]byte
	n, err := receive(h.fd, p[:], 0)
	if err == unix.EAGAIN {
		return false
	}
	h.left -= n
	switch {
	case err != nil, n == 0, h.left <= 0:
		return true
	case n < len(p) && !inputEnded:
		return false // what comes now is reported
	}
	return h.by.loop.gnet.WatchAgain(h.fd, h.watch.number) != nil
}
