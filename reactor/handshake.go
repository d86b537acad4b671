package reactor

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// handshake is one that is under way. Unless marked otherwise, its fields belong to
// its goroutine.
type handshake struct {
	by          *acceptor
	fd          int
	accepted    time.Time
	source      source          // where the client is, as far as is known; guarded by handshakes.mu
	client      endpoint        // as a PROXY header says; set before the goroutine runs, or by it
	awaitsProxy bool            // the PROXY header has not been read yet; likewise
	expires     time.Time       // guarded by handshakes.mu
	element     *list.Element   // of list; nil when it is in none; guarded by handshakes.mu
	list        *list.List      // fresh, begun or alerted of handshakes; guarded by handshakes.mu
	inLine      *list.Element   // in handshakes.line; nil when it is not there; guarded by handshakes.mu
	watch       watch           // how the poller reports it
	givenUp     bool            // guarded by handshakes.mu
	started     bool            // it has a goroutine; guarded by handshakes.mu
	awaits      bool            // it waits for the client; guarded by handshakes.mu
	token       bool            // it has a token; guarded by handshakes.mu
	turn        chan struct{}   // tells that it has got a token, or was given up
	socket      *os.File        // fd; nil before the goroutine runs; guarded by handshakes.mu
	raw         syscall.RawConn // of socket
	left        int             // bytes that may still be read
	padding     int             // zeros that crypto/tls was given since left is 0
}

// errTooLong ends the handshake of a client that has sent too much.
var errTooLong = errors.New("the handshake is too long")

// errGivenUp ends a handshake that was given up, and errNotBegun one that was not given a
// token in time.
var (
	errGivenUp  = errors.New("the handshake was given up")
	errNotBegun = errors.New("the handshake could not begin in time, because of others")
)

// run is the handshake's goroutine.
func (h *handshake) run() {
	s := h.by.server
	defer h.give()
	var t *tlsConn
	if h.by.tls != nil {
		t = new(tlsConn)
		t.wire.ReadWriter = h
		t.tls = tls.Server(&t.wire, h.by.tls)
	}
	err := h.open()
	if err == nil && h.awaitsProxy {
		err = h.readProxyHeader()
	}
	if err == nil && h.by.tls != nil {
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
	if t != nil {
		t.wire.ReadWriter = nil
		t.keepCertificates()
	}
	h.arrive(fd, t)
}

// arrive gives a connection to a loop. t is nil for one that does not speak TLS.
func (h *handshake) arrive(fd int, t *tlsConn) {
	n := arrival{fd: fd, listener: h.by.id, by: h.by, tls: t}
	if h.by.proxied {
		n.client = &h.client
	}
	h.by.server.leastLoop(h.by.loop).arrive(n)
}

// open makes the descriptor a file, for which a goroutine can wait.
func (h *handshake) open() error {
	hs := &h.by.server.handshakes
	h.turn = make(chan struct{}, 1)
	h.left = maxBareInput
	if config := h.by.tls; config != nil && config.ClientAuth != tls.NoClientCert {
		h.left = maxHandshakeInput
	}
	socket := os.NewFile(uintptr(h.fd), "socket")
	raw, err := socket.SyscallConn()
	if err == nil {
		err = socket.SetDeadline(h.accepted.Add(hs.timeout))
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.socket, h.raw = socket, raw
	if h.element == nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// readProxyHeader waits for the PROXY header.
func (h *handshake) readProxyHeader() (err error) {
	p := make([]byte, maxProxyHeader)
	waited := h.raw.Read(h.whenReady(func(int) error {
		var whole bool
		if whole, err = h.takeProxyHeader(p); !whole && err == nil {
			return unix.EAGAIN
		}
		return nil
	}))
	switch {
	case !h.take():
		return errGivenUp
	case waited != nil:
		return waited
	case err == nil:
		h.by.server.handshakes.locate(h)
	}
	return err
}

// shake is the handshake proper.
func (h *handshake) shake(t *tlsConn) (err error) {
	defer func() {
		if r := recover(); r != nil {
			h.by.server.log.Error("a TLS handshake has panicked; its connection is closed", "panic", r, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return t.tls.Handshake()
}

// Read implements io.Reader for the tls.Conn.
func (h *handshake) Read(p []byte) (n int, err error) {
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
	p = p[:min(len(p), h.left)]
	waited := h.raw.Read(h.whenReady(func(fd int) error {
		n, err = unix.Read(fd, p)
		return err
	}))
	if !h.take() {
		return 0, errGivenUp
	}
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	h.left -= n
	return n, nil
}

// Write implements io.Writer for the tls.Conn.
func (h *handshake) Write(p []byte) (n int, err error) {
	waited := h.raw.Write(h.whenReady(func(fd int) error {
		for n < len(p) {
			var m int
			if m, err = unix.Write(fd, p[n:]); err != nil {
				return err
			}
			n += m
		}
		return nil
	}))
	if !h.take() {
		return 0, errGivenUp
	}
	if waited != nil {
		return n, waited
	}
	return n, os.NewSyscallError("write", err)
}

// whenReady makes of a system call one for a [syscall.RawConn], which waits until the socket
// is ready while it returns false. The token is given back before.
func (h *handshake) whenReady(call func(fd int) error) func(fd uintptr) bool {
	return func(fd uintptr) bool {
		for {
			switch call(int(fd)) {
			case unix.EINTR:
			case unix.EAGAIN:
				h.give()
				return false
			default:
				return true
			}
		}
	}
}

// release takes the connection out of Go's poller, and returns the descriptor that it
// has now.
func (h *handshake) release() (fd int, err error) {
	closed := h.raw.Control(func(old uintptr) { fd, err = h.by.server.extraFD.duplicate(int(old)) })
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
		err := h.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		hs.mu.Lock()
		if h.element != nil && err == nil {
			err = h.socket.SetDeadline(time.Now().Add(hs.alert))
		}
		hs.mu.Unlock()
		if err == nil {
			h.give()
			_, _ = io.CopyN(io.Discard, h.socket, alertInput)
		}
	}
	hs.mu.Lock()
	hs.removeLocked(h)
	hs.mu.Unlock()
}
