package reactor

import (
	"unique"
	"unsafe"

	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/stream"
)

// tlsConn is the connection of a client that speaks TLS, after the handshake. It
// belongs to its loop's goroutine.
type tlsConn struct {
	conn // the first field: see conn.tlsConn
	tls  stream.TLS
	// The client's certificate and those behind it, in DER, one after the other; the zero Handle if
	// it has none. Connections with the same share them.
	certificates unique.Handle[string]
}

// What a handshake has left has to have room.
const _ = uint(stream.MaxHandshakeInput - accept.MaxInput)

// newTLS makes a connection whose handshake is done one of a loop.
func newTLS(n accept.Arrival) *tlsConn {
	t := &tlsConn{certificates: n.Certificates}
	t.tls.Init(n.TLS, n.Wire)
	return t
}

// tlsConn is the connection that c is a part of, nil without TLS.
func (c *conn) tlsConn() *tlsConn {
	if c.Kind() != stream.OnTLS {
		return nil
	}
	// A tlsConn begins with its conn. A pointer in each conn would be 8 bytes more for
	// clients that do not need it.
	return (*tlsConn)(unsafe.Pointer(c))
}

// forgetCertificates frees what crypto/tls keeps of the client's certificates: it is known who the client is, or
// nobody wants to know.
func (c *conn) forgetCertificates() {
	if t := c.tlsConn(); t != nil {
		t.tls.ForgetCertificates()
	}
}

// TLS implements stream.Owner.
func (l *loop) TLS(s *stream.Stream) *stream.TLS { return &connOfStream(s).tlsConn().tls }
