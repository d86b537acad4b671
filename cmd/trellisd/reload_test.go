//go:build proof

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/reactor/tlstest"
)

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

// Everything that says who may connect is replaced while clients work. None of them
// notices but those who may not any more.
func TestAuthoritiesAndIdentitiesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	files, second := newCertFiles(t), tlstest.NewAuthority("second")
	as := func(ca *tlstest.Authority, name string) *tls.Config {
		config := files.as(ca, name)
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
	leaver := s.dialTLS(1, first)
	cancel()
	clients.Wait()
	no(t, os.WriteFile(files.caFile, tlstest.CertPEM(second.Cert), 0o600))
	await(t, "whose authority has gone is refused", func() bool { return !serves(first) })
	leaver.wantEOF()
	if !serves(newer) || !serves(newcomer) {
		t.Error("others are refused too")
	}
}

func TestAChangedAuthFileEndsTheConnectionsOfThoseWhoAreGone(t *testing.T) {
	t.Parallel()
	keep, old, fresh := tokenLine("keep", "keep", "all", "*"), tokenLine("b", "old", "all", "*"), tokenLine("b", "fresh", "all", "*")
	path := authFile(t, keep, old)
	s, url := monitored(t, "--auth-file", path)
	as := func(token string) *client {
		c := s.dial(0)
		_ = c.conn.SetDeadline(time.Now().Add(10 * patience))
		c.send("auth " + token)
		c.want("AUTHENTICATED")
		return c
	}
	keeper, leaver := as("keep"), as("old")
	leaver.send("put 0 0 60 1", "x", "reserve")
	leaver.want("INSERTED 1", "RESERVED 1 1", "x")

	// A line with a mistake leaves the others in force.
	writeAuthFile(t, path, keep, old, "oops\n")
	s.waitText("a changed file has a mistake")
	if log := strings.Join(s.log(), "\n"); !strings.Contains(log, path+":3: 1 fields") {
		t.Errorf("the line is not named:\n%s", log)
	}
	as("old")
	failing := func(v float64) func() bool {
		return func() bool { return gaugeOf(t, url, `beanstalkd_reload_failing{file="auth-file"}`) == v }
	}
	await(t, "the metrics say so", failing(1))

	// It does not keep what is gone beside it in force.
	writeAuthFile(t, path, keep, "oops\n", fresh)
	leaver.wantEOF()
	keeper.send("reserve")
	keeper.want("RESERVED 1 1", "x")
	as("fresh")
	c := s.dial(0)
	c.send("auth old")
	c.want("UNAUTHORIZED")
	c.wantEOF()
	for name, want := range map[string]float64{
		`beanstalkd_reload_failing{file="auth-file"}`:                1,
		`beanstalkd_reloads_total{file="auth-file",result="failed"}`: 2,
		`beanstalkd_reload_mistakes_total{file="auth-file"}`:         2,
		`beanstalkd_authentication_failures_total{reason="token"}`:   1,
		`beanstalkd_authenticated_connections_total`:                 4,
	} {
		await(t, fmt.Sprintf("%s is %v", name, want), func() bool { return gaugeOf(t, url, name) == want })
	}

	// A file that has gone says nothing; an empty one says that nobody is let in.
	writeAuthFile(t, path, keep)
	await(t, "the mistake is mended", failing(0))
	no(t, os.Remove(path))
	await(t, "the missing file is reported", failing(1))
	keeper.send("list-tube-used")
	keeper.want("USING default")
	as("keep")
	writeAuthFile(t, path)
	keeper.wantEOF()
	await(t, "the empty file is loaded", failing(0))
	c = s.dial(0)
	c.send("auth keep")
	c.want("UNAUTHORIZED")
	c.wantEOF()
}
