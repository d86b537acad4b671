//go:build proof

package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
	"trellis/reactor/tlstest"
)

func TestCertificatesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		c := s.DialTLS(0, files.Client())
		clients.Go(func() {
			for ctx.Err() == nil {
				c.Send("put 0 0 60 1", "x", "reserve")
				var id int
				if _, err := fmt.Sscanf(c.Line(), "INSERTED %d", &id); err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Line(), c.Line()
			}
		})
	}
	serial := func() string {
		c, err := servertest.TryTLS(s.Addrs[0], files.Client())
		if err != nil {
			t.Error(err)
			return ""
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	second := files.Renew(t).Leaf.SerialNumber.String()
	for deadline := time.Now().Add(2 * servertest.Patience); serial() != second; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server still has certificate %s, not %s", first, second)
		}
	}
	s.WaitText("certificates were reloaded")
	cancel()
	clients.Wait()
}

// Everything that says who may connect is replaced while clients work. None of them
// notices but those who may not any more.
func TestAuthoritiesAndIdentitiesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	files, second := servertest.NewCertFiles(t), tlstest.NewAuthority("second")
	as := func(ca *tlstest.Authority, name string) *tls.Config {
		config := as(files, ca, name)
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		return config
	}
	const worker, guest, fresh = "worker cert:DNS:worker.example all *\n", "guest cert:DNS:guest.example all *\n", "fresh cert:DNS:fresh.example all *\n"
	auth := servertest.AuthFile(t, worker, guest)
	s, url := servertest.Monitored(t, append(files.Flags(), "--tls-client-ca="+files.CAFile, "--auth-file="+auth)...)
	addr := s.Addrs[1]
	serves := func(config *tls.Config) bool {
		c, err := servertest.TryTLS(addr, config)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	first := as(files.CA, "worker.example")
	visitor, newcomer := as(files.CA, "guest.example"), as(second, "fresh.example")
	newer := as(second, "worker.example")
	if !serves(visitor) || serves(newcomer) {
		t.Fatal("it does not serve whom its files name, or serves others")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		c := s.DialTLS(1, first)
		_ = c.Conn.SetDeadline(time.Now().Add(20 * servertest.Patience))
		clients.Go(func() {
			for ctx.Err() == nil {
				c.Send("put 0 0 60 1", "x")
				var id int
				if _, err := fmt.Sscanf(c.Line(), "INSERTED %d", &id); err != nil {
					t.Error(err)
					return
				}
				c.Send(fmt.Sprintf("delete %d", id))
				if answer := c.Line(); answer != "DELETED" {
					t.Errorf("got %q", answer)
					return
				}
			}
		})
	}
	failing := func(v float64) bool {
		return servertest.GaugeOf(t, url, `beanstalkd_reload_failing{file="certificates"}`) == v &&
			servertest.GaugeOf(t, url, `beanstalkd_reload_failing{file="auth-file"}`) == v
	}

	key, err := os.ReadFile(files.Key)
	servertest.NoError(t, err)
	servertest.NoError(t, os.WriteFile(files.Key, tlstest.KeyPEM(second.Cert), 0o600))
	servertest.WriteAuthFile(t, auth, worker, guest, "oops\n")
	servertest.Await(t, "neither can be loaded", func() bool { return failing(1) })
	if !serves(first) || !serves(visitor) {
		t.Error("a mistake in a file has changed who is served")
	}

	servertest.NoError(t, os.WriteFile(files.Key, key, 0o600))
	servertest.NoError(t, os.WriteFile(files.CAFile, append(tlstest.CertPEM(files.CA.Cert), tlstest.CertPEM(second.Cert)...), 0o600))
	servertest.WriteAuthFile(t, auth, worker, guest, fresh)
	servertest.Await(t, "the mistakes are mended", func() bool { return failing(0) })
	servertest.Await(t, "who is new is served", func() bool { return serves(newcomer) && serves(newer) })
	if !serves(first) || !serves(visitor) {
		t.Error("who was served before is not")
	}

	// Their tickets are good for a long time yet.
	servertest.WriteAuthFile(t, auth, worker, fresh)
	servertest.Await(t, "whose line has gone is refused", func() bool { return !serves(visitor) })
	leaver := s.DialTLS(1, first)
	cancel()
	clients.Wait()
	servertest.NoError(t, os.WriteFile(files.CAFile, tlstest.CertPEM(second.Cert), 0o600))
	servertest.Await(t, "whose authority has gone is refused", func() bool { return !serves(first) })
	leaver.WantEOF()
	if !serves(newer) || !serves(newcomer) {
		t.Error("others are refused too")
	}
}

