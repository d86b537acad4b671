package accept

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/reactor/tlstest"
)

// refused returns the error that a client gets which sends a command behind the handshake:
// over TLS 1.3 it may not know before that it was refused.
func refused(addr net.Addr, config *tls.Config) error {
	c, err := tlsAddr{addr, config}.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.WriteString(c, "use a\r\n")
	if _, e := c.Read(make([]byte, 10)); e != nil {
		return e
	}
	return err
}

func TestARefusedClientAlwaysSeesTheAlert(t *testing.T) {
	t.Parallel()
	ts := serveLoops(t, 2, hooks{}, func(c *Config) { c.Alert = time.Hour })
	addr := ts.serveTLS(mutualTLS())
	ca := pki().ca
	huge := ca.Issue("huge", func(c *x509.Certificate) {
		for i := range 3000 {
			c.DNSNames = append(c.DNSNames, fmt.Sprintf("%0100d.example", i))
		}
	})
	times := 25
	n := 0
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, tt := range map[string]struct {
			cert tls.Certificate
			want string // for TLS 1.3
		}{
			"missing":       {tls.Certificate{}, "certificate required"},
			"expired":       {ca.Issue("c", tlstest.Expired), "expired certificate"},
			"foreign":       {tlstest.NewAuthority("other").Issue("c", nil), "unknown certificate authority"},
			"another usage": {ca.Issue("c", tlstest.Usage(x509.ExtKeyUsageServerAuth)), "bad certificate"},
			"huge":          {huge, ""},
		} {
			t.Run(fmt.Sprintf("%s/%x", name, version), func(t *testing.T) {
				config := addr.as(tt.cert)
				config.MinVersion, config.MaxVersion = version, version
				if version == tls.VersionTLS12 && name == "missing" {
					tt.want = "handshake failure"
				}
				for range times {
					if err := refused(addr.Addr, config); err == nil || !strings.Contains(err.Error(), "remote error: tls: "+tt.want) {
						t.Fatalf("got %v", err)
					}
				}
			})
			n += times
		}
	}
	st := ts.untilHandshakes()
	got := st.count(HandshakeCertificate) + st.count(HandshakeProtocol)
	if got != uint64(n) || st.count(HandshakeOK) != 0 {
		t.Errorf("%d were refused, want %d", got, n)
	}
	good := tlsAddr{addr.Addr, addr.as(ca.Issue("client", nil))}
	dial(t, good).do("use a\r\n", "USING a\r\n")
}

// Whatever occupies the handshakes, a good client is served, and nothing is left in
// the end.
func TestAFloodOfHandshakesLeavesRoomForAGoodClient(t *testing.T) {
	t.Parallel()
	hello := helloOf(t)
	for name, flood := range map[string]func(c net.Conn){
		"silent":     func(net.Conn) {},
		"half hello": func(c net.Conn) { _, _ = c.Write(hello[:len(hello)/2]) },
		"hello only": func(c net.Conn) { _, _ = c.Write(hello) },
		"plain text": func(c net.Conn) { _, _ = io.WriteString(c, "stats\r\n") },
		"byte by byte": func(c net.Conn) {
			for i := range hello {
				if _, err := c.Write(hello[i : i+1]); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := serve(t, hooks{}, func(c *Config) { c.MaxConnections = 400 })
			addr := ts.serveTLS(serverTLS())
			established := dial(t, addr)
			established.do("use a\r\n", "USING a\r\n") // until then, its handshake may not have ended for the server
			const n = 300
			var conns []net.Conn
			var writers sync.WaitGroup
			for range n {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
				writers.Go(func() { flood(c) })
			}
			dial(t, addr).do("use a\r\n", "USING a\r\n")
			established.do("use b\r\n", "USING b\r\n")
			if pending := ts.Handshakes().Pending; pending > 400/4 {
				t.Errorf("%d handshakes are under way", pending)
			}
			for _, c := range conns {
				c.Close()
			}
			writers.Wait()
			st := ts.untilHandshakes()
			var ended uint64
			for r := range NumHandshakeResults {
				ended += st.count(r)
			}
			// Those that were refused, or never accepted, have begun none.
			if over := ts.Stats().RefusedOver; ended+over > n+2 || st.count(HandshakeOK) != 2 {
				t.Errorf("%d handshakes have ended, %d of them well; %d were refused", ended, st.count(HandshakeOK), over)
			}
			established.do("use c\r\n", "USING c\r\n")
		})
	}
}

