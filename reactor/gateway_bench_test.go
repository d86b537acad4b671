package reactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/link"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

// loneGateway is a gateway on a loop that only the caller drives, and says itself what its leader says.
type loneGateway struct {
	*gateway
	t       testing.TB
	leader  int // the other end of its trunk
	conns   []*conn
	clients []int // the other ends of their sockets
	sent    []int // bytes that these have sent
	quotas  []int // bytes that these may still send
}

func newLoneGateway(t testing.TB, clients int) *loneGateway {
	t.Helper()
	ts := serveConfig(t, "unix", hooks{unpaused: true}, nil, func(c *Config) { c.Engine = nil })
	loops, err := gnetloop.Start(gnetloop.Config{Loops: 1, ReadSize: stream.ReadSize, Log: ts.Server.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gnetloop.Stop(loops) })
	l, err := newLoop(ts.Server, loops[0]) // which is not run
	if err != nil {
		t.Fatal(err)
	}
	l.setEngine(new(engine.Loop), nil)
	l.gateway = newGateway(l, ts.now())
	g := &loneGateway{gateway: l.gateway, t: t}
	here, there := g.pair()
	g.leader = there
	line := link.New(&l.links, here, trunk.Leader, "", nil)
	l.links.Add(line, g.gateway, ts.now())
	g.connect(line, 1, nil)
	w := trunk.Welcome{Version: 1, Extensions: true, MaxJobSize: maxJob}
	if err := g.TakeItem(ts.now(), &trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)}); err != nil {
		t.Fatal(err)
	}
	for range clients {
		here, there := g.pair()
		c := &conn{loop: l, phase: forwarded}
		c.Init(here, stream.OnSocket)
		l.enlist(c)
		ts.acceptor.TakePlace()
		c.forward(ts.now())
		t.Cleanup(func() { c.end(ts.now()) })
		g.conns, g.clients = append(g.conns, c), append(g.clients, there)
		g.sent, g.quotas = append(g.sent, 0), append(g.quotas, trunk.FirstCredit)
	}
	return g
}

// traffic is what a client sends.
func (g *loneGateway) traffic(i int, now time.Duration, p []byte) {
	g.conns[i].traffic(now, p)
	g.sent[i] += len(p)
	g.quotas[i] -= len(p)
}

// answer adds the answer to all that a client has sent, and the credit that a leader gives then.
func (g *loneGateway) answer(i int, w *trunk.Writer, out []byte) {
	n := uint32(i + 1)
	w.Add(&trunk.Item{Kind: trunk.KindReplies, Channel: n, Number: uint32(g.sent[i]), Data: out})
	if more := trunk.FirstCredit - g.quotas[i]; more >= trunk.FirstCredit/2 {
		g.quotas[i] += more
		w.Add(&trunk.Item{Kind: trunk.KindCredit, Channel: n, Number: uint32(more)})
	}
}

// pair returns two connected sockets that do not block.
func (g *loneGateway) pair() (here, there int) {
	g.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			g.t.Fatal(err)
		}
	}
	g.t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// drain throws away what a socket has.
func drain(fd int, buf []byte) {
	for {
		if n, _ := unix.Read(fd, buf); n <= 0 {
			return
		}
	}
}

// BenchmarkForward is what a gateway does for commands between gnet's reads and its next. What the leader and the
// clients cost to read what it sends is included.
func BenchmarkForward(b *testing.B) {
	for _, x := range []struct{ clients, pipelined int }{{50, 32}, {1000, 1}, {1, 1}} {
		b.Run(fmt.Sprintf("%dx%d", x.clients, x.pipelined), func(b *testing.B) {
			g := newLoneGateway(b, x.clients)
			l, t := g.loop, g.line
			in := []byte(strings.Repeat("delete 1000000\r\n", x.pipelined))
			out := []byte(strings.Repeat("DELETED\r\n", x.pipelined))
			buf := make([]byte, 1<<20)
			var w trunk.Writer
			b.ReportAllocs()
			for b.Loop() {
				now := l.server.now()
				l.Round(false)
				for i := range g.conns {
					g.traffic(i, now, in)
				}
				l.serve(now)
				l.EndRound()
				drain(g.leader, buf)
				for i := range g.conns {
					g.answer(i, &w, out)
				}
				l.Round(false)
				p := w.Bytes()
				for len(p) > 0 {
					n := min(len(p), stream.ReadSize)
					t.Received(now, p[:n])
					p = p[n:]
				}
				w.Sent(w.Len())
				l.serve(now)
				for _, fd := range g.clients {
					if n, err := unix.Read(fd, buf); err != nil || n != len(out) {
						b.Fatal(n, err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*x.clients*x.pipelined), "ns/command")
		})
	}
}
