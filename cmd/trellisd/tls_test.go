package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	_, err = io.WriteString(c, question)
	got := make([]byte, len(answer))
	if err == nil {
		_, err = io.ReadFull(c, got)
	}
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
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := files.client()
			config.MinVersion, config.MaxVersion = version, version
			playCorpus(t, stalls, &script.Socket{Authorize: authorize(t), Launch: func(options ...string) (*script.Process, error) {
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

func TestCertificatesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	s := startTLS(t, files.flags()...)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		c := s.dialTLS(0, files.client())
		clients.Go(func() {
			for ctx.Err() == nil {
				c.send("put 0 0 60 1", "x", "reserve")
				var id int
				if _, err := fmt.Sscanf(c.line(), "INSERTED %d", &id); err != nil {
					t.Error(err)
					return
				}
				_, _ = c.line(), c.line()
			}
		})
	}
	serial := func() string {
		c, err := tryTLS(s.addrs[0], files.client())
		if err != nil {
			t.Error(err)
			return ""
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	second := files.renew(t).Leaf.SerialNumber.String()
	for deadline := time.Now().Add(2 * patience); serial() != second; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server still has certificate %s, not %s", first, second)
		}
	}
	s.waitText("certificates were reloaded")
	cancel()
	clients.Wait()
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

// Everything that says who may connect is replaced while clients work. None of them
// notices, not even one whose authority has gone: that counts for whoever connects.
func TestAuthoritiesAndIdentitiesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	files, second := newCertFiles(t), tlstest.NewAuthority("second")
	as := func(ca *tlstest.Authority, name string) *tls.Config {
		c := ca.Issue(name, nil)
		config := files.client()
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		return config
	}
	const worker, guest, fresh = "worker cert:DNS:worker.example all *\n", "guest cert:DNS:guest.example all *\n", "fresh cert:DNS:fresh.example all *\n"
	auth := authFile(t, worker, guest)
	s, url := monitored(t, append(files.flags(), "--tls-client-ca="+files.caFile, "--auth-file="+auth)...)
	addr := s.addrs[1]
	serves := func(config *tls.Config) bool {
		c, err := tryTLS(addr, config)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	first := as(files.ca, "worker.example")
	visitor, newcomer := as(files.ca, "guest.example"), as(second, "fresh.example")
	newer := as(second, "worker.example")
	if !serves(visitor) || serves(newcomer) {
		t.Fatal("it does not serve whom its files name, or serves others")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		c := s.dialTLS(1, first)
		_ = c.conn.SetDeadline(time.Now().Add(20 * patience))
		clients.Go(func() {
			for ctx.Err() == nil {
				c.send("put 0 0 60 1", "x")
				var id int
				if _, err := fmt.Sscanf(c.line(), "INSERTED %d", &id); err != nil {
					t.Error(err)
					return
				}
				c.send(fmt.Sprintf("delete %d", id))
				if answer := c.line(); answer != "DELETED" {
					t.Errorf("got %q", answer)
					return
				}
			}
		})
	}
	failing := func(v float64) bool {
		return gaugeOf(t, url, `beanstalkd_reload_failing{file="certificates"}`) == v &&
			gaugeOf(t, url, `beanstalkd_reload_failing{file="auth-file"}`) == v
	}

	key, err := os.ReadFile(files.key)
	no(t, err)
	no(t, os.WriteFile(files.key, tlstest.KeyPEM(second.Cert), 0o600))
	writeAuthFile(t, auth, worker, guest, "oops\n")
	await(t, "neither can be loaded", func() bool { return failing(1) })
	if !serves(first) || !serves(visitor) {
		t.Error("a mistake in a file has changed who is served")
	}

	no(t, os.WriteFile(files.key, key, 0o600))
	no(t, os.WriteFile(files.caFile, append(tlstest.CertPEM(files.ca.Cert), tlstest.CertPEM(second.Cert)...), 0o600))
	writeAuthFile(t, auth, worker, guest, fresh)
	await(t, "the mistakes are mended", func() bool { return failing(0) })
	await(t, "who is new is served", func() bool { return serves(newcomer) && serves(newer) })
	if !serves(first) || !serves(visitor) {
		t.Error("who was served before is not")
	}

	// Their tickets are good for a long time yet.
	writeAuthFile(t, auth, worker, fresh)
	await(t, "whose line has gone is refused", func() bool { return !serves(visitor) })
	no(t, os.WriteFile(files.caFile, tlstest.CertPEM(second.Cert), 0o600))
	await(t, "whose authority has gone is refused", func() bool { return !serves(first) })
	if !serves(newer) || !serves(newcomer) {
		t.Error("others are refused too")
	}
	cancel()
	clients.Wait()
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
