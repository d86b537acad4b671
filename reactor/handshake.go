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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine/histogram"
	"trellis/reactor/throttle"
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

	// crowd is how many handshakes leave so much garbage that it is worth collecting,
	// and crowdRest how long after the last of them. Clients that are idle afterwards
	// give the runtime no cause to do so by itself.
	crowd     = 250
	crowdRest = time.Second
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
//
// Both rules for a crowd prefer the newest: the token goes to whoever began to wait for
// it last, and the oldest handshake is given up when there are too many. So a good
// client is done before the flood around it can make it old, however long that lasts.
// Were it first come, first served, a client would wait behind all of the flood, and
// if the newest were refused instead, a few silent clients would lock out all others.
type handshakes struct {
	most    int
	running sync.WaitGroup

	mu      sync.Mutex
	tokens  int            // that nobody has; guarded by mu
	waiting []*handshake   // for a token, the last is the next to get it; guarded by mu
	pending list.List      // of *handshake, the oldest first; guarded by mu
	ended   HandshakeStats // guarded by mu, without Pending
	litter  int            // handshakes whose garbage may be there; guarded by mu
	sweeper *time.Timer    // collects it; nil before the first crowd; guarded by mu
	logs    [NumHandshakeResults]throttle.Throttle
}

func (hs *handshakes) init(maxConnections int) {
	hs.tokens = max(1, runtime.GOMAXPROCS(0)/2)
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
	token   bool          // it has a token; guarded by handshakes.mu
	turn    chan struct{} // tells that it has got a token, or was given up
	left    int           // bytes that may still be read
	padding int           // bytes that were made up since
}

// errTooLong ends the handshake of a client that has sent too much.
var errTooLong = errors.New("the handshake is too long")

// begin begins the handshake of a connection that has a place. When there are as many
// as may be, another is given up.
func (hs *handshakes) begin(a *acceptor, fd int) {
	h := &handshake{by: a, fd: fd, began: time.Now(), left: maxBareInput, turn: make(chan struct{}, 1)}
	if a.tls.ClientAuth != tls.NoClientCert {
		h.left = maxHandshakeInput
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.pending.Len() >= hs.most {
		hs.giveUpOldestLocked()
	}
	h.place = hs.pending.PushBack(h)
	hs.running.Go(h.run)
}

// giveUpOldest gives up the handshake that began first of those that wait for their
// clients, or else for a token, if there is any.
func (hs *handshakes) giveUpOldest() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.giveUpOldestLocked()
}

func (hs *handshakes) giveUpOldestLocked() {
	for e := hs.pending.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*handshake); h.awaits {
			hs.giveUpLocked(h)
			return
		}
	}
	if e := hs.pending.Front(); e != nil {
		hs.giveUpLocked(e.Value.(*handshake))
	}
}

// giveUpLocked makes reading and writing fail from now on.
func (hs *handshakes) giveUpLocked(h *handshake) {
	h.leaveLocked()
	if i := slices.Index(hs.waiting, h); i >= 0 {
		hs.waiting = slices.Delete(hs.waiting, i, i+1)
		h.turn <- struct{}{}
	}
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
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.sweeper != nil {
		hs.sweeper.Stop()
	}
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
		h.explain(result, err)
		_ = h.socket.Close()
		s.open.Add(-1)
		s.descriptorFreed()
		return
	}
	t.transport.handshake = nil
	s.leastLoop(h.by.loop).arrive(arrival{fd: fd, listener: h.by.id, by: h.by, tls: t})
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
	if !h.take() {
		return errGivenUp
	}
	defer func() {
		h.give()
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
	h.give()
	n, err = h.socket.Read(p[:min(len(p), h.left)])
	h.left -= n
	if !h.take() {
		return 0, errGivenUp
	}
	return n, err
}

// write writes for the tls.Conn.
func (h *handshake) write(p []byte) (n int, err error) {
	h.give()
	n, err = h.socket.Write(p)
	if !h.take() {
		return 0, errGivenUp
	}
	return n, err
}

// errGivenUp ends a handshake that was given up.
var errGivenUp = errors.New("the handshake was given up")

// take waits for a token. It reports false if the handshake was given up instead.
func (h *handshake) take() bool {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	h.awaits = false
	if h.place == nil {
		hs.mu.Unlock()
		return false
	}
	if hs.tokens > 0 {
		hs.tokens--
		h.token = true
		hs.mu.Unlock()
		return true
	}
	hs.waiting = append(hs.waiting, h)
	hs.mu.Unlock()
	<-h.turn
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.token
}

// give gives the token, if h has one, to others, before the client is waited for.
func (h *handshake) give() {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.awaits = true
	if !h.token {
		return
	}
	h.token = false
	n := len(hs.waiting)
	if n == 0 {
		hs.tokens++
		return
	}
	next := hs.waiting[n-1]
	hs.waiting[n-1] = nil
	hs.waiting = hs.waiting[:n-1]
	next.token = true
	next.turn <- struct{}{}
}

// release takes the connection out of Go's poller, and returns the descriptor that it
// has now.
func (h *handshake) release() (fd int, err error) {
	raw, err := h.socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	closed := raw.Control(func(old uintptr) { fd, err = h.by.server.extraFD.duplicate(int(old)) })
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
	hs.litterLocked()
	hs.mu.Unlock()
	if err != nil {
		h.log(result, err)
	}
	return result
}

// litterLocked notes that a handshake has left garbage. When there is a lot, and no
// handshakes follow for a while, the memory goes back to the system.
func (hs *handshakes) litterLocked() {
	if hs.litter++; hs.litter < crowd {
		return
	}
	if hs.sweeper == nil {
		hs.sweeper = time.AfterFunc(crowdRest, hs.sweep)
	} else {
		hs.sweeper.Reset(crowdRest)
	}
}

func (hs *handshakes) sweep() {
	hs.mu.Lock()
	hs.litter = 0
	hs.mu.Unlock()
	debug.FreeOSMemory()
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
	if n, ok := s.handshakes.logs[result].Allow(); ok {
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

// noTLSAlert is the alert unexpected_message, RFC 8446, section 6.
var noTLSAlert = []byte{21, 3, 3, 0, 2, 2, 10}

// explain leaves a client whose handshake has failed the time to read the alert. To
// close at once, with something unread, would destroy it. The handshake stays among
// those that may be given up.
func (h *handshake) explain(result HandshakeResult, why error) {
	hs := &h.by.server.handshakes
	var noTLS tls.RecordHeaderError
	if errors.As(why, &noTLS) && noTLS.Conn != nil {
		_, _ = h.socket.Write(noTLSAlert) // crypto/tls has not sent any
	}
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
