package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/engine/script"
	"trellis/reactor/tlstest"
)

// certFiles are an authority and a server's certificate in files.
type certFiles struct {
	ca                *tlstest.Authority
	dir               string
	caFile, cert, key string
}

func newCertFiles(t testing.TB) *certFiles {
	t.Helper()
	f := &certFiles{ca: tlstest.NewAuthority("authority"), dir: t.TempDir()}
	f.caFile, _ = tlstest.Write(t, f.dir, "ca", f.ca.Cert)
	f.renew(t)
	return f
}

// renew replaces the server's certificate.
func (f *certFiles) renew(t testing.TB) tls.Certificate {
	t.Helper()
	c := f.ca.Issue(tlstest.Name, nil)
	f.cert, f.key = tlstest.Write(t, f.dir, "server", c)
	return c
}

// flags make a server use the files.
func (f *certFiles) flags() []string {
	return []string{"--tls-listen=127.0.0.1:0", "--tls-cert=" + f.cert, "--tls-key=" + f.key}
}

// client is a configuration that trusts the authority.
func (f *certFiles) client() *tls.Config {
	return &tls.Config{RootCAs: f.ca.Pool, ServerName: tlstest.Name}
}

// dialTLS connects to the server's n-th address.
func (s *server) dialTLS(n int, config *tls.Config) *client {
	s.t.Helper()
	conn, err := tryTLS(s.addrs[n], config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &client{s.t, conn, bufio.NewReader(conn)}
}

// dialTLSAs connects to the server's n-th address and authenticates.
func (s *server) dialTLSAs(n int, config *tls.Config, token string) *tls.Conn {
	s.t.Helper()
	a := s.addrs[n]
	conn, err := tls.Dial(a.Network(), a.String(), config)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(patience))
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

// tryTLS returns the error of a handshake, also where the client believes in its success
// and only the first answer shows that the server does not.
func tryTLS(a net.Addr, config *tls.Config) (*tls.Conn, error) {
	nc, err := net.DialTimeout(a.Network(), a.String(), patience)
	if err != nil {
		return nil, err
	}
	c := tls.Client(nc, config)
	if err := errors.Join(nc.SetDeadline(time.Now().Add(patience)), c.Handshake()); err != nil {
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

// scriptConn is a connection whose end nobody need be told of.
type scriptConn struct{ *tls.Conn }

func (c scriptConn) Close() error {
	_ = c.Conn.Close()
	return nil
}

func TestTheServerBehavesOverTLSAsTheCorpusSays(t *testing.T) {
	stalls := watchStalls(t)
	files := newCertFiles(t)
	for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cases := script.Corpus()
		if !proof { // every tenth: some in one version, some in the other
			cases = every(20, cases[10*i:])
		}
		t.Run(strings.TrimPrefix(tls.VersionName(version), "TLS "), func(t *testing.T) {
			t.Parallel()
			config := files.client()
			config.MinVersion, config.MaxVersion = version, version
			playCases(t, stalls, cases, &script.Socket{Patience: patience, Authorize: authorize(t), Launch: func(options ...string) (*script.Process, error) {
				p, err := launchForScript(t, append(options, files.flags()...)...)
				if err != nil {
					return nil, err
				}
				p.Dial = func() (net.Conn, error) {
					c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, p.Network, p.Addr, config)
					return scriptConn{c}, err
				}
				return p, nil
			}})
		})
	}
}

// every is the first of each n cases.
func every(n int, cases []script.Case) (some []script.Case) {
	for i := 0; i < len(cases); i += n {
		some = append(some, cases[i])
	}
	return some
}

func TestClientsOfBothListenersShareJobs(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	s := start(t, files.flags()...)
	plain, secure := s.dial(0), s.dialTLS(1, files.client())
	plain.send("put 0 0 60 1", "x")
	plain.want("INSERTED 1")
	secure.send("reserve", "delete 1")
	secure.want("RESERVED 1 1", "x", "DELETED")
}

// startTLS starts a server that listens for TLS only, on one socket.
func startTLS(t *testing.T, args ...string) *server {
	t.Helper()
	return ready(launch(t, append([]string{"-V", "--log-format=json"}, args...)...), 1)
}

func TestATakenPortForTLSNamesTheFlagThatChoosesAnother(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	no(t, err)
	defer taken.Close()
	files := newCertFiles(t)
	p := launch(t, "--tls-listen="+taken.Addr().String(), "--tls-cert="+files.cert, "--tls-key="+files.key)
	code, log := p.wait(), p.log()
	if code != 111 || len(log) != 1 || !strings.Contains(log[0], "choose another port with --tls-listen") {
		t.Errorf("exit code %d, log %q; want 111 and a line that advises --tls-listen", code, log)
	}
}

func TestAServerForTLSHasNoOtherListenerUnlessToldTo(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	s := startTLS(t, files.flags()...)
	s.dialTLS(0, files.client()).send("quit")
}

func TestClientsWithoutACertificateOfTheAuthorityAreRefused(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	with := func(c ...tls.Certificate) *tls.Config {
		config := files.client()
		// The server's list of authorities does not keep it from presenting any.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(c) == 0 {
				return new(tls.Certificate), nil
			}
			return &c[0], nil
		}
		return config
	}
	good := with(files.ca.Issue("client", tlstest.Usage(x509.ExtKeyUsageClientAuth)))
	bad := map[string]*tls.Config{
		"certificate required":          with(),
		"unknown certificate authority": with(tlstest.NewAuthority("foreign").Issue("client", nil)),
		"expired certificate":           with(files.ca.Issue("client", tlstest.Expired)),
		"bad certificate":               with(files.ca.Issue("client", tlstest.Usage(x509.ExtKeyUsageServerAuth))),
	}
	s := startTLS(t, append(files.flags(), "--tls-client-ca="+files.caFile)...)
	for want, config := range bad {
		if _, err := tryTLS(s.addrs[0], config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	s.dialTLS(0, good)
	s.waitText("a TLS handshake has failed")

	s = startTLS(t, append(files.flags(), "--tls-client-ca="+files.caFile, "--tls-client-auth=optional")...)
	s.dialTLS(0, good)
	s.dialTLS(0, with())
	if _, err := tryTLS(s.addrs[0], bad["expired certificate"]); err == nil {
		t.Error("an expired certificate is as good as none")
	}
}

func TestCertificatesThatCannotBeUsedEndTheStart(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	expired, expiredKey := tlstest.Write(t, files.dir, "expired", files.ca.Issue("x", tlstest.Expired))
	damaged := filepath.Join(files.dir, "damaged.pem")
	text := tlstest.CertPEM(files.ca.Cert)
	if err := os.WriteFile(damaged, append([]byte("note\n"), text[:len(text)/2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(files.dir, "missing")
	for _, tt := range []struct{ args, want string }{
		{"--tls-cert=" + missing, missing + ": no such file or directory"},
		{"--tls-key=" + missing, missing + ": no such file or directory"},
		{"--tls-cert=" + files.dir, files.dir + ": it is no regular file"},
		{"--tls-key=" + expiredKey, expiredKey + ": the key does not belong to the certificate in " + files.cert},
		{"--tls-key=" + files.cert, files.cert + ": "},
		{"--tls-cert=" + expired + " --tls-key=" + expiredKey, expired + ": the certificate of \"x\" has expired at "},
		{"--tls-cert=" + damaged, damaged + ": line 2: the certificate is damaged"},
		{"--tls-client-ca=" + files.key, files.key + ": there is no certificate in it"},
	} {
		p := launch(t, append(files.flags(), strings.Fields(tt.args)...)...)
		if code := p.wait(); code != exitUsage {
			t.Errorf("%s: exit code %d", tt.args, code)
		}
		if log := p.log(); len(log) != 1 || !strings.Contains(log[0], tt.want) {
			t.Errorf("%s: got %q, want %q", tt.args, log, tt.want)
		}
	}
	for _, args := range [][]string{
		{"-l127.0.0.1", "-p0", "--tls-cert=" + files.cert, "--tls-key=" + files.key},
	} {
		if code := launch(t, args...).wait(); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

// What the user of -u cannot read would end the server's next reload; it ends the start.
func TestAKeyThatTheServersUserCannotReadEndsTheStart(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	files := newCertFiles(t)
	p := launch(t, append(files.flags(), "-u", "nobody")...)
	if code := p.wait(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if log := p.log(); len(log) != 1 || !strings.Contains(log[0], "permission denied") {
		t.Errorf("logged %q", log)
	}
}

func TestInheritedSocketsNamedTLSAreForTLS(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	sockets := func() (fs []*os.File) {
		for range 2 {
			f, _ := passable(t, "tcp", "127.0.0.1:0")
			fs = append(fs, f)
		}
		return fs
	}
	args := append(files.flags(), "-V", "--log-format=json")
	p := activated(t, sockets(), []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=tls:trellisd.socket"}, args...)
	s := ready(p, 2)
	s.dial(0).send("quit") // the socket that is not named tls comes first
	s.dialTLS(1, files.client()).send("quit")
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for names, args := range map[string][]string{"tls:x": nil, "x:y": files.flags()} {
		p := activated(t, sockets(), []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=" + names}, args...)
		if code := p.wait(); code != exitUsage {
			t.Errorf("%s, %q: exit code %d", names, args, code)
		}
	}
}