// gatekeeper makes handshakes wait, while it is closed, when they begin to compute.
type gatekeeper struct {
	closed    atomic.Bool
	open      chan struct{} // is closed when all may go on
	computing atomic.Int64
	most      atomic.Int64 // that computed at a time
	hellos    atomic.Int64 // that were let through
	passed    func()       // is called when a hello was read
}

// guard makes the gatekeeper see the hellos of a server's clients.
func (g *gatekeeper) guard(config *tls.Config) *tls.Config {
	g.open = make(chan struct{})
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		n := g.computing.Add(1)
		defer g.hellos.Add(1)
		defer g.computing.Add(-1)
		if n > g.most.Load() {
			g.most.Store(n)
		}
		if g.closed.Load() {
			<-g.open
		} else if g.passed != nil {
			g.passed()
		}
		return nil, nil
	}
	return config
}

// release lets all go on.
func (g *gatekeeper) release() {
	g.closed.Store(false)
	close(g.open)
}

// crowd is how many handshakes have begun, how many have not, and how many of those that
// have wait for a token.
func (ts *testServer) lines() (begun, fresh, waiting int) {
	hs := &ts.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.crowd.count(lineBegun), hs.crowd.count(lineNew), len(hs.waiting)
}

// inLine is how many handshakes wait for a token to begin with.
func (ts *testServer) inLine() int {
	hs := &ts.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.line.Len()
}

// setTokens leaves a server n tokens for handshakes, while none is in use.
func (ts *testServer) setTokens(n int) {
	hs := &ts.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.tokens = n
}

// connectAll has n clients connect, which send the same and nothing more.
func connectAll(t *testing.T, addr net.Addr, n int, first []byte) {
	t.Helper()
	for range n {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = c.Write(first)
	}
}

// pausing is a client's end of a connection that keeps what comes after the hello until it
// may go.
type pausing struct {
	net.Conn
	hello bool // it was sent
	goOn  chan struct{}
}

func (c *pausing) Write(p []byte) (int, error) {
	if c.hello {
		<-c.goOn
	}
	c.hello = true
	return c.Conn.Write(p)
}

// pausingHandshakes begins n handshakes that the server has answered and that go on when
// goOn is closed. Each sends an error, or nil, when the server has answered a command.
func pausingHandshakes(t *testing.T, addr tlsAddr, n int, goOn chan struct{}) chan error {
	t.Helper()
	served := make(chan error, n)
	for range n {
		nc, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(testTimeout))
		go func() {
			c := tls.Client(&pausing{Conn: nc, goOn: goOn}, addr.client)
			_, err := io.WriteString(c, "use a\r\n")
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, len("USING a\r\n")))
			}
			served <- err
		}()
	}
	return served
}

// While handshakes compute, those that come have no goroutine, no buffer, nothing but a
// descriptor; and whoever is served already goes on.
func TestAHandshakeBeginsOnlyWhenItMayCompute(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, nil)
	ts.setTokens(1)
	var g gatekeeper
	addr := ts.serveTLS(g.guard(serverTLS()))
	established := dial(t, addr)
	established.do("use a\r\n", "USING a\r\n")
	g.closed.Store(true)
	connectAll(t, addr, 1, helloOf(t))
	ts.until("the token is in use", func() bool { return g.computing.Load() == 1 })
	const n = 60
	connectAll(t, addr, n-1, helloOf(t))
	ts.until("all were accepted", func() bool {
		begun, fresh, _ := ts.lines()
		return begun+fresh == n
	})
	if begun, _, _ := ts.lines(); begun != 1 {
		t.Errorf("%d handshakes have begun", begun)
	}
	established.do("use b\r\n", "USING b\r\n")
	g.release()
	ts.until("all were answered", func() bool { return g.hellos.Load() == 1+n })
	if most := g.most.Load(); most != 1 {
		t.Errorf("%d handshakes have computed at a time", most)
	}
}

