package reactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// gatewayOf starts a gateway of the server, in the same process, with as many loops, and a listener. Its trunks are Unix
// sockets.
func (ts *testServer) gatewayOf() net.Addr {
	ts.t.Helper()
	addr, end := ts.gatewayOver(socketPair)
	ts.t.Cleanup(end)
	return addr
}

// gatewayOver is gatewayOf with other connections for trunks.
func (ts *testServer) gatewayOver(connect func() (gateway, leader net.Conn, err error)) (addr net.Addr, end func()) {
	ts.t.Helper()
	g, err := newServer(Config{
		Now: ts.cfg.Now, MaxJobSize: ts.cfg.MaxJobSize, Extensions: ts.cfg.Extensions, Loops: len(ts.loops),
		Log: slog.New(slog.DiscardHandler),
	}, hooks{handshake: time.Hour, linger: time.Hour})
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
	var number atomic.Uint32
	g.Forward(func(context.Context, int) (TrunkConn, error) {
		here, there, err := connect()
		if err != nil {
			return TrunkConn{}, err
		}
		n := number.Add(1)
		return TrunkConn{Conn: here, Peer: "leader", Number: n}, ts.AcceptTrunk(TrunkConn{Conn: there, Peer: "gateway", Number: n})
	})
	return l.Addr(), func() {
		g.Abort()
		serving.Wait()
	}
}

func TestWhatTrunksCarryIsCounted(t *testing.T) {
	t.Parallel()
	ts := serve(t, "gateway", 1, hooks{})
	c := ts.dial()
	body := strings.Repeat("x", 10_000)
	c.do(fmt.Sprintf("put 0 0 9 %d\r\n%s\r\n", len(body), body), "INSERTED 1\r\n")
	if sum := ts.sum(); sum.TrunkIn < 10_000 || sum.TrunkOut == 0 || sum.TrunkOut >= 10_000 {
		t.Errorf("a body has come, and %d bytes were read, %d written", sum.TrunkIn, sum.TrunkOut)
	}
	read := ts.sum().TrunkIn
	c.do("reserve\r\n", fmt.Sprintf("RESERVED 1 %d\r\n%s\r\n", len(body), body))
	ts.until("the body is counted", func() bool { return ts.sum().TrunkOut >= 10_000 })
	if n := ts.sum().TrunkIn - read; n == 0 || n >= 10_000 {
		t.Errorf("a reserve has come, and %d bytes were read", n)
	}
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
		items = append(items, opens(i+1, uint64(i+2)), credit(i+1, trunk.MaxCredit-trunk.FirstCredit), input(i+1, peek))
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
	if most := 2 * relay.FewOutput; large > most {
		t.Errorf("%d bytes were before it, and at most %d should be", large, most)
	}
	s.loop.call(func(l *loop) { s.end.Disconnect(0, io.EOF) })
	ts.until("the others are gone", func() bool { return ts.sum().Connections == 1 })
}

// cutTrunk is a connection that passes on so many bytes to the leader, and so many to the gateway, and then ends.
type cutTrunk struct {
	toLeader, toGateway int
	cut                 atomic.Bool
}

// between returns both ends of the connection.
func (c *cutTrunk) between() (gateway, leader net.Conn, err error) {
	gateway, a, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	b, leader, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	pass := func(to, from net.Conn, n int) {
		k, _ := io.CopyN(to, from, int64(n))
		if k == int64(n) {
			c.cut.Store(true)
		}
		a.Close()
		b.Close()
	}
	go pass(b, a, c.toLeader)
	go pass(a, b, c.toGateway)
	return gateway, leader, nil
}

