package reactor

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trellis/engine"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/trunk"
)

// loneGateway is a gateway on a loop that only the caller drives.
type loneGateway struct {
	*gateway
	t       testing.TB
	leader  int // the other end of its trunk
	conns   []*conn
	clients []int // the other ends of their sockets
}

func newLoneGateway(t testing.TB, clients int) *loneGateway {
	t.Helper()
	ts := serveConfig(t, "unix", hooks{unpaused: true}, nil, func(c *Config) { c.Engine = nil })
	loops, err := gnetloop.Start(gnetloop.Config{Loops: 1, ReadSize: readSize, Log: ts.Server.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gnetloop.Stop(loops) })
	l, err := newLoop(ts.Server, loops[0]) // which is not run
	if err != nil {
		t.Fatal(err)
	}
	l.engine, l.gateway = new(engine.Loop), newGateway(l)
	g := &loneGateway{gateway: l.gateway, t: t}
	here, there := g.pair()
	g.leader = there
	g.gateway.trunk = &trunkLine{loop: l, end: g.gateway, fd: int32(here), reader: trunk.NewReader(trunk.Leader)}
	g.gateway.welcomed, g.gateway.named, g.number = true, true, 1
	for range clients {
		here, there := g.pair()
		c := &conn{loop: l, fd: int32(here), phase: forwarded}
		l.enlist(c)
		ts.acceptor.TakePlace()
		c.forward(ts.now())
		t.Cleanup(func() { c.end(ts.now()) })
		g.conns, g.clients = append(g.conns, c), append(g.clients, there)
	}
	return g
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
			l, t := g.loop, g.gateway.trunk
			in := []byte(strings.Repeat("delete 1000000\r\n", x.pipelined))
			out := []byte(strings.Repeat("DELETED\r\n", x.pipelined))
			buf := make([]byte, 1<<20)
			var w trunk.Writer
			b.ReportAllocs()
			for b.Loop() {
				now := l.server.now()
				l.Round(false)
				for _, c := range g.conns {
					c.traffic(now, in)
				}
				l.serve(now)
				l.EndRound()
				drain(g.leader, buf)
				for i, f := range g.channels[1:] {
					f.room, f.credit = trunk.FirstCredit, f.window
					w.Add(&trunk.Item{Kind: trunk.KindReplies, Channel: uint32(i + 1), Number: uint32(f.sent), Data: out})
				}
				l.Round(false)
				p := w.Bytes()
				for len(p) > 0 {
					n := min(len(p), readSize)
					t.received(now, p[:n])
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