// What a client was sent has cost something, and it may be about to answer.
func TestAHandshakeThatHasBegunIsNotGivenUpForACrowdOfNewOnes(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, func(c *Config) { c.MaxConnections = 80 })
	ts.setTokens(1)
	var g gatekeeper
	addr := ts.serveTLS(g.guard(serverTLS()))
	goOn := make(chan struct{})
	served := pausingHandshakes(t, addr, 1, goOn)
	ts.until("it was answered", func() bool { return g.hellos.Load() == 1 && ts.idleTokens() == 1 })
	g.closed.Store(true)
	connectAll(t, addr, 1, helloOf(t))
	ts.until("the token is in use", func() bool { return g.computing.Load() == 1 })
	const more = 100
	connectAll(t, addr, more, nil)
	ts.until("all were accepted", func() bool {
		begun, fresh, _ := ts.lines()
		return begun == 2 && fresh == 80/4-2 && ts.Handshakes().count(HandshakeCrowded) == more-(80/4-2)
	})
	g.release()
	close(goOn)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// idleTokens is how many tokens no handshake has.
func (ts *testServer) idleTokens() int {
	hs := &ts.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.tokens
}

// Otherwise nobody would ever be done while more come than the server can serve; and if
// new ones never had a turn, those that dribble would keep them out.
func TestHandshakesThatHaveBegunGoOnBeforeNewOnesButForEveryFifthTurn(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, nil)
	ts.setTokens(1)
	var done []uint64 // how many handshakes had ended well when each of the new ones began; of the one that has the token
	g := gatekeeper{passed: func() { done = append(done, ts.Handshakes().count(HandshakeOK)) }}
	addr := ts.serveTLS(g.guard(serverTLS()))
	const begun, fresh = 8, 3
	goOn := make(chan struct{})
	served := pausingHandshakes(t, addr, begun, goOn)
	ts.until("they were answered", func() bool { return g.hellos.Load() == begun && ts.idleTokens() == 1 })
	g.closed.Store(true)
	connectAll(t, addr, 1, helloOf(t))
	ts.until("the token is in use", func() bool { return g.computing.Load() == 1 })
	close(goOn)
	connectAll(t, addr, fresh, helloOf(t))
	ts.until("all others wait for it", func() bool {
		_, _, waiting := ts.lines()
		return ts.inLine() == fresh && waiting == begun
	})
	ts.handshakes.mu.Lock()
	ts.handshakes.inRow = 0
	ts.handshakes.mu.Unlock()
	done = nil // the first handshakes' hellos
	g.release()
	for range begun {
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	ts.until("all were answered", func() bool {
		n, f, _ := ts.lines()
		return n == 1+fresh && f == 0 && ts.idleTokens() == 1
	})
	if want := []uint64{inRowMost, 2 * inRowMost, 2 * inRowMost}; !slices.Equal(done, want) {
		t.Errorf("they began after %d others, want %d", done, want)
	}
}

// helloOf is what a client sends first.
func helloOf(t *testing.T) []byte {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(here, &tls.Config{ServerName: tlstest.Name}).Handshake()
		here.Close()
	}()
	defer there.Close()
	b := make([]byte, 64<<10)
	n, err := there.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestASilentHandshakeIsGivenUpWhenNobodyElseHasAPlace(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, func(c *Config) { c.MaxConnections = 4 })
	addr := ts.serveTLS(serverTLS())
	kept := []*client{ts.dial(), ts.dial(), ts.dial()}
	for i, c := range kept {
		c.do(fmt.Sprintf("use t%d\r\n", i), fmt.Sprintf("USING t%d\r\n", i))
	}
	silent, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ts.until("it has the last place", func() bool { return ts.Stats().Places == 4 })
	ts.until("a client gets the place", func() bool {
		c, err := net.Dial("tcp", ts.addr.String())
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.WriteString(c, "use a\r\n")
		b, _ := io.ReadAll(io.LimitReader(c, 7))
		return string(b) == "USING a"
	})
}

