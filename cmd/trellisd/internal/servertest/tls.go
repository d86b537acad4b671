package servertest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"trellis/reactor/tlstest"
)

// CertFiles are an authority and a server's certificate in files.
type CertFiles struct {
	CA                *tlstest.Authority
	Dir               string
	CAFile, Cert, Key string
}

// NewCertFiles writes an authority, and a certificate of it for tlstest.Name, into a directory of the test's.
func NewCertFiles(t testing.TB) *CertFiles {
	t.Helper()
	f := &CertFiles{CA: tlstest.NewAuthority("authority"), Dir: t.TempDir()}
	f.CAFile, _ = tlstest.Write(t, f.Dir, "ca", f.CA.Cert)
	f.Renew(t)
	return f
}

// Renew replaces the server's certificate.
func (f *CertFiles) Renew(t testing.TB) tls.Certificate {
	t.Helper()
	c := f.CA.Issue(tlstest.Name, nil)
	f.Cert, f.Key = tlstest.Write(t, f.Dir, "server", c)
	return c
}

// Flags make a server use the files.
func (f *CertFiles) Flags() []string {
	return []string{"--tls-listen=127.0.0.1:0", "--tls-cert=" + f.Cert, "--tls-key=" + f.Key}
}

// Client is a configuration that trusts the authority.
func (f *CertFiles) Client() *tls.Config {
	return &tls.Config{RootCAs: f.CA.Pool, ServerName: tlstest.Name}
}

// DialTLS connects to the server's n-th address.
func (s *Server) DialTLS(n int, config *tls.Config) *Client {
	s.t.Helper()
	conn, err := TryTLS(s.Addrs[n], config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &Client{s.t, conn, bufio.NewReader(conn)}
}

// DialTLSAs connects to the server's n-th address and authenticates.
func (s *Server) DialTLSAs(n int, config *tls.Config, token string) *tls.Conn {
	s.t.Helper()
	a := s.Addrs[n]
	conn, err := tls.Dial(a.Network(), a.String(), config)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(Patience))
	}
	if err == nil {
		_, err = io.WriteString(conn, "auth "+token+"\r\n")
	}
	const answer = "AUTHENTICATED\r\n"
	got := make([]byte, len(answer))
	if err == nil {
		_, err = io.ReadFull(conn, got)
	}
	if err != nil || string(got) != answer {
		s.t.Fatalf("got %q, %v", got, err)
	}
	return conn
}

// TryTLS connects, and returns the error of the handshake, also where the client believes in its success
// and only the first answer shows that the server does not.
func TryTLS(a net.Addr, config *tls.Config) (*tls.Conn, error) {
	nc, err := net.DialTimeout(a.Network(), a.String(), Patience)
	if err != nil {
		return nil, err
	}
	c := tls.Client(nc, config)
	if err := errors.Join(nc.SetDeadline(time.Now().Add(Patience)), c.Handshake()); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	const question, answer = "list-tube-used\r\n", "USING default\r\n"
	_, _ = io.WriteString(c, question) // if it fails the server has said why
	got := make([]byte, len(answer))
	_, err = io.ReadFull(c, got)
	if err == nil && string(got) != answer {
		err = fmt.Errorf("got %q", got)
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

// StartTLS starts a server that listens for TLS only, on one socket.
func StartTLS(t *testing.T, args ...string) *Server {
	t.Helper()
	return Ready(Launch(t, append([]string{"-V", "--log-format=json"}, args...)...), 1)
}
