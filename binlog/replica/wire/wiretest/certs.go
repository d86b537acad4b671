package wiretest

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trellis/reactor/tlstest"
)

// Authority signs certificates.
type Authority struct {
	t  testing.TB
	ca *tlstest.Authority

	File string // its certificate
}

// Files are those of a node's certificate.
type Files struct{ Cert, Key string }

// NewAuthority makes an authority in a directory of the test's own.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t, tlstest.NewAuthority(name), filepath.Join(t.TempDir(), "ca.pem")}
	write(t, a.File, tlstest.CertPEM(a.ca.Cert))
	return a
}

// Issue makes a certificate for hosts, names or IP addresses, for both sides of a
// connection, that ends at that time.
func (a *Authority) Issue(ends time.Time, hosts ...string) Files {
	a.t.Helper()
	dir := a.t.TempDir()
	f := Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	a.IssueTo(f, ends, hosts...)
	return f
}

// IssueTo writes a new certificate in the place of one before.
func (a *Authority) IssueTo(f Files, ends time.Time, hosts ...string) {
	a.t.Helper()
	c := a.ca.Issue("node", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), ends
		c.DNSNames, c.IPAddresses = nil, nil
		for _, h := range hosts {
			if ip := net.ParseIP(h); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, h)
			}
		}
	})
	write(a.t, f.Cert, tlstest.CertPEM(c))
	write(a.t, f.Key, tlstest.KeyPEM(c))
}

func write(t testing.TB, name string, text []byte) {
	t.Helper()
	temp := name + ".tmp"
	if err := os.WriteFile(temp, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, name); err != nil {
		t.Fatal(err)
	}
}
