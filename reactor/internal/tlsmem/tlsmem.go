package tlsmem

import (
	"io"
	"net"
	"time"
)

// Memory is a net.Conn in memory. Connections of the same goroutine may share one, as long as In and Sealed
// are empty whenever another connection is dealt with.
type Memory struct {
	unused
	In     []byte // what has come, and was not read yet
	Sealed []byte // what is to be sent: Write appends to it
}

// ErrNoInput says that In is empty. For a temporary error a tls.Conn can be asked again; it looks for a
// net.Error itself, so this is not wrapped.
var ErrNoInput net.Error = noInput{}

type noInput struct{}

func (noInput) Error() string   { return "no input has come yet" }
func (noInput) Timeout() bool   { return false }
func (noInput) Temporary() bool { return true }

// Read implements net.Conn. It returns ErrNoInput when In is empty.
func (m *Memory) Read(p []byte) (int, error) {
	if len(m.In) == 0 {
		return 0, ErrNoInput
	}
	n := copy(p, m.In)
	m.In = m.In[n:]
	return n, nil
}

// Write implements net.Conn.
func (m *Memory) Write(p []byte) (int, error) {
	m.Sealed = append(m.Sealed, p...)
	return len(p), nil
}

// Wire is a net.Conn whose ends can be exchanged while nobody reads or writes.
type Wire struct {
	unused
	io.ReadWriter
}

// unused is the rest of net.Conn. Of it crypto/tls calls SetWriteDeadline only, which neither memory nor a
// handshake needs.
type unused struct{}

func (unused) Close() error                     { return nil }
func (unused) LocalAddr() net.Addr              { return nil }
func (unused) RemoteAddr() net.Addr             { return nil }
func (unused) SetDeadline(time.Time) error      { return nil }
func (unused) SetReadDeadline(time.Time) error  { return nil }
func (unused) SetWriteDeadline(time.Time) error { return nil }
