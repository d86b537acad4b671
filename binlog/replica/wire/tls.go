package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
)

// Credentials are a certificate, its key and the authorities by which others are judged: what
// connections between members need. Make them with LoadTLS. Any goroutine may use them.
type Credentials struct {
	// MemberNames are patterns of names in certificates of members; see CheckPattern. Without
	// any, a member's certificate is for the host of its address. AdminNames are those of
	// administrators. Without any, those are the members. Not changed after the first use.
	MemberNames, AdminNames []string

	paths [3]string // of certificate, key, authorities
	log   *slog.Logger

	mu     sync.Mutex
	loaded generation
	files  [3]os.FileInfo // when they were loaded, or when that failed last
}

// generation is what was loaded together. It is not changed.
type generation struct {
	pair  *tls.Certificate
	roots *x509.CertPool
}

// LoadTLS loads credentials from files in PEM: a certificate with its chain, its key, and the
// authorities that certificates of members and of the tool are signed by. Both sides of a
// connection must have one: of a node that is dialled it has to be for the host in its
// address, and both have to be valid now.
//
// The files are looked at before each handshake, and read again when one of them has changed.
// If that fails, what was loaded before stays, and log says so. A Transport ends connections
// between members whose certificates are of no authority any more.
func LoadTLS(cert, key, ca string, log *slog.Logger) (*Credentials, error) {
	c := &Credentials{paths: [3]string{cert, key, ca}, log: log}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the files if one of them has changed, and reports whether one had.
func (c *Credentials) load() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var files [3]os.FileInfo
	for i, path := range c.paths {
		if files[i], err = os.Stat(path); err != nil {
			return false, c.blame(i, err)
		}
	}
	if slices.EqualFunc(files[:], c.files[:], same) {
		return false, nil
	}
	c.files = files
	pair, err := tls.LoadX509KeyPair(c.paths[0], c.paths[1])
	if err != nil {
		return true, c.blame(0, err)
	}
	pem, err := os.ReadFile(c.paths[2])
	if err != nil {
		return true, c.blame(2, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return true, c.blame(2, fmt.Errorf("%s holds no certificate", c.paths[2]))
	}
	c.loaded = generation{&pair, roots}
	return true, nil
}

// blame says of which of the files an error is.
func (c *Credentials) blame(file int, err error) error {
	if file == 2 {
		return fmt.Errorf("authorities of the cluster: %w", err)
	}
	return fmt.Errorf("certificate of this node: %w", err)
}

func same(a, b os.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// now is what to use.
func (c *Credentials) now() generation {
	switch changed, err := c.load(); {
	case err != nil && (changed || !errors.Is(err, os.ErrNotExist)):
		c.log.Warn("the node's certificate and authorities were not read again; those before stay", "error", err)
	case changed:
		c.log.Info("the node's certificate and authorities were read again", "file", c.paths[0], "authorities", c.paths[2])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded
}

// server is the configuration for a connection that was taken.
func (c *Credentials) server() *tls.Config {
	g := c.now()
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              g.roots,
		Certificates:           []tls.Certificate{*g.pair},
		SessionTicketsDisabled: true, // so that each connection's certificate is verified
	}
}

// client is the configuration for a connection to a host.
func (c *Credentials) client(host string) *tls.Config {
	g := c.now()
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host,
		RootCAs:    g.roots,
		// Whatever authorities the other side names: it is to say what it refuses.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return g.pair, nil },
	}
}