func TestAChangedAuthFileEndsTheConnectionsOfThoseWhoAreGone(t *testing.T) {
	t.Parallel()
	keep, old, fresh := servertest.TokenLine("keep", "keep", "all", "*"), servertest.TokenLine("b", "old", "all", "*"), servertest.TokenLine("b", "fresh", "all", "*")
	path := servertest.AuthFile(t, keep, old)
	s, url := servertest.Monitored(t, "--auth-file", path)
	as := func(token string) *servertest.Client {
		c := s.Dial(0)
		_ = c.Conn.SetDeadline(time.Now().Add(10 * servertest.Patience))
		c.Send("auth " + token)
		c.Want("AUTHENTICATED")
		return c
	}
	keeper, leaver := as("keep"), as("old")
	leaver.Send("put 0 0 60 1", "x", "reserve")
	leaver.Want("INSERTED 1", "RESERVED 1 1", "x")

	// A line with a mistake leaves the others in force.
	servertest.WriteAuthFile(t, path, keep, old, "oops\n")
	s.WaitText("a changed file has a mistake")
	if log := strings.Join(s.Log(), "\n"); !strings.Contains(log, path+":3: 1 fields") {
		t.Errorf("the line is not named:\n%s", log)
	}
	as("old")
	failing := func(v float64) func() bool {
		return func() bool { return servertest.GaugeOf(t, url, `beanstalkd_reload_failing{file="auth-file"}`) == v }
	}
	servertest.Await(t, "the metrics say so", failing(1))

	// It does not keep what is gone beside it in force.
	servertest.WriteAuthFile(t, path, keep, "oops\n", fresh)
	leaver.WantEOF()
	keeper.Send("reserve")
	keeper.Want("RESERVED 1 1", "x")
	as("fresh")
	c := s.Dial(0)
	c.Send("auth old")
	c.Want("UNAUTHORIZED")
	c.WantEOF()
	for name, want := range map[string]float64{
		`beanstalkd_reload_failing{file="auth-file"}`:                1,
		`beanstalkd_reloads_total{file="auth-file",result="failed"}`: 2,
		`beanstalkd_reload_mistakes_total{file="auth-file"}`:         2,
		`beanstalkd_authentication_failures_total{reason="token"}`:   1,
		`beanstalkd_authenticated_connections_total`:                 4,
	} {
		servertest.Await(t, fmt.Sprintf("%s is %v", name, want), func() bool { return servertest.GaugeOf(t, url, name) == want })
	}

	// A file that has gone says nothing; an empty one says that nobody is let in.
	servertest.WriteAuthFile(t, path, keep)
	servertest.Await(t, "the mistake is mended", failing(0))
	servertest.NoError(t, os.Remove(path))
	servertest.Await(t, "the missing file is reported", failing(1))
	keeper.Send("list-tube-used")
	keeper.Want("USING default")
	as("keep")
	servertest.WriteAuthFile(t, path)
	keeper.WantEOF()
	servertest.Await(t, "the empty file is loaded", failing(0))
	c = s.Dial(0)
	c.Send("auth keep")
	c.Want("UNAUTHORIZED")
	c.WantEOF()
}