func TestShutdownEndsHandshakesWhereverTheyAre(t *testing.T) {
	t.Parallel()
	hello := helloOf(t)
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serveLoops(t, 2, h, nil)
		addr := ts.serveTLS(serverTLS())
		for _, part := range []int{0, 1, len(hello) / 2, len(hello)} {
			connectAll(t, addr, 5, hello[:part])
		}
		c := dial(t, addr)
		c.do("use a\r\n", "USING a\r\n")
		ts.until("all handshakes are under way", func() bool { return ts.Handshakes().Pending == 20 })
		ts.shutDown()
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
			t.Errorf("got %q, %v, want the end", b, err)
		}
		if st := ts.Handshakes(); st.Pending != 0 || st.count(HandshakeStopped) != 20 {
			t.Errorf("%d are under way, %d were stopped", st.Pending, st.count(HandshakeStopped))
		}
	})
}

func TestAbortEndsHandshakesWhereverTheyAre(t *testing.T) {
	t.Parallel()
	hello := helloOf(t)
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serveLoops(t, 2, h, nil)
		addr := ts.serveTLS(serverTLS())
		parts := []int{0, 1, len(hello) / 2, len(hello)}
		for _, part := range parts {
			connectAll(t, addr, 5, hello[:part])
		}
		ts.until("all handshakes are under way", func() bool { return ts.Handshakes().Pending == 5*len(parts) })
		ts.abort()
		st, places := ts.Handshakes(), ts.Stats().Places
		if st.Pending != 0 || st.count(HandshakeStopped) != uint64(5*len(parts)) || places != 0 {
			t.Errorf("%d are under way, %d were stopped; %d connections are left",
				st.Pending, st.count(HandshakeStopped), places)
		}
	})
}

// A handshake has a goroutine of its own, which waits for its client and for no loop.
func TestAbortEndsHandshakesAlsoIfALoopHangs(t *testing.T) {
	t.Parallel()
	ts := serveLoops(t, 2, hooks{}, nil)
	ts.setTokens(1)
	var g gatekeeper
	addr := ts.serveTLS(g.guard(serverTLS()))
	const begun, fresh = 4, 3
	goOn := make(chan struct{})
	served := pausingHandshakes(t, addr, begun, goOn)
	ts.until("they were answered", func() bool { return g.hellos.Load() == begun && ts.idleTokens() == 1 })
	ts.setTokens(0) // so that no more begin
	connectAll(t, addr, fresh, nil)
	ts.until("all were accepted", func() bool {
		b, f, _ := ts.lines()
		return b == begun && f == fresh
	})
	goOnLoop := ts.loops[1].hang() // which watches the silent ones
	ts.Abort()
	ts.until("no handshake is under way", func() bool { return ts.Handshakes().Pending == 0 })
	close(goOn)
	for range begun {
		if err := <-served; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client in its handshake sees %v", err)
		}
	}
	ts.until("all have ended", func() bool { return ts.Handshakes().count(HandshakeStopped) == begun+fresh })
	goOnLoop()
}

// Nobody keeps a handshake under way by sending a little now and then.
func TestAHandshakeThatTakesTooLongEnds(t *testing.T) {
	t.Parallel()
	hello := helloOf(t)
	for name, first := range map[string][]byte{
		"silent": nil, "half a hello": hello[:len(hello)/2], "a hello only": hello,
	} {
		t.Run(name, func(t *testing.T) {
			watchedOrNot(t, func(t *testing.T, h hooks) {
				ts := serve(t, h, func(c *Config) { c.Handshake = 20 * time.Millisecond })
				addr := ts.serveTLS(serverTLS())
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				_, _ = c.Write(first)
				_, err = io.Copy(io.Discard, c)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the server keeps the connection")
				}
				if st := ts.untilHandshakes(); st.count(HandshakeTimeout) != 1 {
					t.Errorf("%+v", st)
				}
				if log := ts.log.String(); !strings.Contains(log, "result=timeout error=\"i/o timeout\"") {
					t.Errorf("the log:\n%s", log)
				}
			})
		})
	}
}

