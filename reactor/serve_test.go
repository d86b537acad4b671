package reactor

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

// few: some cases are enough of those that differ in what comes and not in who meets, as the race detector sees no more
// in the others.
const few = !proof || raceEnabled

// some is how many of n repetitions, or of n seeds, there are outside of a proof, and in one with the race detector.
func some(n int) int {
	switch {
	case !proof:
		return max(1, n/10)
	case raceEnabled:
		return max(1, n/3)
	}
	return n
}

// networks runs a test over TCP, over a Unix socket, over TLS, through a gateway, and, in a proof, over trunks
// without one.
func networks(t *testing.T, f func(t *testing.T, network string)) {
	gatewayNetwork(t, f)
	if proof {
		t.Run("trunk", func(t *testing.T) { f(t, "trunk") })
	}
	directNetworks(t, f)
}

// gatewayNetwork runs a test through a gateway.
func gatewayNetwork(t *testing.T, f func(t *testing.T, network string)) {
	t.Run("gateway", func(t *testing.T) { f(t, "gateway") })
}

// serverNetworks runs a test over all networks but through a gateway. It is for tests of how a server ends, of which
// a gateway's clients hear less, and of what it keeps for those who do not read, some of which the gateway keeps.
func serverNetworks(t *testing.T, f func(t *testing.T, network string)) {
	t.Run("trunk", func(t *testing.T) { f(t, "trunk") })
	directNetworks(t, f)
}

// directNetworks runs a test over all networks but trunks. Over those, others than the leader decide who
// may connect, and sessions end with the engine.
func directNetworks(t *testing.T, f func(t *testing.T, network string)) {
	t.Run("unix", func(t *testing.T) { f(t, "unix") })
	tcpNetworks(t, f)
}

// tcpNetworks runs a test over TCP and over TLS.
func tcpNetworks(t *testing.T, f func(t *testing.T, network string)) {
	for _, n := range []string{"tcp", "tls1.2", "tls1.3"} {
		if n == "tls1.2" && few {
			continue
		}
		t.Run(n, func(t *testing.T) { f(t, n) })
	}
}

// plainNetworks runs a test over TCP and over a Unix socket.
func plainNetworks(t *testing.T, f func(t *testing.T, network string)) {
	for _, n := range []string{"tcp", "unix"} {
		t.Run(n, func(t *testing.T) { f(t, n) })
	}
}

func TestRepliesComeInTheOrderOfTheCommands(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 2, hooks{})
		c := ts.dial()
		var send, want strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&send, "use t%d\r\nbogus\r\n", i)
			fmt.Fprintf(&want, "USING t%d\r\nUNKNOWN_COMMAND\r\n", i)
		}
		go c.send(send.String())
		c.expect(want.String())
	})
}

func TestAnyCutOfTheInputIsServed(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c := ts.dial()
		body := strings.Repeat("x", 3000)
		input := fmt.Sprintf("use a\r\nput 0 0 60 %d\r\n%s\r\nwatch a\r\nreserve\r\ndelete 1\r\n", len(body), body)
		go func() {
			for _, b := range []byte(input) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}()
		c.expect("USING a\r\nINSERTED 1\r\nWATCHING 2\r\n" + reserved(1, body) + "DELETED\r\n")
	})
}

func TestCommandsBehindAWaitingReserveAreExecutedAfterIt(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 2, hooks{})
		w, p := ts.dial(), ts.dial()
		w.send("reserve\r\ndelete 1\r\nreserve\r\ndelete 2\r\nuse after\r\nwat")
		ts.untilWaiting(1)
		p.put("one")
		w.expect(reserved(1, "one") + "DELETED\r\n")
		ts.untilWaiting(1)
		w.send("ch after\r\n")
		p.put("two")
		w.expect(reserved(2, "two") + "DELETED\r\nUSING after\r\nWATCHING 2\r\n")
	})
}

// A client that waits may send more than is kept for it. Nothing of it is lost,
// and the rest stays in the system's buffers.
func TestMuchInputBehindAWaitingReserveIsReadLater(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		w := ts.dial()
		const n = 100_000
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.send("reserve\r\n" + strings.Repeat("use a\r\n", n))
		}()
		keeps := int64(stream.KeepInput)
		if network == "trunk" || network == "gateway" {
			keeps = trunk.FirstCredit - int64(len("reserve\r\n"))
		}
		ts.until("the reactor stops reading", func() bool { return ts.sum().PendingInput >= keeps })
		if ts.sum().BytesIn > stream.KeepInput+3*stream.ReadSize {
			t.Errorf("%d bytes were read", ts.sum().BytesIn)
		}
		ts.dial().put("x")
		w.expect(reserved(1, "x") + strings.Repeat("USING a\r\n", n))
		<-done
		if in, _ := ts.peaks(); in > stream.KeepInput+2*stream.ReadSize {
			t.Errorf("%d bytes of input were kept", in)
		}
		ts.until("nothing is kept any more", func() bool { return ts.sum().PendingInput == 0 })
	})
}

