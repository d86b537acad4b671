package accept

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/tlstest"
)

// testTimeout is how long a test waits for something that must happen. A busy machine takes its time.
const testTimeout = time.Minute

func TestMain(m *testing.M) {
	// gnet has a pool of goroutines at package level, which go when they have been idle for long.
	gnets := goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1")
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), gnets)
}

// testServer accepts connections and serves each in a goroutine. It knows the commands use, whose reply is like that of
// a real server, and peer, which is answered with the client's address.
type testServer struct {
	*Acceptor
	t     testing.TB
	loops []*testLoop
	addr  net.Addr
	log   *logBuffer

	next    atomic.Int64      // the number of the loop that has the next connection
	open    atomic.Int64      // connections that were taken in and have not ended
	admit   func(fd int)      // is called with each connection that is taken in; nil for nothing
	mu      sync.Mutex        //
	conns   map[net.Conn]bool // those that are open; guarded by mu
	serving sync.WaitGroup
}

// testLoop is a loop that does nothing but for the acceptor.
type testLoop struct {
	server *testServer
	gnet   *gnetloop.Loop
	mu     sync.Mutex
	calls  []func() // guarded by mu
}

func (l *testLoop) Poller() *gnetloop.Loop { return l.gnet }

func (l *testLoop) Call(f func()) {
	l.mu.Lock()
	l.calls = append(l.calls, f)
	l.mu.Unlock()
	l.gnet.Wake()
}

// Least returns each loop in turn.
func (l *testLoop) Least() Loop {
	s := l.server
	return s.loops[int(s.next.Add(1))%len(s.loops)]
}

func (l *testLoop) Admit(n Arrival) error {
	s := l.server
	if s.admit != nil {
		s.admit(n.FD)
	}
	s.Opened(n.Listener)
	peer := PeerOf(n.FD)
	if n.Client != nil {
		peer = *n.Client
	}
	f := os.NewFile(uintptr(n.FD), "connection")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		s.t.Error(err)
		return err
	}
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	s.open.Add(1)
	s.serving.Go(func() {
		var rw io.ReadWriter = c
		if n.TLS != nil {
			n.Wire.ReadWriter = c
			rw = n.TLS
		}
		answer(rw, peer.String())
		if n.TLS != nil {
			_ = n.TLS.CloseWrite()
		}
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.open.Add(-1)
		s.Closed(n.Listener)
		_ = c.Close()
		s.Freed()
	})
	return nil
}

func (l *testLoop) Post(n Arrival) {
	l.Call(func() {
		if err := l.Admit(n); err != nil {
			l.server.Failed(n, err)
		}
	})
}

func (l *testLoop) MakeRoom() bool { return false }