// Nobody else looks at those that could not begin.
func TestAHandshakeThatCannotBeginInTimeEnds(t *testing.T) {
	t.Parallel()
	hello := helloOf(t)
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serve(t, h, func(c *Config) { c.Handshake = 20 * time.Millisecond })
		ts.setTokens(0)
		addr := ts.serveTLS(serverTLS())
		var ended uint64
		for range 2 {
			for _, first := range [][]byte{nil, hello[:len(hello)/2], hello} {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				_, _ = c.Write(first)
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("the server keeps the connection")
				}
				ended++
			}
			if k := ts.untilHandshakes().count(HandshakeTimeout); k != ended {
				t.Errorf("%d handshakes took too long, want %d", k, ended)
			}
		}
	})
}

// A server has more goroutines run at a time than there are processors, as a rule: those
// that wait in system calls count.
func TestACrowdOfHandshakesLeavesHalfOfTheProcessorsWhateverGOMAXPROCSIs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4*processors + 4))
	ts := serve(t, hooks{}, nil)
	if n := ts.idleTokens(); n != max(1, processors/2) {
		t.Errorf("%d handshakes may compute at a time on %d processors", n, processors)
	}
}

// A good client is the newest, as it sends its hello at once.
func TestOfSilentClientsTheOldestAreGivenUpForACrowd(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serve(t, h, func(c *Config) { c.MaxConnections = 80 })
		addr := ts.serveTLS(serverTLS())
		const most, more = 80 / 4, 15
		var conns []net.Conn
		for i := range most + more {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(testTimeout))
			conns = append(conns, c)
			ts.until("it is waited for", func() bool { // otherwise a newer one may be given up in its place
				st := ts.Handshakes()
				return st.Pending+int(st.count(HandshakeCrowded)) == i+1 && ts.inLine() == 0 &&
					ts.idleTokens() == max(1, processors/2)
			})
		}
		for _, c := range conns[:more] {
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("an old one was kept")
			}
		}
		if st := ts.Handshakes(); st.Pending != most || st.count(HandshakeCrowded) != more {
			t.Errorf("%d are under way, %d were given up", st.Pending, st.count(HandshakeCrowded))
		}
		for _, c := range conns[more:] {
			if err := tls.Client(c, addr.client).Handshake(); err != nil {
				t.Errorf("one of the newest: %v", err)
			}
		}
	})
}

func TestAClientThatClosesWhileItIsSilentIsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	hello := helloOf(t)
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serve(t, h, nil)
		addr := ts.serveTLS(serverTLS())
		n := uint64(0)
		for name, end := range map[string]func(c *net.TCPConn) error{
			"closed": (*net.TCPConn).Close,
			"reset":  func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
		} {
			for _, part := range []int{0, 1, 5, len(hello) / 2} {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write(hello[:part])
				ts.until("it was accepted", func() bool { return ts.Handshakes().Pending == 1 })
				if err := end(c.(*net.TCPConn)); err != nil {
					t.Fatal(err)
				}
				n++
				if k := ts.untilHandshakes().count(HandshakeClosed); k != n {
					t.Fatalf("%s after %d bytes: %d handshakes have ended so, want %d", name, part, k, n)
				}
			}
		}
		dial(t, addr).do("use a\r\n", "USING a\r\n")
	})
}

