package reactor

import (
	"context"
	"crypto/tls"
	"net"

	"trellis/reactor/internal/accept"
)

// Proxied is a listener for proxies that say in a header of the PROXY protocol, version 1 or 2, whose connection they
// pass on. Serve and ServeTLS expect the header of each connection, before TLS, and take what it says for the client's
// address. Over TCP they accept connections of Config.ProxyFrom only.
type Proxied = accept.Proxied

// AcceptStats is what has become of connections until a loop had them.
type AcceptStats = accept.Stats

// ListenerStats is what has come from one listener.
type ListenerStats = accept.ListenerStats

// HandshakeStats is what has become of TLS handshakes, and of connections whose PROXY header has not come.
type HandshakeStats = accept.HandshakeStats

// HandshakeResult is how a TLS handshake has ended.
type HandshakeResult = accept.HandshakeResult

// Results of handshakes: all are below NumHandshakeResults.
const (
	HandshakeOK         = accept.HandshakeOK
	HandshakeTimeout    = accept.HandshakeTimeout
	NumHandshakeResults = accept.NumHandshakeResults
)

// Serve accepts connections on l, which must be a TCP or Unix stream listener that
// the system knows by a descriptor, or a [Proxied] one, until Shutdown or Unserve, and then closes l and
// returns nil. l belongs to the server: its socket may go on under another descriptor, and
// nobody else may accept on l or close it. Serve may be called for
// several listeners at once. When descriptors or memory run out it waits for
// better times; any other failure to accept ends it with an error.
//
// Connections have TCP_NODELAY and SO_KEEPALIVE set. Keep-alive's timings are Config.KeepAlive's, or
// those of l's socket; what [net.ListenConfig] says of them is not followed.
func (s *Server) Serve(l net.Listener) error { return s.acceptor.Serve(l, nil) }

// ServeTLS is Serve for clients that speak TLS. A connection is given to a loop after
// the handshake, for which it has 10 s. config must have a certificate or a
// GetConfigForClient, and is not to be changed any more; its ClientAuth has to say
// whether clients are asked for certificates, whatever GetConfigForClient returns.
// It should set DynamicRecordSizingDisabled. An error of its VerifyConnection counts
// as one of the client's certificate if it is a [tls.CertificateVerificationError].
func (s *Server) ServeTLS(l net.Listener, config *tls.Config) error {
	return s.acceptor.Serve(l, config)
}

// Unserve ends all calls of Serve and ServeTLS that are under way: clients cannot connect any more. Those who are
// connected stay, and other listeners may follow. It does not wait.
func (s *Server) Unserve() { s.acceptor.Unserve() }

// Handshakes returns what has become of TLS handshakes. Any goroutine may call it.
func (s *Server) Handshakes() *HandshakeStats { return s.acceptor.Handshakes() }

// Connect makes a connection to the server from inside its process, and returns the
// client's end of it. A loop serves it as any other client, with the same commands and
// the same turns, but Config.Access is not asked, the client may do everything, it takes
// no slot of Config.MaxConnections, and Config.IdleTimeout does not end it. The address
// of the peer is "console". After an error for want of a descriptor it can be tried again.
//
// Connect works whether or not [Server.Serve] was called. After Shutdown has begun it
// returns [ErrClosed]. If ctx ends first, its error is returned. Any goroutine may call it.
func (s *Server) Connect(ctx context.Context) (net.Conn, error) { return s.acceptor.Connect(ctx) }
