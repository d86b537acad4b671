package reactor

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/stream"
)

// lone returns a connection on a loop that only the caller drives, and the
// client's end of it.
func lone(t testing.TB) (c *conn, client int) {
	return loneConfig(t, nil, func(*Config) {})
}

// loneConfig is lone with a journal, if it is not nil, and with a configuration that
// change has changed.
func loneConfig(t testing.TB, j *fakeJournal, change func(*Config)) (c *conn, client int) {
	ts := serveConfig(t, "unix", hooks{unpaused: true}, j, change)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	loops, err := gnetloop.Start(gnetloop.Config{Loops: 1, ReadSize: stream.ReadSize, Log: ts.Server.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gnetloop.Stop(loops) })
	l, err := newLoop(ts.Server, loops[0]) // which is not run
	if err != nil {
		t.Fatal(err)
	}
	l.setEngine(ts.engine.NewLoop(l), nil)
	if j != nil {
		l.journal = j
	}
	c = &conn{loop: l, phase: serving}
	c.Init(fds[0], stream.OnSocket)
	c.decoder.MaxJobSize = maxJob
	ts.acceptor.TakePlace()
	l.enlist(c)
	l.engine.Open(&c.session, ts.cfg.Now())
	t.Cleanup(func() { c.end(ts.now()) })
	return c, fds[1]
}

// BenchmarkTraffic is what the server does between gnet's read and its next: it
// decodes and executes a batch and writes the replies. What the client's side
// costs to take them is included.
func BenchmarkTraffic(b *testing.B) {
	for name, commands := range map[string]string{
		"use":                "use default\r\n",
		"put-reserve-delete": "put 0 0 60 10\r\n0123456789\r\nreserve\r\ndelete ",
	} {
		for _, pipelined := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", name, pipelined), func(b *testing.B) {
				c, client := lone(b)
				now := c.loop.server.now
				buf := make([]byte, 64<<10)
				var in []byte
				id := int64(0)
				b.ReportAllocs()
				for b.Loop() {
					in = in[:0]
					for range pipelined {
						in = append(in, commands...)
						if strings.Contains(name, "put") {
							id++
							in = append(strconv.AppendInt(in, id, 10), "\r\n"...)
						}
					}
					t := now()
					c.loop.Round(false)
					c.traffic(t, in)
					c.loop.serve(t)
					if n, err := unix.Read(client, buf); err != nil || n == 0 || buf[n-1] != '\n' {
						b.Fatal(n, err)
					}
				}
				n := 1
				if strings.Contains(name, "put") {
					n = 3
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pipelined*n), "ns/command")
			})
		}
	}
}

// BenchmarkRoundTrip is one client's whole way through the server and back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, network := range []string{"tcp", "unix", "tls1.2", "tls1.3"} { // the client's part over TLS allocates too
		for _, pipelined := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", network, pipelined), func(b *testing.B) {
				ts := serve(b, network, 1, hooks{})
				c := ts.dial()
				in := strings.Repeat("use default\r\n", pipelined)
				got := make([]byte, len("USING default\r\n")*pipelined)
				b.ReportAllocs()
				for b.Loop() {
					c.send(in)
					if _, err := io.ReadFull(c.r, got); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pipelined), "ns/command")
			})
		}
	}
}

// BenchmarkCommittedBatch is a batch whose replies wait for a commit at the end of the
// round.
func BenchmarkCommittedBatch(b *testing.B) {
	j := new(fakeJournal)
	j.atOnce.Store(true)
	c, client := loneConfig(b, j, func(*Config) {})
	l := c.loop
	now := l.server.now
	buf := make([]byte, 64<<10)
	var in []byte
	id := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		id++
		in = strconv.AppendInt(append(in[:0], "put 0 0 60 10\r\n0123456789\r\ndelete "...), id, 10)
		in = append(in, "\r\n"...)
		t := now()
		l.Round(false)
		c.traffic(t, in)
		l.serve(t)
		l.Round(true)
		if n, err := unix.Read(client, buf); err != nil || n == 0 || buf[n-1] != '\n' {
			b.Fatal(n, err)
		}
	}
}
