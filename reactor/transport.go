package reactor

import (
	"net"
	"time"
)

// transport is what a tls.Conn reads from and writes to: the socket during the
// handshake, and afterwards the memory of the connection's loop.
type transport struct {
	handshake *handshake // which has the socket; nil afterwards

	in  []byte      // what the loop has read, and the tls.Conn has not
	out *tlsBuffers // sealed is appended to
}

// errNoInput tells a tls.Conn that there is no input now. For a temporary error it
// can be asked again; it looks for a net.Error itself, so this must not be wrapped.
var errNoInput net.Error = noInput{}

type noInput struct{}

func (noInput) Error() string   { return "no input has come yet" }
func (noInput) Timeout() bool   { return false }
func (noInput) Temporary() bool { return true }

// Read implements net.Conn.
func (t *transport) Read(p []byte) (int, error) {
	if t.handshake != nil {
		return t.handshake.read(p)
	}
	if len(t.in) == 0 {
		return 0, errNoInput
	}
	n := copy(p, t.in)
	t.in = t.in[n:]
	return n, nil
}

// Write implements net.Conn.
func (t *transport) Write(p []byte) (int, error) {
	if t.handshake != nil {
		return t.handshake.write(p)
	}
	t.out.sealed = append(t.out.sealed, p...)
	return len(p), nil
}

// The rest of net.Conn, of which crypto/tls calls SetWriteDeadline only: neither
// memory nor a handshake, which has one deadline, needs it.

func (t *transport) Close() error                     { return nil }
func (t *transport) LocalAddr() net.Addr              { return nil }
func (t *transport) RemoteAddr() net.Addr             { return nil }
func (t *transport) SetDeadline(time.Time) error      { return nil }
func (t *transport) SetReadDeadline(time.Time) error  { return nil }
func (t *transport) SetWriteDeadline(time.Time) error { return nil }
