package reactor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/reactor/internal/trunk"
)

// gatewayOf starts a gateway of the server, in the same process, with as many loops, and a listener. Its trunks are Unix
// sockets.
func (ts *testServer) gatewayOf(change func(*Config)) (*Server, net.Addr) {
	ts.t.Helper()
	cfg := Config{
		Now: ts.cfg.Now, MaxJobSize: ts.cfg.MaxJobSize, Extensions: ts.cfg.Extensions, Loops: len(ts.loops),
		Log: slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	g, err := newServer(cfg, hooks{handshake: time.Hour, linger: time.Hour})
	if err != nil {
		ts.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(l); err != nil && !errors.Is(err, ErrClosed) {
			ts.t.Errorf("Serve: %v", err)
		}
	})
	g.Forward(func(_ context.Context, loop int) (TrunkConn, error) {
		here, there, err := socketPair()
		if err != nil {
			return TrunkConn{}, err
		}
		number := uint32(loop + 1)
		return TrunkConn{Conn: here, Peer: "leader", Number: number}, ts.AcceptTrunk(TrunkConn{Conn: there, Peer: "gateway", Number: number})
	})
	ts.t.Cleanup(func() {
		g.Abort()
		serving.Wait()
	})
	return g, l.Addr()
}

// Replies that are small wait for none that are not, however many clients are sent those.
func TestASmallReplyIsNotBehindManyLargeOnes(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	id := ts.dial().put(strings.Repeat("x", maxJob))
	s := ts.script(ts.loops[0])
	const n = 100
	peek := fmt.Sprintf("peek %d\r\n", id)
	items := []trunk.Item{opens(n, 1)}
	for i := range uint32(n - 1) {
		items = append(items, opens(i+1, uint64(i+2)), credit(i+1, maxReplyCredit-trunk.FirstCredit), input(i+1, peek))
	}
	s.say(items...)
	s.say(input(n, "list-tube-used\r\n"))
	large := 0
	for {
		it := s.next()
		if it.Channel == n {
			break
		}
		large += len(it.Data)
	}
	if most := 2 * fewOutput; large > most {
		t.Errorf("%d bytes were before it, and at most %d should be", large, most)
	}
	s.loop.call(func(l *loop) { s.end.ended(0, io.EOF) })
	ts.until("the others are gone", func() bool { return ts.sum().Connections == 1 })
}
