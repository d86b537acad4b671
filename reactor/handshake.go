package reactor

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine/histogram"
)

const (
	// handshakeTime is how long a handshake may take.
	handshakeTime = 10 * time.Second

	// maxHandshakeInput is how many bytes a client may send in a handshake if it is
	// asked for a certificate, and maxBareInput if it is not.
	maxHandshakeInput = 64 << 10
	maxBareInput      = 16 << 10

	// alertTime is how long a client whose handshake has failed has to read why, and
	// alertInput how much more it may send until then.
	alertTime  = time.Second
	alertInput = 1 << 20

	// maxHandshakes is how many handshakes may be under way. Where few connections
	// are allowed, it is a quarter of them.
	maxHandshakes = 1000
)

// HandshakeResult is how a TLS handshake has ended.
type HandshakeResult uint8

// The results of handshakes.
const (
	HandshakeOK          HandshakeResult = iota
	HandshakeCertificate                 // the client's certificate is missing or not accepted
	HandshakeProtocol                    // what the client sent is no TLS, or no version or suite that is accepted
	HandshakeRefused                     // the client has sent an alert; most likely it does not trust the server's certificate
	HandshakeClosed                      // the client has closed the connection
	HandshakeTimeout                     // it took too long
	HandshakeCrowded                     // given up to make room for others
	HandshakeStopped                     // the server was shut down, or has failed
	NumHandshakeResults
)

var handshakeResults = [...]string{"ok", "certificate", "protocol", "refused", "closed", "timeout", "crowded", "stopped"}

func (r HandshakeResult) String() string { return handshakeResults[r] }

// HandshakeStats is what has become of TLS handshakes.
type HandshakeStats struct {
	Pending int // under way now
	// Took is how long handshakes took, by their result. What a client does before
	// its first byte counts.
	Took [NumHandshakeResults]histogram.Histogram
}

// handshakes are those of all listeners. Each has a goroutine of its own until it has
// ended, so that nobody else waits for its client; most of that time the goroutine
// waits too. To compute it needs one of the tokens, which are half as many as there
// are processors, so that a flood of handshakes leaves the other half to the event
// loops.
type handshakes struct {
	tokens  chan struct{}
	most    int
	running sync.WaitGroup

	mu      sync.Mutex
	pending list.List      // of *handshake, the oldest first; guarded by mu
	ended   HandshakeStats // guarded by mu, without Pending
	logs    [NumHandshakeResults]throttle
}

func (hs *handshakes) init(maxConnections int) {
	hs.tokens = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	hs.most = min(maxHandshakes, max(1, maxConnections/4))
}

// Handshakes tells what has become of TLS handshakes. Any goroutine may call it.
func (s *Server) Handshakes() *HandshakeStats {
	hs := &s.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	st := hs.ended
	st.Pending = hs.pending.Len()
	return &st
}

// handshake is one that is under way. Unless marked otherwise, its fields belong to
// its goroutine.
type handshake struct {
	by      *acceptor
	fd      int
	began   time.Time
	place   *list.Element // in handshakes.pending; nil when it was given up; guarded by handshakes.mu
	socket  *os.File      // fd; nil before the goroutine runs; guarded by handshakes.mu
	awaits  bool          // it waits for the client; guarded by handshakes.mu
	left    int           // bytes that may still be read
	padding int           // bytes that were made up since
}

// errTooLong ends the handshake of a client that has sent too much.
var errTooLong = errors.New("the handshake is too long")

// begin begins the handshake of a connection that has a place. It reports false if
// there are too many already. Then the connection is the caller's.
//
// When there are as many as may be, the oldest that waits for its client is given up.
// To refuse the newest instead would let a few silent clients lock out all others. But
// a handshake that waits for a processor is not given up: when there are only such,
// the newest is refused, and clients that come in a crowd are served one after the
// other.
func (hs *handshakes) begin(a *acceptor, fd int) bool {
	h := &handshake{by: a, fd: fd, began: time.Now(), left: maxBareInput}
	if a.tls.ClientAuth != tls.NoClientCert {
		h.left = maxHandshakeInput
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.pending.Len() >= hs.most && !hs.giveUpOldestLocked() {
		return false
	}
	h.place = hs.pending.PushBack(h)
	hs.running.Go(h.run)
	return true
}

// giveUpOldest gives up the handshake that began first of those that wait for their
// clients. It reports false if there is none.
func (hs *handshakes) giveUpOldest() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.giveUpOldestLocked()
}

func (hs *handshakes) giveUpOldestLocked() bool {
	for e := hs.pending.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*handshake); h.awaits {
			hs.giveUpLocked(h)
			return true
		}
	}
	return false
}

// giveUpLocked makes reading and writing fail from now on.
func (hs *handshakes) giveUpLocked(h *handshake) {
	h.leaveLocked()
	if h.socket != nil {
		_ = h.socket.SetDeadline(time.Unix(1, 0))
	}
}

// stop gives up all handshakes, and waits until their goroutines have ended. No more
// may begin.
func (hs *handshakes) stop() {
	hs.mu.Lock()
	for e := hs.pending.Front(); e != nil; e = hs.pending.Front() {
		hs.giveUpLocked(e.Value.(*handshake))
	}
	hs.mu.Unlock()
	hs.running.Wait()
}

// run is the handshake's goroutine.
func (h *handshake) run() {
	s := h.by.server
	t := new(tlsConn)
	t.transport.handshake = h
	t.tls = tls.Server(&t.transport, h.by.tls)
	err := h.open()
	if err == nil {
		err = h.shake(t)
	}
	fd := -1
	if err == nil {
		fd, err = h.release()
	}
	result := h.end(err)
	if err != nil {
		h.explain(result)
		_ = h.socket.Close()
		s.open.Add(-1)
		s.descriptorFreed()
		return
	}
	t.transport.handshake = nil
	h.by.leastLoop().arrive(arrival{fd: fd, by: h.by, tls: t})
}

