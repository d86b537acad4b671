package accept

import (
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// silentClients are the handshakes for which no goroutine waits, but the poller of their listener's loop: those that
// are silent, or alerted. A client is silent until its first record is there as a whole.
type silentClients struct {
	last     atomic.Int32         // the number that was given last
	byNumber map[int32]*handshake // guarded by handshakes.mu
	first    [2 << 10]byte        // what a silent client has sent; guarded by handshakes.mu
}

// watch is how a poller reports a handshake: by a number of its own. A report may be older than the end of what it is
// about, and the descriptor may be somebody else's then. Whoever has taken the handshake out of silentClients has the
// watch too.
type watch struct {
	on     bool  // the poller has the descriptor
	number int32 // does not change
	bytes  int   // how many have to be there before the poller reports any; 0 if that was not said
}

// beginWatch makes the poller of the listener's loop watch a connection. It reports false where that does not work. It
// is called on the loop's goroutine.
func (h *handshake) beginWatch() bool {
	a := h.by.acceptor
	if a.hooks.unwatched {
		return false
	}
	w := &h.watch
	w.number = a.handshakes.silent.last.Add(1) & math.MaxInt32
	w.on = h.by.loop.Poller().WatchNews(h.fd, w.number) == nil
	return w.on
}

// endWatch undoes beginWatch. The descriptor is open, and is to be closed or handed over: the poller would go on to
// report a copy of it.
func (h *handshake) endWatch() {
	if h.watch.on {
		h.watch.on = false
		_ = h.by.loop.Poller().Unwatch(h.fd)
		h.awaitBytes(1)
	}
}

// awaitBytes makes the poller report nothing before there are n bytes to be read, or no room for more, or the end. A
// Unix socket ignores that.
func (h *handshake) awaitBytes(n int) {
	if n > 1 || h.watch.bytes > 1 {
		h.watch.bytes = n
		_ = unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
	}
}

func (c *silentClients) addLocked(h *handshake) {
	if !h.watch.on {
		return
	}
	if c.byNumber == nil {
		c.byNumber = make(map[int32]*handshake)
	}
	c.byNumber[h.watch.number] = h
}

func (c *silentClients) removeLocked(h *handshake) {
	if h.watch.on {
		delete(c.byNumber, h.watch.number)
	}
}

// reported deals with a watched handshake that the poller of its loop has reported.
func (hs *handshakes) reported(number int32, ended bool) {
	hs.mu.Lock()
	h := hs.silent.byNumber[number]
	if h == nil {
		hs.mu.Unlock()
		return
	}
	// While h is in silentClients and mu is held, nobody closes the descriptor.
	if h.stage == alerted {
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
	first, err := h.look(hs.silent.first[:], ended)
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
		hs.silent.removeLocked(h)
		h.endWatch()
		hs.lineUpLocked(h)
		hs.mu.Unlock()
	default:
		hs.mu.Unlock()
	}
}

// proxyReportedLocked deals with a handshake whose PROXY header has not been read. It returns true if the client may
// have begun with TLS, and otherwise unlocks mu.
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
		h.arrive(Arrival{FD: h.fd})
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

// look returns what a silent client has sent, and leaves that where it is. Its error is that of a connection that has
// ended without anything.
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

// refuse sends an alert to a client that does not speak TLS, as explain does, but without a goroutine. h has no place,
// and does not count as pending until it is sent.
func (h *handshake) refuse(ended bool) {
	hs := &h.by.acceptor.handshakes
	h.end(errNoTLS)
	h.awaitBytes(1)
	h.left = alertInput
	_, _ = unix.Write(h.fd, noTLSAlert) // a new connection has room for it
	_ = unix.Shutdown(h.fd, unix.SHUT_WR)
	ended = h.drain(ended)
	hs.mu.Lock()
	h.stage = alerted
	if ended || hs.over {
		hs.mu.Unlock()
		h.finish(nil)
		return
	}
	h.expires = time.Now().Add(h.by.acceptor.cfg.Alert)
	hs.enterLocked(h, lineAlerted)
	hs.mu.Unlock()
}

// drain throws away what a client has sent after its alert. It reports whether the connection is to be closed: after
// the end, or when the client sends too much.
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
	return h.by.loop.Poller().WatchAgain(h.fd, h.watch.number) != nil
}
