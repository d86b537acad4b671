package load

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/internal/faulty"
	"trellis/reactor/tlstest"
)

// serveTLS starts a server that speaks TLS and returns its address.
func serveTLS(t *testing.T, faults faulty.Faults) bench.Address {
	t.Helper()
	ca := tlstest.NewAuthority("tests")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go faulty.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.Issue(tlstest.Name, nil)}}), faults)
	addr, err := bench.ParseTLSAddress(l.Addr().String(), &tls.Config{RootCAs: ca.Pool, ServerName: tlstest.Name})
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestAServerIsMeasuredOverTLS(t *testing.T) {
	t.Parallel()
	addr := serveTLS(t, faulty.Faults{})
	for _, change := range []func(*bench.Config){
		func(c *bench.Config) {},
		func(c *bench.Config) { c.Depth, c.Size = 32, mustSizes(t, "60000") },
		func(c *bench.Config) { c.Scenario = "churn" },
		func(c *bench.Config) { c.Scenario, c.Threads = "connect", 2 },
		func(c *bench.Config) { c.Idle = 20 },
	} {
		cfg := quick(addr, "cycle")
		change(&cfg)
		if res := mustRun(t, cfg); res.Err() != nil {
			t.Errorf("%s: %v", cfg.Scenario, res.Err())
		}
	}
}

func TestAServerWhoseCertificateIsForeignIsNotMeasured(t *testing.T) {
	addr := serveTLS(t, faulty.Faults{})
	foreign, err := bench.ParseTLSAddress(addr.Name, new(tls.Config))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), quick(foreign, "cycle")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}

func TestAHandshakeThatIsNotAnsweredEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, err := bench.ParseTLSAddress(l.Addr().String(), &tls.Config{ServerName: tlstest.Name})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := addr.Dial(10 * time.Millisecond); err == nil {
		c.Close()
		t.Error("no error")
	}
	fd, _, err := dial(&addr, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(int32(fd), addr.TLS(), 10*time.Millisecond); err == nil {
		t.Error("no error")
	}
}