// Wherever a trunk is cut, a client that has sent something gets a part of its replies and a reset, and never an end in
// order. What it held is ready. One that has not been heard of yet goes on over the next trunk.
func TestATrunkMayBeCutAnywhere(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	body := strings.Repeat("x", 40_000)
	id := ts.dial().put(body)
	in := fmt.Sprintf("use a\r\nreserve\r\npeek %d\r\nrelease %d 0 0\r\nreserve\r\nbogus\r\n", id, id)
	want := "USING a\r\n" + reserved(id, body) + strings.Replace(reserved(id, body), "RESERVED", "FOUND", 1) + "RELEASED\r\n" + reserved(id, body) + "UNKNOWN_COMMAND\r\n"
	const whole = 1 << 30
	session := func(k *cutTrunk) {
		var dials atomic.Int32
		addr, end := ts.gatewayOver(func() (gateway, leader net.Conn, err error) {
			if dials.Add(1) == 1 {
				return k.between()
			}
			return socketPair()
		})
		defer end()
		c := dial(t, addr)
		defer c.Close()
		_, early := io.WriteString(c, in)
		if early == nil {
			early = c.Conn.(*net.TCPConn).CloseWrite()
		}
		got, err := io.ReadAll(c.r)
		switch {
		case !strings.HasPrefix(want, string(got)):
			t.Errorf("cut at %d and %d: %d bytes came that are no replies", k.toLeader, k.toGateway, len(got))
		case err == nil && early == nil && len(got) < len(want): // a reset is told once
			t.Errorf("cut at %d and %d: it ends in order behind %d bytes of %d", k.toLeader, k.toGateway, len(got), len(want))
		case err != nil && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("cut at %d and %d: %v", k.toLeader, k.toGateway, err)
		}
		ts.until("the session is closed", func() bool { return ts.engine.Snapshot(ts.cfg.Now()).Reserved == 0 })
	}
	for _, step := range []struct{ toLeader, toGateway int }{{37, 0}, {0, 4999}} {
		for i := 0; ; i++ {
			k := &cutTrunk{toLeader: whole, toGateway: whole}
			if step.toLeader > 0 {
				k.toLeader = i * step.toLeader
			} else {
				k.toGateway = i * step.toGateway
			}
			if session(k); !k.cut.Load() {
				break
			}
		}
	}
}

// Whatever a leader says, the gateway ends its trunk at worst, and forwards over the next one.
func TestAGatewayTakesWhateverALeaderSays(t *testing.T) {
	t.Parallel()
	ts, leader := serveForwarded(t, "unix", hooks{}, func(*Config) {})
	for range some(200) {
		k := leader.welcome()
		var clients []*client
		for range 3 {
			c := ts.dial()
			_, _ = io.WriteString(c, "reserve\r\nput 0 0 9 20000\r\n"+strings.Repeat("x", rand.IntN(18_000)))
			if rand.IntN(4) == 0 {
				_ = c.Conn.(*net.UnixConn).CloseWrite()
			}
			clients = append(clients, c)
		}
		for range 30 {
			it := trunk.Item{Channel: 1 + rand.Uint32N(3+rand.Uint32N(2))}
			switch rand.IntN(12) {
			case 0:
				it.Kind, it.Number, it.Flags = trunk.KindEnd, rand.Uint32N(100), uint8(rand.IntN(2))
			case 1, 2:
				it.Kind, it.Number = trunk.KindCredit, 1+rand.Uint32N(5000)
			case 3:
				it.Kind, it.Data = trunk.KindState, []byte("a")
			case 4:
				it.Kind, it.Data = trunk.KindDenied, new(trunk.Denied).Append(nil)
			case 5:
				it = trunk.Item{Kind: trunk.KindPong}
			default:
				it.Kind, it.Data = trunk.KindReplies, bytes.Repeat([]byte("y"), 1+rand.IntN(2000))
				if rand.IntN(10) == 0 {
					it.Number = rand.Uint32N(20_000)
				}
			}
			if k.write(func(w *trunk.Writer) { w.Add(&it) }) != nil {
				break // it has ended the trunk
			}
		}
		k.Close()
		for _, c := range clients {
			c.Close()
		}
	}
	k := leader.welcome()
	ts.dial().send("use a\r\n")
	for {
		it, err := k.next()
		if err != nil {
			t.Fatal(err)
		}
		if it.Kind == trunk.KindInput && string(it.Data) == "use a\r\n" {
			break
		}
	}
	if n := ts.sum().Panics; n != 0 {
		t.Errorf("%d panics", n)
	}
}
