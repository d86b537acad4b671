package load

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// secure is TLS on a connection of the load. After the handshake, the tls.Conn reads from memory and writes to it.
type secure struct {
	net.Conn // nil: the tls.Conn has no use for what is not defined here
	conn     *tls.Conn
	in       []byte // what was read, and not decrypted yet
	out      []byte // what was encrypted, and not written yet

	// During the handshake only: the socket, and when to give up.
	fd       int32
	deadline time.Time
}

// handshake blocks until the handshake has ended: a worker has one under way at a time, and its other connections wait.
func handshake(fd int32, config *tls.Config, timeout time.Duration) (*secure, error) {
	s := &secure{fd: fd, deadline: time.Now().Add(timeout)}
	s.conn = tls.Client(s, config)
	if err := s.conn.Handshake(); err != nil {
		return nil, err
	}
	s.deadline = time.Time{}
	return s, nil
}

func (s *secure) shaking() bool { return !s.deadline.IsZero() }

// noInput tells the tls.Conn to ask again when there is more, which it does only for a temporary net.Error.
type noInput struct{}

func (noInput) Error() string   { return "no input has come yet" }
func (noInput) Timeout() bool   { return false }
func (noInput) Temporary() bool { return true }

var errNoInput net.Error = noInput{}

// decrypt appends the plain text that p completes to dst.
func (s *secure) decrypt(p, dst []byte) ([]byte, error) {
	s.in = p
	for {
		if cap(dst)-len(dst) < 16<<10 {
			dst = append(make([]byte, 0, 2*cap(dst)+64<<10), dst...)
		}
		n, err := s.conn.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case errors.Is(err, errNoInput):
			return dst, nil
		case errors.Is(err, io.EOF) && len(dst) > 0:
			return dst, nil // the next read tells of the end too
		case err != nil:
			return dst, err
		}
	}
}

// encrypt returns p as it is to be written. It is valid until the next call.
func (s *secure) encrypt(p []byte) []byte {
	_, _ = s.conn.Write(p) // after an error the server sends no more either
	out := s.out
	s.out = out[:0]
	return out
}

// Read implements net.Conn.
func (s *secure) Read(p []byte) (int, error) {
	if !s.shaking() {
		if len(s.in) == 0 {
			return 0, errNoInput
		}
		n := copy(p, s.in)
		s.in = s.in[n:]
		return n, nil
	}
	for {
		switch n, e := sysRead(s.fd, p); {
		case e == unix.EAGAIN:
			if err := s.await(unix.POLLIN); err != nil {
				return 0, err
			}
		case e == unix.EINTR:
		case e != 0:
			return 0, e
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements net.Conn.
func (s *secure) Write(p []byte) (n int, err error) {
	if !s.shaking() {
		s.out = append(s.out, p...)
		return len(p), nil
	}
	for n < len(p) {
		m, e := sysWrite(s.fd, p[n:])
		switch e {
		case 0:
			n += m
		case unix.EINTR:
		case unix.EAGAIN:
			if err := s.await(unix.POLLOUT); err != nil {
				return n, err
			}
		default:
			return n, e
		}
	}
	return n, nil
}

func (s *secure) await(events int16) error {
	for {
		left := time.Until(s.deadline)
		if left <= 0 {
			return errors.New("the server does not answer")
		}
		fds := []unix.PollFd{{Fd: s.fd, Events: events}}
		switch n, err := unix.Poll(fds, int(left.Milliseconds())+1); {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return err
		}
	}
}