// open makes the descriptor a file, for which a goroutine can wait.
func (h *handshake) open() error {
	hs := &h.by.server.handshakes
	socket := os.NewFile(uintptr(h.fd), "")
	err := socket.SetDeadline(h.began.Add(handshakeTime))
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.socket = socket
	if h.place == nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// shake is the handshake proper.
func (h *handshake) shake(t *tlsConn) (err error) {
	hs := &h.by.server.handshakes
	hs.tokens <- struct{}{}
	defer func() {
		<-hs.tokens
		if r := recover(); r != nil {
			h.by.server.log.Error("a TLS handshake has panicked; its connection is closed", "panic", r, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return t.tls.Handshake()
}

// read reads for the tls.Conn.
func (h *handshake) read(p []byte) (n int, err error) {
	if h.left == 0 {
		// If reading failed, crypto/tls would not tell the client why. But it does
		// object to what cannot be a record.
		if h.padding >= maxHandshakeInput {
			return 0, errTooLong
		}
		h.padding += len(p)
		clear(p)
		return len(p), nil
	}
	h.idle(func() { n, err = h.socket.Read(p[:min(len(p), h.left)]) })
	h.left -= n
	return n, err
}

// write writes for the tls.Conn.
func (h *handshake) write(p []byte) (n int, err error) {
	h.idle(func() { n, err = h.socket.Write(p) })
	return n, err
}

// idle runs f, which waits for the client, while others compute.
func (h *handshake) idle(f func()) {
	hs := &h.by.server.handshakes
	<-hs.tokens
	h.await(true)
	f()
	h.await(false)
	hs.tokens <- struct{}{}
}

func (h *handshake) await(awaits bool) {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	h.awaits = awaits
	hs.mu.Unlock()
}

// release takes the connection out of Go's poller, and returns the descriptor that it
// has now.
func (h *handshake) release() (fd int, err error) {
	raw, err := h.socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	closed := raw.Control(func(old uintptr) { fd, err = h.by.server.spare.duplicate(int(old)) })
	if closed != nil {
		return -1, closed
	}
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	acknowledge(fd)
	_ = h.socket.Close()
	return fd, nil
}

// end notes how the handshake has ended.
func (h *handshake) end(err error) HandshakeResult {
	hs := &h.by.server.handshakes
	took := time.Since(h.began)
	hs.mu.Lock()
	result := h.result(err)
	hs.ended.Took[result].Observe(took, 1)
	if err == nil {
		h.leaveLocked()
	}
	hs.mu.Unlock()
	if err != nil {
		h.log(result, err)
	}
	return result
}

// leaveLocked makes room for another handshake.
func (h *handshake) leaveLocked() {
	if h.place != nil {
		h.by.server.handshakes.pending.Remove(h.place)
		h.place = nil
	}
}

// result tells what err is. handshakes.mu is held.
func (h *handshake) result(err error) HandshakeResult {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case err == nil:
		return HandshakeOK
	case h.place == nil:
		select {
		case <-h.by.server.done:
			return HandshakeStopped
		default:
			return HandshakeCrowded
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return HandshakeTimeout
	case errors.As(err, &unverified), strings.HasSuffix(err.Error(), noCertificate):
		return HandshakeCertificate
	case errors.As(err, &op) && op.Op == "remote error":
		return HandshakeRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return HandshakeClosed
	case errors.As(err, new(*os.SyscallError)), errors.As(err, new(*os.PathError)), errors.Is(err, errPanicked):
		return HandshakeStopped
	}
	return HandshakeProtocol
}

// noCertificate is how crypto/tls says that a client has none, for which it has no
// type.
const noCertificate = "client didn't provide a certificate"

var errPanicked = errors.New("the handshake has panicked")

// log tells the operator who could not connect, and why.
func (h *handshake) log(result HandshakeResult, err error) {
	s := h.by.server
	level := slog.LevelInfo
	switch result {
	case HandshakeStopped:
		level = slog.LevelDebug
	case HandshakeCertificate, HandshakeCrowded:
		level = slog.LevelWarn
	}
	if n, ok := s.handshakes.logs[result].allow(); ok {
		s.log.Log(context.Background(), level, "a TLS handshake has failed", "result", result.String(), "error", err,
			"peer", peerName(h.socket), "listener", h.by.listener.Addr(), "unreported", n)
	}
}

// peerName is the address at the other end of a socket, as far as it can be told.
func peerName(socket *os.File) (name string) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return ""
	}
	_ = raw.Control(func(fd uintptr) {
		switch a, _ := unix.Getpeername(int(fd)); a := a.(type) {
		case *unix.SockaddrInet4:
			name = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
		case *unix.SockaddrInet6:
			name = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)).String()
		case *unix.SockaddrUnix:
			name = "unix"
		}
	})
	return name
}

// explain leaves a client whose handshake has failed the time to read the alert. To
// close at once, with something unread, would destroy it. The handshake stays among
// those that may be given up.
func (h *handshake) explain(result HandshakeResult) {
	hs := &h.by.server.handshakes
	if result == HandshakeCertificate || result == HandshakeProtocol {
		raw, err := h.socket.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		}
		hs.mu.Lock()
		if h.place != nil && err == nil {
			h.awaits = true
			err = h.socket.SetDeadline(time.Now().Add(alertTime))
		}
		hs.mu.Unlock()
		if err == nil {
			_, _ = io.CopyN(io.Discard, h.socket, alertInput)
		}
	}
	hs.mu.Lock()
	h.leaveLocked()
	hs.mu.Unlock()
}