func TestJobsAreHandedOverBetweenLoops(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 4, hooks{})
	const workers, rounds = 32, 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range workers {
		w := ts.dial()
		wg.Go(func() {
			for range rounds {
				w.send("reserve\r\n")
				var id uint64
				var n int
				line := w.line()
				if _, err := fmt.Sscanf(line, "RESERVED %d %d", &id, &n); err != nil {
					t.Errorf("got %q, want RESERVED", line)
					return
				}
				body := w.line()
				w.do(fmt.Sprintf("delete %d\r\n", id), "DELETED\r\n")
				mu.Lock()
				got[body]++
				mu.Unlock()
			}
		})
	}
	for i := range 4 {
		p := ts.dial()
		wg.Go(func() {
			for j := range workers * rounds / 4 {
				p.put(fmt.Sprintf("%d/%d", i, j))
			}
		})
	}
	wg.Wait()
	if len(got) != workers*rounds {
		t.Errorf("%d different jobs came, want %d", len(got), workers*rounds)
	}
	for i, l := range ts.Stats().Loops {
		if l.Opened == 0 {
			t.Errorf("loop %d has served nobody", i)
		}
	}
}

// One connection's commands may wake others on the same loop, whose waiting
// commands wake the next.
func TestAWokenClientsCommandsWakeTheNext(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		const n = 50
		var chain []*client
		for i := range n {
			c := ts.dial()
			c.send(fmt.Sprintf("watch t%d\r\nuse t%d\r\nreserve\r\nput 0 0 60 1\r\nx\r\n", i, i+1))
			c.expect(fmt.Sprintf("WATCHING 2\r\nUSING t%d\r\n", i+1))
			chain = append(chain, c)
		}
		ts.untilWaiting(n)
		p := ts.dial()
		p.do("use t0\r\n", "USING t0\r\n")
		p.put("x")
		for i, c := range chain {
			c.expect(reserved(uint64(i+1), "x") + fmt.Sprintf("INSERTED %d\r\n", i+2))
		}
	})
}

func TestReserveTimesOut(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	c := ts.dial()
	c.do("reserve-with-timeout 1\r\nuse a\r\n", "TIMED_OUT\r\nUSING a\r\n")
	p := ts.dial()
	p.do("put 0 1 60 1\r\nd\r\n", "INSERTED 1\r\n")
	c.do("reserve-with-timeout 1000\r\n", reserved(1, "d"))
}

func TestBigRepliesArriveWhole(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c := ts.dial()
		body := strings.Repeat("0123456789abcdef", maxJob/16)
		c.put(body)
		go c.send(strings.Repeat("peek 1\r\n", 20))
		for range 20 {
			c.expect(fmt.Sprintf("FOUND 1 %d\r\n%s\r\n", len(body), body))
		}
	})
}

func TestAllListenersAreServed(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	a, b := dial(t, ts.listen("unix")), dial(t, ts.listen("tcp"))
	ts.dial().put("x")
	a.do("reserve\r\n", reserved(1, "x"))
	b.do("stats-job 2\r\n", "NOT_FOUND\r\n")
}

func TestAcceptedTCPConnectionsHaveKeepAliveAndNoDelay(t *testing.T) {
	t.Parallel()
	got := make(chan [2]int, 1)
	ts := serve(t, "tcp", 1, hooks{command: func(c *conn, _ *codec.Command) {
		alive, _ := unix.GetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		noDelay, _ := unix.GetsockoptInt(c.FD(), unix.IPPROTO_TCP, unix.TCP_NODELAY)
		got <- [2]int{alive, noDelay}
	}})
	lc := net.ListenConfig{KeepAlive: -1}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts.serving.Go(func() { _ = ts.Serve(l) })
	dial(t, l.Addr()).do("use a\r\n", "USING a\r\n")
	if got := <-got; got[0] == 0 || got[1] == 0 {
		t.Errorf("keep-alive %d, no-delay %d", got[0], got[1])
	}
}

func TestAnIdleConnectionIsSmall(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(conn{}); n > 224 {
		t.Errorf("a connection's own memory is %d bytes", n)
	}
}

func TestAJobThatComesDueWhenASilentClientConnectsIsDelivered(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	e := engine.New(engine.Config{
		MaxJobSize: maxJob,
		Info:       engine.Info{Usage: func() (u, s time.Duration) { return 0, 0 }},
	})
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) {
		now := c.Now
		c.Engine, c.Now = e, func() engine.Time { return now() + engine.Time(ahead.Load()) }
	})
	worker, producer := ts.dial(), ts.dial()
	worker.send("reserve\r\n")
	producer.do("put 0 60 60 1\r\nx\r\n", "INSERTED 1\r\n")
	ts.until("the worker waits", func() bool { return e.Snapshot(0).Waiting == 1 })
	ahead.Store(int64(time.Minute))
	ts.dial()
	worker.expect(reserved(1, "x"))
}