// The alert tells somebody who has mixed up the ports what is wrong, however much was sent,
// and although the server reads no more of it than it needs.
func TestAClientThatDoesNotSpeakTLSAlwaysSeesTheAlert(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pieces []string
		half   bool // the client ends its half before it reads
	}{
		"a command":           {[]string{"stats\r\n"}, false},
		"in pieces":           {[]string{"s", "ta", "ts\r\n", "stats\r\n"}, false},
		"more than is read":   {[]string{strings.Repeat("stats\r\n", 300<<10/7)}, false},
		"with its end":        {[]string{"stats\r\n"}, true},
		"a lot, and its end":  {[]string{strings.Repeat("stats\r\n", 300<<10/7)}, true},
		"a version too big":   {[]string{"\x16\x10\x00\x00\x01x"}, false},
		"a record of no kind": {[]string{"\x17\x03\x03\x00\x05hello"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			watchedOrNot(t, func(t *testing.T, h hooks) {
				ts := serve(t, h, func(c *Config) { c.Alert = time.Hour })
				addr := ts.serveTLS(serverTLS())
				nc, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(testTimeout))
				for _, piece := range tt.pieces {
					if _, err := io.WriteString(nc, piece); err != nil {
						t.Fatal(err)
					}
				}
				if tt.half {
					if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
						t.Fatal(err)
					}
				}
				got, err := io.ReadAll(nc)
				if err != nil || !bytes.Equal(got, noTLSAlert) {
					t.Errorf("got %v, %v", got, err)
				}
				nc.Close()
				if n := ts.untilHandshakes().count(HandshakeProtocol); n != 1 {
					t.Errorf("%d handshakes have ended so, want 1:\n%s", n, ts.log.String())
				}
				for _, want := range []string{
					"result=protocol", "peer=" + nc.LocalAddr().String(),
					"error=\"tls: first record does not look like a TLS handshake\"",
				} {
					if log := ts.log.String(); !strings.Contains(log, want) {
						t.Errorf("no %s in the log:\n%s", want, log)
					}
				}
			})
		})
	}
}

func TestAClientThatWasToldThatItDoesNotSpeakTLSIsNotKept(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serve(t, h, func(c *Config) { c.MaxConnections = 80 })
		addr := ts.serveTLS(serverTLS())
		const n = 60 // of which a third are given up for others
		connectAll(t, addr, n, []byte("stats\r\n"))
		if pending := ts.Handshakes().Pending; pending > 80/4 {
			t.Errorf("%d are under way", pending)
		}
		ts.until("all were told", func() bool { // or given up before anybody has looked at them
			st := ts.Handshakes()
			return st.count(HandshakeProtocol)+st.count(HandshakeCrowded) == n
		})
		ts.untilHandshakes() // the clients have closed nothing
		endless, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer endless.Close()
		_ = endless.SetDeadline(time.Now().Add(testTimeout))
		for err == nil {
			_, err = endless.Write(make([]byte, 64<<10))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a client may send without end")
		}
		ts.untilHandshakes()
	})
}

// A client may send more in a handshake than it can need. It is cut off, and told so.
func TestAHandshakeIsBounded(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, func(c *Config) { c.Alert = time.Hour })
	addr := ts.serveTLS(serverTLS())
	config := addr.client.Clone()
	for i := range 2000 {
		config.NextProtos = append(config.NextProtos, fmt.Sprintf("protocol-%05d", i))
	}
	if err := refused(addr.Addr, config); err == nil || !strings.Contains(err.Error(), "remote error") {
		t.Errorf("got %v", err)
	}
	if st := ts.untilHandshakes(); st.count(HandshakeProtocol) != 1 {
		t.Errorf("%+v", st)
	}
}

func TestAFailedHandshakeIsLoggedWithThePeer(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, nil)
	addr := ts.serveTLS(mutualTLS())
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(nc, addr.client)
	defer c.Close()
	_ = c.Handshake()
	_, _ = io.Copy(io.Discard, c)
	want := "result=certificate"
	ts.until("it was logged", func() bool { return strings.Contains(ts.log.String(), want) })
	log := ts.log.String()
	if !strings.Contains(log, "peer="+nc.LocalAddr().String()) || !strings.Contains(log, "listener="+addr.String()) {
		t.Errorf("the log:\n%s", log)
	}
}

// FuzzHandshake sends what is no handshake, or nearly one, to a server for TLS, which
// must forget about it and serve others.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte("stats\r\n"))
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 3})
	f.Add([]byte{22, 3, 1, 0x40, 0})
	f.Add([]byte{21, 3, 3, 0, 2, 2, 80})
	f.Add([]byte{0x80, 0x2e, 1, 0, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		ts := serve(t, hooks{}, nil)
		addr := ts.serveTLS(mutualTLS())
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		_, _ = c.Write(in)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		st := ts.untilHandshakes()
		if st.count(HandshakeOK) != 0 {
			t.Error("the handshake has succeeded")
		}
		ts.dial().do("use a\r\n", "USING a\r\n")
	})
}
