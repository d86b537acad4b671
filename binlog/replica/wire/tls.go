package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// LoadTLS makes a configuration for connections between members, of files in PEM: a
// certificate with its chain, its key, and the authorities that certificates of members
// and of the tool are signed by. Both sides must have one: of a node that is dialled it
// has to be for the host in its address, and both have to be valid now.
//
// Certificate and key are read again when a file has changed; if that fails, the old ones
// stay, and log says so. A change of the authorities needs a restart.
func LoadTLS(cert, key, ca string, log *slog.Logger) (*tls.Config, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("authorities of the cluster: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities of the cluster: %s holds no certificate", ca)
	}
	p := &pair{cert: cert, key: key, log: log}
	if _, err := p.load(); err != nil {
		return nil, fmt.Errorf("certificate of this node: %w", err)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              pool,
		RootCAs:                pool,
		SessionTicketsDisabled: true, // so that each connection's certificate is verified
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.now(), nil },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.now(), nil },
	}, nil
}

// pair is a certificate and its key, in files.
type pair struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	files  [2]os.FileInfo // when they were loaded, or when that failed last
}

// load reads the files if they have changed, and tells whether they had.
func (p *pair) load() (changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cert, err := os.Stat(p.cert)
	if err != nil {
		return false, err
	}
	key, err := os.Stat(p.key)
	if err != nil {
		return false, err
	}
	if same(cert, p.files[0]) && same(key, p.files[1]) {
		return false, nil
	}
	p.files = [2]os.FileInfo{cert, key}
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return true, err
	}
	p.loaded = &c
	return true, nil
}

func same(a, b os.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// now is the certificate to use.
func (p *pair) now() *tls.Certificate {
	switch changed, err := p.load(); {
	case err != nil && (changed || !errors.Is(err, os.ErrNotExist)):
		p.log.Warn("the node's certificate was not read again; the one before stays", "error", err)
	case changed:
		p.log.Info("the node's certificate was read again", "file", p.cert)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded
}
