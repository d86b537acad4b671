//go:build proof

package soak

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// helloOf is what a client sends first.
func helloOf(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		_ = tls.Client(here, config).Handshake()
		here.Close()
	}()
	b := make([]byte, 64<<10)
	n, err := there.Read(b)
	servertest.NoError(t, err)
	return b[:n]
}

// asker is a client that asks, is answered, and asks again.
type asker struct {
	answers atomic.Int64
	err     error // to be read when it has ended
	begun   time.Time
	ended   chan struct{}
}

// askAgain begins to ask over a connection, until that is closed.
func askAgain(conn net.Conn) *asker {
	c := &asker{begun: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for in := bufio.NewReader(conn); c.err == nil; c.answers.Add(1) {
			c.err = ask(conn, in, "list-tube-used")
		}
	}()
	return c
}

// A flood of handshakes that do not get on, whatever they do, keeps nobody from being
// served, and leaves nothing.
func TestAFloodOfHandshakesIsServedAroundAndLeavesNothing(t *testing.T) {
	t.Parallel()
	n := 1500
	if servertest.RaceEnabled {
		n = 300
	}
	files := servertest.NewCertFiles(t)
	hello := helloOf(t, files.Client())
	plain := []byte("stats\r\nlist-tubes\r\n")
	for _, kind := range []struct {
		name  string
		flood func(ctx context.Context, c net.Conn)
	}{
		{"silent", func(context.Context, net.Conn) {}},
		{"half a hello", func(_ context.Context, c net.Conn) { _, _ = c.Write(hello[:len(hello)/2]) }},
		{"a hello only", func(_ context.Context, c net.Conn) { _, _ = c.Write(hello) }},
		{"plain text", func(_ context.Context, c net.Conn) { _, _ = c.Write(plain) }},
		{"byte by byte", func(ctx context.Context, c net.Conn) {
			for i := range hello {
				if _, err := c.Write(hello[i : i+1]); err != nil {
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		}},
	} {
		t.Run(kind.name, func(t *testing.T) { floodHandshakes(t, files, n, kind.flood) })
	}
}

// floodHandshakes has n connections do the same to a server for TLS.
func floodHandshakes(t *testing.T, files *servertest.CertFiles, n int, flood func(ctx context.Context, c net.Conn)) {
	s, url := servertest.Monitored(t, append(files.Flags(), "--max-connections=8000")...)
	addr := s.Addrs[1]
	const steady = 4
	var established []*asker
	var conns []net.Conn
	for range steady {
		c := s.DialTLS(1, files.Client())
		servertest.NoError(t, c.Conn.SetDeadline(time.Time{}))
		conns, established = append(conns, c.Conn), append(established, askAgain(c.Conn))
	}
	answers := func() (sum int64) {
		for _, c := range established {
			sum += c.answers.Load()
		}
		return sum
	}
	rate := func(from int64, since time.Time) float64 {
		return float64(answers()-from) / time.Since(since).Seconds()
	}
	// measured is their rate over a moment in which they do get answers.
	measured := func(when string) float64 {
		from, since := answers(), time.Now()
		servertest.Await(t, "established clients are served "+when, func() bool { return answers() > from+100 && time.Since(since) > 200*time.Millisecond })
		return rate(from, since)
	}
	before := measured("at first")
	running, fds, memory := goroutines(t, url), descriptors(t, s), resident(t, s.Cmd.Process.Pid)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var floods sync.WaitGroup
	var crowd []net.Conn
	from, since := answers(), time.Now()
	second := make(chan float64, 1)
	time.AfterFunc(time.Second, func() { second <- rate(from, since) })
	for range n {
		c, err := net.DialTimeout(addr.Network(), addr.String(), servertest.Patience)
		servertest.NoError(t, err)
		crowd = append(crowd, c)
		floods.Go(func() { flood(ctx, c) })
	}
	var longest time.Duration
	for range 10 {
		began := time.Now()
		good, err := servertest.TryTLS(addr, files.Client())
		servertest.NoError(t, err)
		longest = max(longest, time.Since(began))
		_ = good.Close()
	}
	rising := rate(from, since)
	high := measured("in the flood")
	pending := servertest.GaugeOf(t, url, "beanstalkd_tls_pending_handshakes")
	if pending > 1000 {
		t.Errorf("%v handshakes are under way", pending)
	}
	first := <-second

	cancel()
	for _, c := range crowd {
		_ = c.Close()
	}
	floods.Wait()
	servertest.Await(t, "no handshake is left", func() bool {
		return servertest.GaugeOf(t, url, "beanstalkd_tls_pending_handshakes") == 0 &&
			servertest.GaugeOf(t, url, fmt.Sprintf("beanstalkd_listener_connections{listener=%q,tls=\"true\"}", addr.String())) == steady
	})
	for _, c := range conns {
		_ = c.Close()
	}
	for _, c := range established {
		<-c.ended
	}
	servertest.Await(t, "descriptors are closed", func() bool { return descriptors(t, s) <= fds+2 })
	servertest.Await(t, "goroutines end", func() bool { return goroutines(t, url) <= running+5 })
	rss := resident(t, s.Cmd.Process.Pid)
	if !servertest.RaceEnabled { // whose shadow memory is not given back
		servertest.Await(t, "the memory is given back", func() bool { rss = resident(t, s.Cmd.Process.Pid); return rss < memory+16<<20 })
	}
	t.Logf("%d connections: good clients were served in %v at most; established ones had %.0f answers a second before, "+
		"%.0f while the others connected, %.0f in the second from when the first of them did, %.0f afterwards; %v handshakes under way; "+
		"memory %d MB, %d MB before", n, longest, before, rising, first, high, pending, rss>>20, memory>>20)
}

// A client that sends its half of a handshake byte by byte is served like any other.
func TestAHandshakeMayComeByteByByte(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		nc, err := net.Dial(s.Addrs[0].Network(), s.Addrs[0].String())
		servertest.NoError(t, err)
		defer nc.Close()
		servertest.NoError(t, nc.SetDeadline(time.Now().Add(servertest.Patience)))
		config := files.Client()
		config.MinVersion, config.MaxVersion = version, version
		c := tls.Client(trickle{nc}, config)
		_, err = io.WriteString(c, "list-tube-used\r\n")
		servertest.NoError(t, err)
		line, err := bufio.NewReader(c).ReadString('\n')
		if line != "USING default\r\n" {
			t.Errorf("%s: got %q, %v", tls.VersionName(version), line, err)
		}
	}
}

// trickle writes byte by byte.
type trickle struct{ net.Conn }

func (c trickle) Write(p []byte) (n int, err error) {
	for i := range p {
		m, err := c.Conn.Write(p[i : i+1])
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}
