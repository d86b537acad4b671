package reactor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// serveForAge serves connections that may become old, and looks at retired ones often.
func serveForAge(t *testing.T, network string) *testServer {
	t.Helper()
	return serveConfig(t, network, hooks{retire: time.Millisecond}, nil, func(c *Config) { c.MaxConnectionAge = time.Hour })
}

// retireAll makes all connections too old, and tells how many of them stay for the time being.
func (ts *testServer) retireAll() int {
	var n atomic.Int64
	ts.onLoops(func(l *loop) {
		for _, c := range slices.Clone(l.conns) {
			c.retire(ts.now(), tooOld, 0)
			if c.phase < draining {
				n.Add(1)
			}
		}
	})
	return int(n.Load())
}

func TestAnOldConnectionIsClosedBetweenCommands(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts, put := serveStopped(t, network, hooks{}, nil, func(c *Config) { c.MaxConnectionAge = time.Hour })
		idle, worker := ts.dial(), ts.dial()
		worker.send("watch a\r\nreserve\r\n")
		worker.expect("WATCHING 2\r\n")
		ts.until("both are there, and one waits", func() bool { return ts.sum().Connections == 2 && ts.engine.Snapshot(0).Waiting == 1 })
		put(time.Hour * 8 / 10)
		if n := ts.sum().Aged; n != 0 {
			t.Errorf("%d were closed before their time", n)
		}
		put(time.Hour * 2 / 10)
		idle.expectEOF()
		worker.expectEOF()
		ts.until("they are counted", func() bool { return ts.sum().Aged == 2 })
	})
}

func TestAnOldConnectionStaysWhileItsClientHasSomethingToLose(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serveForAge(t, network)
		worker, half, body := ts.dial(), ts.dial(), ts.dial()
		worker.send("put 0 0 60 1\r\nx\r\nreserve\r\n")
		worker.expect("INSERTED 1\r\n" + reserved(1, "x"))
		half.do("use a\r\nuse ", "USING a\r\n")
		body.do("use a\r\nput 0 0 60 3\r\nx", "USING a\r\n")
		if n := ts.retireAll(); n != 3 {
			t.Fatalf("%d of 3 stay", n)
		}
		worker.do("touch 1\r\n", "TOUCHED\r\n")
		worker.do("use b\r\n", "USING b\r\n")
		if n := ts.sum().Aged; n != 0 {
			t.Errorf("%d were closed", n)
		}
		half.do("b\r\n", "USING b\r\n")
		half.expectEOF()
		body.do("yz\r\n", "INSERTED 2\r\n")
		body.expectEOF()
		worker.do("put 0 0 60 1\r\ny\r\ndelete 1\r\n", "INSERTED 3\r\nDELETED\r\n")
		worker.expectEOF()
	})
}

func TestAnOldConnectionIsClosedWhenItsClientsJobRunsOutOfTime(t *testing.T) {
	t.Parallel()
	ts := serveForAge(t, "tcp")
	c := ts.dial()
	c.send("put 0 0 1 1\r\nx\r\nreserve\r\n")
	c.expect("INSERTED 1\r\n" + reserved(1, "x"))
	ts.retireAll()
	c.expectEOF()
}

func TestClientsOfARemovedAuthorityAreClosed(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]time.Duration{"with time": time.Hour, "without": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ts := serveConfig(t, "tcp", hooks{retire: time.Millisecond}, nil, func(c *Config) { c.Grace, c.Loops = grace, 2 })
			addr := ts.serveTLS(mutualTLS())
			as := func(name string) *client { return dial(t, tlsAddr{addr.Addr, addr.as(pki().ca.Issue(name, nil))}) }
			good, idle, waits, works := as("good"), as("bad"), as("bad"), as("bad")
			good.do("use a\r\n", "USING a\r\n")
			idle.do("use a\r\n", "USING a\r\n")
			waits.do("use a\r\nwatch b\r\nignore default\r\nreserve\r\n", "USING a\r\nWATCHING 2\r\nWATCHING 1\r\n")
			works.do("put 0 0 600 1\r\nx\r\nreserve\r\n", "INSERTED 1\r\n"+reserved(1, "x"))
			plain := ts.dial()
			plain.do("use a\r\n", "USING a\r\n")
			asked := 0
			ts.Reverify(func(all []string) map[string]error {
				asked = len(all)
				bad := map[string]error{}
				for _, der := range all {
					if c, err := x509.ParseCertificates([]byte(der)); err != nil || c[0].DNSNames[0] != "good" {
						bad[der] = fmt.Errorf("of the test: %v", err)
					}
				}
				return bad
			})
			if asked != 4 {
				t.Errorf("%d certificates were to be verified, want 4", asked)
			}
			idle.expectEOF()
			waits.expectEOF()
			if grace == time.Hour {
				works.do("delete 1\r\n", "DELETED\r\n")
				works.expectEOF()
			} else {
				works.expectEOF()
				plain.do("reserve-job 1\r\n", reserved(1, "x"))
			}
			good.do("use b\r\n", "USING b\r\n")
			plain.do("use b\r\n", "USING b\r\n")
			ts.until("they are counted", func() bool { return ts.sum().Unverified == 3 })
		})
	}
}

func TestWhereNobodyHasACertificateNoneIsVerified(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	config := mutualTLS()
	config.ClientAuth = tls.VerifyClientCertIfGiven
	dial(t, ts.serveTLS(config)).do("use a\r\n", "USING a\r\n")
	ts.Reverify(func(all []string) map[string]error {
		t.Errorf("%d certificates", len(all))
		return nil
	})
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	ts.Reverify(func([]string) map[string]error { return map[string]error{"": errors.New("nobody is there")} })
}

// What few connections need lies in what they have only then.
func TestADeadlineIsAsBigAsItWas(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(deadline{}); n > 48 {
		t.Errorf("%d bytes", n)
	}
}
