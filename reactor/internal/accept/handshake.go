package accept

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unique"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/tlsmem"
)

const (
	// handshakeTime is how long a handshake may take.
	handshakeTime = 10 * time.Second

	// MaxInput is how many bytes a client may send in a handshake if it is asked for a certificate, and
	// maxBareInput if it is not.
	MaxInput     = 64 << 10
	maxBareInput = 16 << 10

	// alertTime is how long a client whose handshake has failed has to read why, and alertInput how much more it
	// may send until then.
	alertTime  = time.Second
	alertInput = 1 << 20
)

// stage is how far a handshake has come. It moves only along these arrows, and has its place in the crowd until it is
// given up or has ended:
//
//	silent ---> queued ---> computing ---> awaiting
//	   |                        ^              |
//	   v                        +-- resuming <-+
//	alerted
type stage uint8

const (
	silent    stage = iota // the poller waits for the client's first record, or its PROXY header
	queued                 // it waits in line for its first token
	alerted                // its client got an alert, as it does not speak TLS, and has time to read that
	computing              // its goroutine has a token
	awaiting               // its goroutine waits for the client
	resuming               // its goroutine waits for a token
)

// begun reports whether the handshake has a goroutine.
func (s stage) begun() bool { return s >= computing }

// handshake is one that is under way. Unless marked otherwise, its fields belong to its goroutine.
type handshake struct {
	by          *listener
	fd          int
	accepted    time.Time
	source      Source             // where the client is, as far as is known; guarded by handshakes.mu
	client      Endpoint           // as a PROXY header says; set before the goroutine runs, or by it
	awaitsProxy bool               // the PROXY header has not been read yet; likewise
	stage       stage              // guarded by handshakes.mu
	place       *Place[*handshake] // guarded by handshakes.mu
	inLine      *list.Element      // in handshakes.line, while it is queued; guarded by handshakes.mu
	expires     time.Time          // for one without a goroutine; guarded by handshakes.mu
	watch       watch              // how the poller reports it
	turn        chan struct{}      // reports that it has got a token, or was given up
	socket      *os.File           // fd; nil before the goroutine runs; guarded by handshakes.mu
	raw         syscall.RawConn    // of socket
	left        int                // bytes that may still be read
	padding     int                // zeros that crypto/tls was given since left is 0
}

// errTooLong ends the handshake of a client that has sent too much.
var errTooLong = errors.New("the handshake is too long")

// errGivenUp ends a handshake that was given up, and errNotBegun one that got no token in time.
var (
	errGivenUp  = errors.New("the handshake was given up")
	errNotBegun = errors.New("the handshake could not begin in time, because of others")
)

// run is the handshake's goroutine.
func (h *handshake) run() {
	a := h.by.acceptor
	defer h.give()
	err := h.open()
	if err == nil && h.awaitsProxy {
		err = h.readProxyHeader()
	}
	n := Arrival{FD: -1}
	if err == nil && h.by.tls != nil {
		n.Wire = &tlsmem.Wire{ReadWriter: h}
		n.TLS = tls.Server(n.Wire, h.by.tls)
		err = h.shake(n.TLS)
	}
	if err == nil {
		n.FD, err = h.release()
	}
	result := h.end(err)
	if err != nil {
		h.explain(result, err)
		_ = h.socket.Close()
		a.taken.Add(-1)
		a.Freed()
		return
	}
	if n.TLS != nil {
		n.Certificates = certificatesOf(n.TLS)
	}
	h.arrive(n)
}

// arrive gives a connection to a loop.
func (h *handshake) arrive(n Arrival) {
	n.Listener, n.by = h.by.id, h.by
	if h.by.proxied {
		n.Client = &h.client
	}
	h.by.loop.Least().Post(n)
}

// certificatesOf is what is needed to verify the client's certificate again. The copies in crypto/tls take several
// times as much.
func certificatesOf(c *tls.Conn) (der unique.Handle[string]) {
	certificates := c.ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return der
	}
	var b strings.Builder
	for _, c := range certificates {
		b.Write(c.Raw)
	}
	return unique.Make(b.String())
}

// open makes the descriptor a file, for which a goroutine can wait.
func (h *handshake) open() error {
	a := h.by.acceptor
	h.turn = make(chan struct{}, 1)
	h.left = maxBareInput
	if config := h.by.tls; config != nil && config.ClientAuth != tls.NoClientCert {
		h.left = MaxInput
	}
	socket := os.NewFile(uintptr(h.fd), "socket")
	raw, err := socket.SyscallConn()
	if err == nil {
		err = socket.SetDeadline(h.accepted.Add(a.cfg.Handshake))
	}
	a.handshakes.mu.Lock()
	defer a.handshakes.mu.Unlock()
	h.socket, h.raw = socket, raw
	if !h.place.taken() {
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
		h.by.acceptor.handshakes.locate(h)
	}
	return err
}

// shake is the handshake proper.
func (h *handshake) shake(c *tls.Conn) (err error) {
	defer func() {
		if r := recover(); r != nil {
			h.by.acceptor.log.Error("a TLS handshake has panicked; its connection is closed",
				"panic", r, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return c.Handshake()
}

// Read reads for the tls.Conn.
func (h *handshake) Read(p []byte) (n int, err error) {
	if h.left == 0 {
		// If reading failed, crypto/tls would not tell the client why. But it does object to what cannot be a
		// record.
		if h.padding >= MaxInput {
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

// Write writes for the tls.Conn.
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

// whenReady makes of a system call one for a [syscall.RawConn], which waits until the socket is ready while it returns
// false. The token is given back before.
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

// release takes the connection out of Go's poller, and returns the descriptor that it has now.
func (h *handshake) release() (fd int, err error) {
	closed := h.raw.Control(func(old uintptr) { fd, err = h.by.acceptor.Duplicate(int(old)) })
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

// explain leaves a client whose handshake has failed the time to read the alert. To close at once, with something
// unread, would destroy it. The handshake stays among those that may be given up.
func (h *handshake) explain(result HandshakeResult, why error) {
	hs := &h.by.acceptor.handshakes
	var noTLS tls.RecordHeaderError
	if errors.As(why, &noTLS) && noTLS.Conn != nil {
		_, _ = h.socket.Write(noTLSAlert) // crypto/tls has not sent any
	}
	if result == HandshakeCertificate || result == HandshakeProtocol {
		err := h.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		hs.mu.Lock()
		if h.place.taken() && err == nil {
			err = h.socket.SetDeadline(time.Now().Add(h.by.acceptor.cfg.Alert))
		}
		hs.mu.Unlock()
		if err == nil {
			h.give()
			_, _ = io.CopyN(io.Discard, h.socket, alertInput)
		}
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.removeLocked(h)
}
