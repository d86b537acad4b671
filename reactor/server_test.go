package reactor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trellis/engine"
)

// testTimeout is how long a test waits for something that must happen. A busy machine takes its time.
const testTimeout = time.Minute

func TestMain(m *testing.M) {
	if limit := os.Getenv(childEnv); limit != "" {
		if err := serveShort(limit); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// gnet has a pool of goroutines at package level, which go when they have been
	// idle for long.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"))
}

// testServer is a server with an engine and a listener.
type testServer struct {
	*Server
	t      testing.TB
	engine *engine.Engine
	addr   net.Addr
	log    *logBuffer
	ahead  *atomic.Int64 // of the clock, in a test that changes engines
	dialed atomic.Uint64 // clients, by dial

	serving sync.WaitGroup
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

// newEngine returns an engine and its clock. The engine's timers run until the
// test ends.
func newEngine(t testing.TB) (*engine.Engine, func() engine.Time) {
	return newJournaledEngine(t, nil)
}

func newJournaledEngine(t testing.TB, journal engine.Journal) (*engine.Engine, func() engine.Time) {
	start := time.Now()
	now := func() engine.Time { return engine.Time(time.Since(start)) }
	e := engine.New(engine.Config{
		MaxJobSize: maxJob,
		Journal:    journal,
		Info:       engine.Info{Usage: func() (u, s time.Duration) { return 0, 0 }},
	})
	return e, now
}

const maxJob = 1 << 20

// serve starts a server on network, "tcp" or "unix", and ends it with the test.
func serve(t testing.TB, network string, loops int, h hooks) *testServer {
	t.Helper()
	return serveJournaled(t, network, loops, h, nil)
}

// serveJournaled is serve with a journal, if it is not nil.
func serveJournaled(t testing.TB, network string, loops int, h hooks, j *fakeJournal) *testServer {
	t.Helper()
	return serveConfig(t, network, h, j, func(c *Config) { c.Loops = loops })
}

// serveConfig serves with a configuration that change has changed.
func serveConfig(t testing.TB, network string, h hooks, j *fakeJournal, change func(*Config)) *testServer {
	t.Helper()
	h.handshake, h.linger = cmp.Or(h.handshake, time.Hour), cmp.Or(h.linger, time.Hour)
	var journal engine.Journal
	var committer Committer
	if j != nil {
		journal, committer = j, j
	}
	if network == "trunk" { // sessions are on record
		if j == nil {
			j = new(fakeJournal)
			j.atOnce.Store(true)
		}
		journal, committer = &holdingJournal{fakeJournal: j}, j
	}
	e, now := newJournaledEngine(t, journal)
	ts := &testServer{t: t, engine: e, log: new(logBuffer)}
	cfg := Config{
		Engine: e, Now: now, MaxJobSize: maxJob, Loops: 1, Journal: committer,
		Log: slog.New(slog.NewTextHandler(ts.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	change(&cfg)
	s, err := newServer(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ts.Server = s
	ts.addr = ts.listen(network)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
		ts.serving.Wait()
		for i, l := range s.Stats().Loops {
			if l.Connections != 0 || l.Ending != 0 || l.Stalled != 0 || l.PendingInput != 0 || l.PendingOutput != 0 {
				t.Errorf("loop %d after Shutdown: %+v", i, l)
			}
		}
		if n := s.unflushed.Load(); n != 0 {
			t.Errorf("unflushed after Shutdown: %d", n)
		}
		if n := s.acceptor.Stats().Places; n != 0 {
			t.Errorf("places taken after Shutdown: %d", n)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", ts.log)
		}
	})
	return ts
}

// serveStopped serves with a clock that stands still until it is put ahead. When put returns, the
// loops have looked at their deadlines.
func serveStopped(t testing.TB, network string, h hooks, j *fakeJournal, change func(*Config)) (ts *testServer, put func(time.Duration)) {
	t.Helper()
	var clock atomic.Int64
	ts = serveConfig(t, network, h, j, func(c *Config) {
		change(c)
		clock.Store(int64(c.Now()))
		c.Now = func() engine.Time { return engine.Time(clock.Load()) }
	})
	return ts, func(by time.Duration) {
		clock.Add(int64(by))
		for range 2 { // a loop that is called goes on to what is due
			ts.onLoops(func(*loop) {})
		}
	}
}

// listen makes the server serve one more listener.
func (ts *testServer) listen(network string) net.Addr {
	ts.t.Helper()
	at := "127.0.0.1:0"
	if strings.HasPrefix(network, "tls") {
		return ts.listenTLS(network)
	}
	if network == "trunk" {
		return ts.listenTrunk()
	}
	if network == "gateway" {
		return ts.gatewayOf()
	}
	if network == "unix" {
		dir, err := os.MkdirTemp("", "reactor")
		if err != nil {
			ts.t.Fatal(err)
		}
		ts.t.Cleanup(func() { os.RemoveAll(dir) })
		at = filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, at)
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.serving.Go(func() {
		if err := ts.Serve(l); err != nil && !errors.Is(err, ErrClosed) {
			ts.t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr()
}

// sum adds up the loops' figures.
func (ts *testServer) sum() LoopStats {
	var sum LoopStats
	for _, l := range ts.Stats().Loops {
		sum.Connections += l.Connections
		sum.Ending += l.Ending
		sum.Stalled += l.Stalled
		sum.PendingInput += l.PendingInput
		sum.PendingOutput += l.PendingOutput
		sum.Opened += l.Opened
		sum.BytesIn += l.BytesIn
		sum.BytesOut += l.BytesOut
		sum.Stalls += l.Stalls
		sum.OverLimit += l.OverLimit
		sum.OverOutput += l.OverOutput
		sum.OverTotal += l.OverTotal
		sum.Idle += l.Idle
		sum.Cut += l.Cut
		sum.Aged += l.Aged
		sum.Unverified += l.Unverified
		sum.Lacking += l.Lacking
		sum.Refused += l.Refused
		sum.Unserved += l.Unserved
		sum.TrunkLost += l.TrunkLost
		sum.NoContact += l.NoContact
		sum.Unrepeated += l.Unrepeated
		sum.Lags += l.Lags
		sum.Repeated += l.Repeated
		sum.Attaches += l.Attaches
		sum.Apart += l.Apart
		sum.Contact = max(sum.Contact, l.Contact)
		sum.Unknown += l.Unknown
		sum.Misfits += l.Misfits
		sum.Resumed += l.Resumed
		sum.TrunkIn += l.TrunkIn
		sum.TrunkOut += l.TrunkOut
		sum.Panics += l.Panics
	}
	return sum
}

// peaks are the most that was ever kept for one connection.
func (ts *testServer) peaks() (in, out int64) {
	for _, l := range ts.loops {
		in = max(in, l.streams.Counts.PeakInput.Load())
		out = max(out, l.streams.Counts.PeakOutput.Load())
	}
	return in, out
}

// until waits for a condition.
func (ts *testServer) until(what string, cond func() bool) {
	ts.t.Helper()
	for end := time.Now().Add(testTimeout); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.t.Fatalf("waited in vain until %s: %+v", what, ts.Stats())
		}
	}
}

// untilWaiting waits until n clients wait for jobs.
func (ts *testServer) untilWaiting(n int) {
	ts.t.Helper()
	c := ts.dial()
	defer c.Close()
	want := fmt.Sprintf("\ncurrent-waiting: %d\n", n)
	ts.until(strings.TrimSpace(want), func() bool {
		c.send("stats\r\n")
		return strings.Contains(c.data(), want)
	})
}

// An engine is none the worse for a server that could not be started.
func TestAServerCanStartWhereAnotherCouldNot(t *testing.T) {
	t.Parallel()
	const loops, jobs = 3, 64 // in so many tubes, of all shards
	e, now := newEngine(t)
	var made int
	_, err := newServer(Config{Engine: e, Now: now, MaxJobSize: maxJob, Loops: loops, Log: slog.New(slog.DiscardHandler)}, hooks{
		loop: func() error {
			if made++; made == loops {
				return unix.EMFILE
			}
			return nil
		},
		fatal: func() { t.Error("the process would have ended") },
	})
	if !errors.Is(err, unix.EMFILE) {
		t.Fatalf("got %v", err)
	}
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Engine, c.Now = e, now })
	c := ts.dial()
	for i := range jobs {
		c.do(fmt.Sprintf("use t%d\r\nput 0 1 9 1\r\nx\r\n", i), fmt.Sprintf("USING t%d\r\nINSERTED %d\r\n", i, i+1))
	}
	ts.until("all are ready", func() bool { return e.Snapshot(0).Ready == jobs })
}

// client is one connection to the server.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (ts *testServer) dial() *client {
	ts.t.Helper()
	c := dial(ts.t, ts.addr)
	ts.dialed.Add(1)
	return c
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

// send sends, for which there is the whole time again, as for all that is read.
func (c *client) send(s string) {
	c.t.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("sending %.40q: %v", s, err)
	}
}

func (c *client) allowRead() { _ = c.SetReadDeadline(time.Now().Add(testTimeout)) }

// expect reads exactly want.
func (c *client) expect(want string) {
	c.t.Helper()
	c.allowRead()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != want {
		c.t.Fatalf("got %.200q (%v), want %.200q", got[:n], err, want)
	}
}

func (c *client) do(cmd, want string) {
	c.t.Helper()
	c.send(cmd)
	c.expect(want)
}

func (c *client) line() string {
	c.t.Helper()
	c.allowRead()
	s, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading a line: %v after %q", err, s)
	}
	return strings.TrimSuffix(s, "\r\n")
}

// data reads an OK reply and returns its body.
func (c *client) data() string {
	c.t.Helper()
	line := c.line()
	var n int
	if _, err := fmt.Sscanf(line, "OK %d", &n); err != nil {
		c.t.Fatalf("got %q, want OK <bytes>", line)
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// expectEOF makes sure that the server sends nothing more and says so.
func (c *client) expectEOF() {
	c.t.Helper()
	c.allowRead()
	if b, err := io.ReadAll(c.r); len(b) > 0 || err != nil {
		c.t.Fatalf("got %.200q (%v), want the end", b, err)
	}
}

// closeWrite ends what the client sends: over TLS by a close_notify, and then the
// socket's end too.
func (c *client) closeWrite() {
	c.t.Helper()
	err := c.Conn.(interface{ CloseWrite() error }).CloseWrite()
	if nc, ok := c.Conn.(*tls.Conn); ok && err == nil {
		err = nc.NetConn().(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// reset closes a TCP connection so that the server sees an error and no end.
func (c *client) reset() {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		tcp = c.Conn.(*tls.Conn).NetConn().(*net.TCPConn)
	}
	_ = tcp.SetLinger(0)
	tcp.Close()
}

// put puts a job and returns its id.
func (c *client) put(body string) (id uint64) {
	c.t.Helper()
	c.send(fmt.Sprintf("put 0 0 120 %d\r\n%s\r\n", len(body), body))
	line := c.line()
	if _, err := fmt.Sscanf(line, "INSERTED %d", &id); err != nil {
		c.t.Fatalf("got %q, want INSERTED", line)
	}
	return id
}

func reserved(id uint64, body string) string {
	return fmt.Sprintf("RESERVED %d %d\r\n%s\r\n", id, len(body), body)
}