func (l *testLoop) Round(bool) {
	l.mu.Lock()
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

func (l *testLoop) EndRound()    {}
func (l *testLoop) Writable(int) {}

func (l *testLoop) Reported(number int32, input, ended bool) { l.server.Reported(number, input, ended) }

// answer answers commands until the client has sent its last.
func answer(rw io.ReadWriter, peer string) {
	for in := bufio.NewScanner(rw); in.Scan(); {
		reply := "UNKNOWN_COMMAND"
		if tube, ok := strings.CutPrefix(in.Text(), "use "); ok {
			reply = "USING " + tube
		} else if in.Text() == "peer" {
			reply = peer
		}
		if _, err := io.WriteString(rw, reply+"\r\n"); err != nil {
			return
		}
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve accepts on a TCP socket, with one loop and a configuration that change has changed, and ends with the test.
func serve(t testing.TB, h hooks, change func(*Config)) *testServer {
	t.Helper()
	return serveLoops(t, 1, h, change)
}

// serveLoops is serve with several loops.
func serveLoops(t testing.TB, loops int, h hooks, change func(*Config)) *testServer {
	t.Helper()
	ts := &testServer{t: t, log: new(logBuffer), conns: make(map[net.Conn]bool)}
	log := slog.New(slog.NewTextHandler(ts.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	fatal := func(why string, attrs ...any) { t.Error(why, attrs) }
	pollers, err := gnetloop.Start(gnetloop.Config{Loops: loops, ReadSize: 4096, Log: log, Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{MaxConnections: 10000, Log: log}
	for _, p := range pollers {
		l := &testLoop{server: ts, gnet: p}
		ts.loops = append(ts.loops, l)
		cfg.Loops = append(cfg.Loops, l)
	}
	if change != nil {
		change(&cfg)
	}
	cfg.Handshake = cmp.Or(cfg.Handshake, time.Hour)
	ts.Acceptor = newAcceptor(cfg, h)
	for _, l := range ts.loops {
		if err := l.gnet.Run(l); err != nil {
			t.Fatal(err)
		}
	}
	ts.addr = ts.listen()
	t.Cleanup(func() {
		ts.shutDown()
		if err := gnetloop.Stop(pollers); err != nil {
			t.Error(err)
		}
		ts.Close()
		if n := ts.Stats().Places; n != 0 {
			t.Errorf("places taken at the end: %d", n)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", ts.log)
		}
	})
	return ts
}

// shutDown stops accepting, and closes all connections.
func (ts *testServer) shutDown() {
	ts.Stop()
	ts.Wait()
	for _, l := range ts.loops {
		l.sync() // what was posted has come
	}
	ts.mu.Lock()
	for c := range ts.conns {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	ts.mu.Unlock()
	ts.serving.Wait()
}

// abort is shutDown without waiting for anybody.
func (ts *testServer) abort() {
	ts.Abort()
	ts.shutDown()
}

// sync waits until the loop has made the calls before.
func (l *testLoop) sync() {
	done := make(chan struct{})
	l.Call(func() { close(done) })
	<-done
}

// hang stops the loop, and returns what makes it go on.
func (l *testLoop) hang() (goOn func()) {
	hangs, release := make(chan struct{}), make(chan struct{})
	l.Call(func() {
		close(hangs)
		<-release
	})
	<-hangs
	return func() { close(release) }
}

// listen accepts on one more socket, whose clients do not speak TLS.
func (ts *testServer) listen() net.Addr {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return ts.listenOn(l, err, nil)
}

// listenOn accepts on l.
func (ts *testServer) listenOn(l net.Listener, err error, config *tls.Config) net.Addr {
	ts.t.Helper()
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.serving.Go(func() {
		if err := ts.Serve(l, config); err != nil && !errors.Is(err, ErrClosed) {
			ts.t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr()
}

// serveTLS accepts on one more socket, whose clients speak TLS.
func (ts *testServer) serveTLS(config *tls.Config) tlsAddr {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return tlsAddr{ts.listenOn(l, err, config), tlsClient()}
}

// until waits for a condition.
func (ts *testServer) until(what string, cond func() bool) {
	ts.t.Helper()
	for end := time.Now().Add(testTimeout); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.t.Fatalf("waited in vain until %s: %+v, %+v", what, ts.Stats(), ts.Handshakes())
		}
	}
}

// untilHandshakes waits until no handshake is under way.
func (ts *testServer) untilHandshakes() *HandshakeStats {
	ts.t.Helper()
	ts.until("no handshake is under way", func() bool {
		return ts.Handshakes().Pending == 0 && ts.Stats().Places == ts.open.Load()
	})
	return ts.Handshakes()
}

// count is how many handshakes have ended with a result.
func (st *HandshakeStats) count(r HandshakeResult) (n uint64) {
	for _, k := range st.Took[r].Buckets {
		n += k
	}
	return n
}

// watchedOrNot runs a test with each of the ways in which the server learns that a client begins its handshake.
func watchedOrNot(t *testing.T, f func(t *testing.T, h hooks)) {
	for name, unwatched := range map[string]bool{"a loop waits": false, "a goroutine waits": true} {
		t.Run(name, func(t *testing.T) { f(t, hooks{unwatched: unwatched}) })
	}
}

// client is one connection to the server.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (ts *testServer) dial() *client {
	ts.t.Helper()
	return dial(ts.t, ts.addr)
}

func dial(t testing.TB, addr net.Addr) *client {
	t.Helper()
	var nc net.Conn
	var err error
	if a, ok := addr.(tlsAddr); ok {
		nc, err = a.dial()
	} else {
		nc, err = net.Dial(addr.Network(), addr.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, nc)
}

func newClient(t testing.TB, nc net.Conn) *client {
	_ = nc.SetDeadline(time.Now().Add(testTimeout))
	t.Cleanup(func() { nc.Close() })
	return &client{Conn: nc, t: t, r: bufio.NewReader(nc)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("sending %.40q: %v", s, err)
	}
}

// do sends something, and reads exactly want.
func (c *client) do(send, want string) {
	c.t.Helper()
	c.send(send)
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != want {
		c.t.Fatalf("got %.200q (%v), want %.200q", got[:n], err, want)
	}
}

// sawAs returns as whose connection the server shows a client's.
func (c *client) sawAs() string {
	c.t.Helper()
	c.send("peer\r\n")
	s, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

// pki is what tests have that need nothing special.
var pki = sync.OnceValue(func() (p struct {
	ca     *tlstest.Authority
	server tls.Certificate
},
) {
	p.ca = tlstest.NewAuthority("tests")
	p.server = p.ca.Issue(tlstest.Name, nil)
	return p
})

// tlsAddr is the address of a listener for TLS.
type tlsAddr struct {
	net.Addr
	client *tls.Config
}

// dial connects and does the handshake.
func (a tlsAddr) dial() (*tls.Conn, error) {
	nc, err := net.Dial(a.Network(), a.String())
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(testTimeout))
	c := tls.Client(nc, a.client)
	if err := c.Handshake(); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

// as is a client's configuration with a certificate, which the client sends whatever the server asks for. An empty one
// is none.
func (a tlsAddr) as(c tls.Certificate) *tls.Config {
	config := a.client.Clone()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	return config
}

// serverTLS is the configuration of a server that does not know its clients.
func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{pki().server}, DynamicRecordSizingDisabled: true}
}

// mutualTLS is the configuration of a server that wants certificates of its clients.
func mutualTLS() *tls.Config {
	config := serverTLS()
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, pki().ca.Pool
	return config
}

// tlsClient is the configuration of a client that trusts the server, and has no certificate.
func tlsClient() *tls.Config {
	return &tls.Config{RootCAs: pki().ca.Pool, ServerName: tlstest.Name, DynamicRecordSizingDisabled: true}
}
