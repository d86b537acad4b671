package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Name is the host name of the certificates; their address is 127.0.0.1.
const Name = "trellis.test"

// Authority issues certificates that are valid from an hour ago until in an hour.
type Authority struct {
	Cert tls.Certificate
	Pool *x509.CertPool // of Cert alone
}

// NewAuthority makes an authority. Like all functions here it panics on errors, which
// come only from arguments that cannot be or a system without random numbers.
func NewAuthority(name string) *Authority {
	a := &Authority{Pool: x509.NewCertPool()}
	a.Cert = a.Issue(name, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		c.ExtKeyUsage = nil
	})
	a.Pool.AddCert(a.Cert.Leaf)
	return a
}

// Issue issues a certificate for servers and clients. change may change what it says;
// it may be nil.
func (a *Authority) Issue(name string, change func(*x509.Certificate)) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(err)
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if change != nil {
		change(c)
	}
	parent, signer := c, any(key)
	if a.Cert.Leaf != nil {
		parent, signer = a.Cert.Leaf, a.Cert.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	check(err)
	leaf, err := x509.ParseCertificate(der)
	check(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Expired makes Issue issue a certificate whose time is over.
func Expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// Usage makes Issue issue a certificate for one use only.
func Usage(u x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{u} }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// CertPEM is a certificate, and what stands behind it, as text.
func CertPEM(c tls.Certificate) (text []byte) {
	for _, der := range c.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return text
}

// KeyPEM is a certificate's key as text.
func KeyPEM(c tls.Certificate) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	check(err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Write writes a certificate and its key to files in dir, name.pem and name.key.
func Write(t testing.TB, dir, name string, c tls.Certificate) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, text := range map[string][]byte{cert: CertPEM(c), key: KeyPEM(c)} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
