package compare

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A certificate is what a server shows, in files, and what its clients need to accept it. It is its own authority, and
// clients that are asked for a certificate show the same one. It is made for one measurement.
type certificate struct {
	cert, key string // files in PEM
	pair      tls.Certificate
	roots     *x509.CertPool
}

// newCertificate makes a certificate of 127.0.0.1, in files in dir. It has the kind of key that most servers have
// today: handshakes with RSA cost several times as much.
func newCertificate(dir string) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:         true, BasicConstraintsValid: true, // of itself
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	c := &certificate{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), roots: x509.NewCertPool()}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if c.pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	c.roots.AddCert(c.pair.Leaf)
	return c, errors.Join(os.WriteFile(c.cert, certPEM, 0o600), os.WriteFile(c.key, keyPEM, 0o600))
}

// client is the configuration of a client that accepts the certificate, and has it too.
func (c *certificate) client() *tls.Config {
	return &tls.Config{RootCAs: c.roots, Certificates: []tls.Certificate{c.pair}}
}
