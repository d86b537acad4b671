package reactor

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"trellis/reactor/tlstest"
)

// pki is what tests have that need nothing special.
var pki = sync.OnceValue(func() (p struct {
	ca     *tlstest.Authority
	server tls.Certificate
},
) {
	p.ca = tlstest.NewAuthority("tests")
	p.server = p.ca.Issue(tlstest.Name, nil)
	return p
})

// tlsAddr is the address of a listener for TLS.
type tlsAddr struct {
	net.Addr
	client *tls.Config
}

// dial connects and does the handshake.
func (a tlsAddr) dial() (*tls.Conn, error) {
	nc, err := net.Dial(a.Network(), a.String())
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(testTimeout))
	c := tls.Client(nc, a.client)
	if err := c.Handshake(); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

// serverTLS is the configuration of a server that does not know its clients.
func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{pki().server}, DynamicRecordSizingDisabled: true}
}

// listenTLS makes the server serve one more listener, whose clients speak the version
// of TLS that network names.
func (ts *testServer) listenTLS(network string) net.Addr {
	ts.t.Helper()
	version := uint16(tls.VersionTLS13)
	if network == "tls1.2" {
		version = tls.VersionTLS12
	}
	a := ts.serveTLS(serverTLS())
	a.client.MinVersion, a.client.MaxVersion = version, version
	return a
}

// serveTLS makes the server serve one more listener with a configuration.
func (ts *testServer) serveTLS(config *tls.Config) tlsAddr {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.serving.Go(func() {
		if err := ts.ServeTLS(l, config); err != nil && !errors.Is(err, ErrClosed) {
			ts.t.Errorf("ServeTLS: %v", err)
		}
	})
	return tlsAddr{l.Addr(), tlsClient()}
}

// tlsClient is the configuration of a client that trusts the server, and has no certificate.
func tlsClient() *tls.Config {
	return &tls.Config{RootCAs: pki().ca.Pool, ServerName: tlstest.Name, DynamicRecordSizingDisabled: true}
}
