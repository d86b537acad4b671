package reactor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool // of cert alone
}

// newAuthority panics if the system has no random numbers.
func newAuthority(name string) *authority {
	a := &authority{pool: x509.NewCertPool()}
	c := issue(nil, name, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate, which signs itself if a is nil. change may be nil.
func issue(a *authority, name string, change func(*x509.Certificate)) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(c)
	}
	parent, signer := c, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// pki is what tests have that need nothing special.
var pki = sync.OnceValue(func() (p struct {
	ca     *authority
	server tls.Certificate
},
) {
	p.ca = newAuthority("tests")
	p.server = issue(p.ca, "server", nil)
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
	_ = nc.SetDeadline(time.Now().Add(patience))
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
	return tlsAddr{l.Addr(), &tls.Config{RootCAs: pki().ca.pool, ServerName: "server"}}
}
