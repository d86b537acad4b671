package reactor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/codec"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/stream"
)

// counting returns hooks that count the commands that are executed.
func counting() (h hooks, executed *atomic.Int64) {
	executed = new(atomic.Int64)
	h.command = func(*conn, *codec.Command) { executed.Add(1) }
	return h, executed
}

// untilRead waits until the server has read n bytes of its clients.
func (ts *testServer) untilRead(n uint64) {
	ts.t.Helper()
	ts.until(fmt.Sprintf("%d bytes were read", n), func() bool { return ts.sum().BytesIn >= n })
}

func TestNothingExecutesWhileTheServerIsHeld(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		h, executed := counting()
		ts := serve(t, network, 2, h)
		a, b, gone := ts.dial(), ts.dial(), ts.dial()
		a.do("watch x\r\nignore default\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		b.do("use x\r\n", "USING x\r\n")
		a.send("reserve\r\nlist-tube-used\r\n") // waits
		gone.send("put 0 0 9 1\r\n")            // of which a part is missing
		ts.untilWaiting(1)

		ts.Hold(true)
		before, read := executed.Load(), ts.sum().BytesIn
		late := ts.dial()
		sent := 0
		for _, x := range []struct {
			c    *client
			send string
		}{
			{b, "put 0 0 9 1\r\nx\r\nlist-tube-used\r\n"},
			{b, strings.Repeat("use x\r\n", 100)},
			{gone, "g\r\nput 0 0 9 1\r\nh\r\n"},
			{late, "use late\r\n"},
		} {
			x.c.send(x.send)
			if x.c != late { // it waits to be taken in
				sent += len(x.send)
			}
		}
		gone.closeWrite()
		ts.untilRead(read + uint64(sent))
		ts.Hold(true) // a loop is through with what it was doing
		if n := executed.Load(); n != before {
			t.Errorf("%d commands were executed", n-before)
		}
		if n := ts.engine.Snapshot(0); n.Ready+n.Reserved != 0 {
			t.Errorf("there are jobs: %+v", n)
		}
		if p := a.pending() + b.pending() + late.pending() + gone.pending(); p != "" {
			t.Errorf("%.100q was sent", p)
		}

		ts.Hold(false)
		id := strings.TrimPrefix(b.line(), "INSERTED ")
		b.expect("USING x\r\n" + strings.Repeat("USING x\r\n", 100))
		a.expect("RESERVED " + id + " 1\r\nx\r\nUSING default\r\n")
		late.expect("USING late\r\n")
		for range 2 {
			if got := gone.line(); !strings.HasPrefix(got, "INSERTED") {
				t.Errorf("got %q", got)
			}
		}
		gone.expectEOF()
	})
}

func TestAHeldServerSendsRepliesThatAreCommitted(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveJournaled(t, "tcp", 2, hooks{}, j)
	c := ts.dial()
	c.send("put 0 0 9 1\r\na\r\nput 0 0 9 1\r\nb\r\n")
	j.untilRecorded(ts, 2)
	ts.Hold(true)
	c.send("list-tube-used\r\n")
	if p := c.pending(); p != "" {
		t.Fatalf("%q was sent before the commit", p)
	}
	j.commit(ts, 2)
	c.expect("INSERTED 1\r\nINSERTED 2\r\n")
	if p := c.pending(); p != "" {
		t.Fatalf("%q was executed", p)
	}
	ts.Hold(false)
	c.expect("USING default\r\n")
}

func TestAFlushWaitsForCommittedReplies(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveJournaled(t, "tcp", 2, hooks{}, j)
	c := ts.dial()
	c.send("put 0 0 9 1\r\na\r\n")
	j.untilRecorded(ts, 1)
	ts.Hold(true)
	c.send("list-tube-used\r\n") // is not executed
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ts.Flush(ended); err == nil {
		t.Error("a reply was sent that is not committed")
	}
	j.commit(ts, 1)
	if err := ts.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ts.Abort()
	c.expect("INSERTED 1\r\n")
}

// What a held server keeps for a client that goes on sending is bounded.
func TestAHeldServerStopsReading(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	c := ts.dial()
	c.do("list-tube-used\r\n", "USING default\r\n")
	ts.Hold(true)
	const n = 100_000
	go c.send(strings.Repeat("use a\r\n", n))
	ts.until("the client's input is kept", func() bool { return ts.sum().PendingInput >= stream.KeepInput })
	ts.Hold(false)
	c.expect(strings.Repeat("USING a\r\n", n))
	if in, _ := ts.peaks(); in > stream.KeepInput+2*stream.ReadSize {
		t.Errorf("%d bytes of input were kept", in)
	}
}

// Waits do not end while the server is held, and those that fell due do afterwards.
func TestWaitsEndBehindAHold(t *testing.T) {
	t.Parallel()
	ts, put := serveStopped(t, "tcp", hooks{}, nil, func(*Config) {})
	c := ts.dial()
	c.send("reserve-with-timeout 1\r\n")
	ts.untilWaiting(1)
	ts.Hold(true)
	put(time.Minute)
	if p := c.pending(); p != "" {
		t.Fatalf("%q was sent", p)
	}
	ts.Hold(false)
	c.expect("TIMED_OUT\r\n")
}

// What a client sends while the server is held ends its wait afterwards, if it is to.
func TestAWaitIsInterruptedBehindAHold(t *testing.T) {
	t.Parallel()
	ts, _ := serveStopped(t, "tcp", hooks{}, nil, func(c *Config) { c.Extensions = true })
	c := ts.dial()
	c.do("reserve-mode fifo abort\r\n", "USING fifo abort\r\n")
	c.send("reserve\r\n")
	ts.untilWaiting(1)
	read := ts.sum().BytesIn
	ts.Hold(true)
	c.send("list-tube-used\r\n")
	ts.untilRead(read + 16)
	if p := c.pending(); p != "" {
		t.Fatalf("%q was sent", p)
	}
	ts.Hold(false)
	c.expect("TIMED_OUT\r\nUSING default\r\n")
}

func TestAServerThatIsShutDownIsNotHeld(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	c := ts.dial()
	c.do("list-tube-used\r\n", "USING default\r\n")
	ts.Hold(true)
	c.send("use a\r\n")
	ts.until("the command has come", func() bool { return ts.sum().PendingInput > 0 })
	if err := ts.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.expect("USING a\r\n")
	c.expectEOF()
	ts.Hold(true) // returns
	ts.Hold(false)
}

// expectReset makes sure that nothing comes any more but the connection's end, and on TCP
// that it was reset.
func (c *client) expectReset(what string) {
	c.t.Helper()
	c.allowRead()
	b, err := io.ReadAll(c.r)
	if len(b) > 0 {
		c.t.Errorf("%s: got %.100q", what, b)
	}
	if _, tcp := c.Conn.(*net.TCPConn); tcp && !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%s: the end came with %v", what, err)
	}
}

func TestAbortResetsAllConnectionsWithoutAWord(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		h, executed := counting()
		ts := serveJournaled(t, network, 2, h, j)
		clients := map[string]*client{}
		add := func(what, send string) *client {
			c := ts.dial()
			c.do("list-tube-used\r\n", "USING default\r\n")
			c.send(send)
			clients[what] = c
			return c
		}
		add("idle", "")
		add("waiting", "watch nothing\r\nignore default\r\nreserve\r\n").expect("WATCHING 2\r\nWATCHING 1\r\n")
		add("with a body that is arriving", "put 0 0 9 100000\r\nxxx")
		add("with a reply that is held", "put 0 0 9 1\r\na\r\nlist-tube-used\r\n")
		add("with a large reply that is held", "put 0 0 9 40000\r\n"+strings.Repeat("x", 40000)+"\r\npeek 1\r\npeek 2\r\n")
		add("half-closed with a reply that is held", "put 0 0 9 1\r\na\r\n").closeWrite()
		j.untilRecorded(ts, 3)
		ts.untilWaiting(1)
		ts.until("the half-closed one is being ended", func() bool { return ts.sum().Ending == 1 })
		held := add("with a command that was not executed", "")
		ts.Hold(true)
		held.send("put 0 0 9 1\r\nb\r\n")
		clients["that waits to be taken in"] = ts.dial()
		ts.until("it has come", func() bool { return ts.sum().PendingInput > 0 })

		ts.Abort()
		after, recorded := executed.Load(), j.recorded.Load()
		j.commit(ts, recorded) // too late
		for what, c := range clients {
			c.expectReset(what)
		}
		if _, err := net.Dial(ts.addr.Network(), ts.addr.String()); err == nil {
			t.Error("the server still listens")
		}
		if n := executed.Load(); n != after || j.recorded.Load() != recorded {
			t.Errorf("%d commands were executed when it had been aborted", n-after)
		}
		ts.Abort() // returns
		if err := ts.Serve(listenAgain(t, network)); err != ErrClosed {
			t.Errorf("serving an aborted server: %v", err)
		}
		ts.engine.Discard()
	})
}

func listenAgain(t *testing.T, network string) net.Listener {
	at := "127.0.0.1:0"
	switch {
	case network == "unix":
		at = t.TempDir() + "/s"
	case strings.HasPrefix(network, "tls"), network == "trunk":
		network = "tcp"
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A loop that hangs does not keep the clients of others waiting, nor those who connect.
func TestAbortDoesNotWaitForALoopThatHangsToResetTheOthers(t *testing.T) {
	t.Parallel()
	skipUnlessResetAtOnce(t)
	serverNetworks(t, func(t *testing.T, network string) {
		for hangs := range 2 { // the loop that accepts, and the other
			ts := serveHanging(t, network, hangs)
			ts.hang()
			ts.abort()
			ts.until("nobody can connect", func() bool {
				c, err := net.Dial(ts.addr.Network(), ts.addr.String())
				if err == nil {
					_ = c.Close()
				}
				return err != nil
			})
			ts.goOn()
			ts.stuck[1].expectReset("of the loop that hung")
		}
	})
}

// hangingServer is a server with two loops, one of which can be made to hang.
type hangingServer struct {
	*testServer
	hangs        int       // the loop's number
	stuck, sound []*client // those of that loop, and those of the other

	entered, aborted chan struct{}
	release          func()
}

// serveHanging starts a server whose loop of that number is to hang. The first listener is
// loop 0's, the second loop 1's.
func serveHanging(t *testing.T, network string, hangs int) *hangingServer {
	t.Helper()
	loops := make(chan *loop, 1)
	hs := &hangingServer{hangs: hangs, entered: make(chan struct{}), aborted: make(chan struct{})}
	released := make(chan struct{})
	hs.release = sync.OnceFunc(func() { close(released) })
	hs.testServer = serve(t, network, 2, hooks{command: func(c *conn, cmd *codec.Command) {
		switch cmd.Op {
		case codec.OpListTubes:
			close(hs.entered)
			<-released
		case codec.OpListTubeUsed:
			loops <- c.loop
		}
	}})
	t.Cleanup(hs.release)
	on := map[*loop][]*client{}
	for range 4 {
		c := hs.dial()
		c.do("list-tube-used\r\n", "USING default\r\n")
		l := <-loops
		on[l] = append(on[l], c)
	}
	hs.stuck, hs.sound = on[hs.loops[hangs]], on[hs.loops[1-hangs]]
	if len(hs.stuck) != 2 || len(hs.sound) != 2 {
		t.Fatalf("the loops have %d and %d clients", len(hs.stuck), len(hs.sound))
	}
	return hs
}

// hang has the loop hang.
func (hs *hangingServer) hang() {
	hs.stuck[0].send("list-tubes\r\n")
	<-hs.entered
}

// abort begins Abort, and returns when the clients of the loop that works were reset.
func (hs *hangingServer) abort() {
	hs.t.Helper()
	go func() {
		defer close(hs.aborted)
		hs.Abort()
	}()
	for _, c := range hs.sound {
		c.expectReset("of a loop that works")
	}
}

// goOn ends the hang, and returns when Abort has.
func (hs *hangingServer) goOn() {
	hs.release()
	<-hs.aborted
	hs.engine.Discard()
}

// skipUnlessResetAtOnce skips a test of what Abort does while a loop hangs.
func skipUnlessResetAtOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("gnet alone knows the connections of a loop")
	}
}

// What another loop has accepted, and the end of a handshake, may come late.
func TestAConnectionThatComesToALoopAfterAbortIsEnded(t *testing.T) {
	t.Parallel()
	skipUnlessResetAtOnce(t)
	ts := serveHanging(t, "tcp", 0)
	ts.hang()
	ts.abort()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "client")
	here, err := net.FileConn(file)
	if err := errors.Join(err, file.Close(), unix.SetNonblock(fds[1], true)); err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	sound := ts.loops[1-ts.hangs]
	sound.members.Add(1)
	sound.Post(accept.Arrival{FD: fds[1], Listener: accept.Own})
	_ = here.SetDeadline(time.Now().Add(testTimeout))
	if b, err := io.ReadAll(here); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("its client got %q and %v", b, err)
	}
	ts.goOn()
}

func TestAbortResetsClientsThatALoopThatHangsHasNotAccepted(t *testing.T) {
	t.Parallel()
	skipUnlessResetAtOnce(t)
	plainNetworks(t, func(t *testing.T, network string) {
		ts := serveHanging(t, network, 0)
		ts.hang()
		var queued []*client
		for range 3 {
			c := ts.dial()
			c.send("list-tube-used\r\n")
			queued = append(queued, c)
		}
		ts.abort()
		for _, c := range queued {
			c.expectReset("not accepted")
		}
		ts.goOn()
	})
}

// slowListener calls begun before it shows its descriptor.
type slowListener struct {
	*net.TCPListener
	begun func()
}

func (l slowListener) SyscallConn() (syscall.RawConn, error) {
	l.begun()
	return l.TCPListener.SyscallConn()
}

// Abort closes the listeners that it finds, and Serve one that comes too late.
func TestServeDoesNotWaitForALoopThatHangsWhenAbortHasBegun(t *testing.T) {
	t.Parallel()
	skipUnlessResetAtOnce(t)
	ts := serveHanging(t, "tcp", 1)
	ts.hang()
	l := listenAgain(t, "tcp")
	served := make(chan error, 1)
	go func() { served <- ts.Serve(slowListener{l.(*net.TCPListener), ts.abort}) }()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("it waits")
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the server still listens")
	}
	ts.goOn()
}

// A client that does not take what it is owed is reset as well, and does not get the rest.
func TestAbortDropsWhatClientsHaveNotTaken(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	c := ts.dial()
	c.put(strings.Repeat("x", maxJob))
	c.send(strings.Repeat("peek 1\r\n", 20))
	ts.until("the client stalls", func() bool { return ts.sum().Stalled == 1 })
	ts.Abort()
	b, err := io.ReadAll(c.r)
	if !errors.Is(err, syscall.ECONNRESET) || len(b) > 20*maxJob {
		t.Errorf("got %d bytes and %v", len(b), err)
	}
	ts.engine.Discard()
}

func TestAbortEndsAShutdownThatWaits(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveJournaled(t, "tcp", 2, hooks{}, j)
	c := ts.dial()
	c.send("put 0 0 9 1\r\na\r\n")
	j.untilRecorded(ts, 1)
	ended := make(chan error)
	go func() { ended <- ts.Shutdown(context.Background()) }()
	ts.until("it is being shut down", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.closing
	})
	ts.Abort()
	if err := <-ended; err == nil {
		t.Error("Shutdown has seen nothing of it")
	}
	c.expectReset("with a reply that is held")
}

// Clients work as fast as they can when the server is aborted: what the engine and the
// journal are after that, they stay.
func TestNothingExecutesAfterAbort(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	j.atOnce.Store(true)
	h, executed := counting()
	ts := serveJournaled(t, "tcp", 3, h, j)
	var working sync.WaitGroup
	for range 12 {
		c := ts.dial()
		working.Go(func() {
			for {
				if _, err := io.WriteString(c, "put 0 0 9 1\r\na\r\nreserve\r\nuse x\r\nuse default\r\n"); err != nil {
					return
				}
				for range 5 {
					if _, err := c.r.ReadString('\n'); err != nil {
						return
					}
				}
			}
		})
	}
	ts.until("they are busy", func() bool { return executed.Load() > 3000 })
	ts.Abort()
	n, recorded := executed.Load(), j.recorded.Load()
	working.Wait()
	if executed.Load() != n || j.recorded.Load() != recorded {
		t.Errorf("%d commands were executed, then %d", n, executed.Load())
	}
	ts.engine.Discard()
}

// liveBytes is how many bytes are alive, behind two collections of garbage: pools keep theirs over one.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A process makes and ends many servers, one after the other.
func TestServersThatFollowEachOtherLeaveNothing(t *testing.T) {
	descriptors := func() int {
		list, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	live := func() {
		e, now := newEngine(t)
		defer e.Discard()
		s, err := New(Config{Engine: e, Now: now, MaxJobSize: maxJob, Loops: 2, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		l := listenAgain(t, "tcp")
		serving.Go(func() { _ = s.Serve(l) })
		var clients []net.Conn
		for range 20 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
			_, _ = io.WriteString(c, "put 0 0 9 1\r\na\r\nreserve\r\nreserve\r\n")
			_, _ = io.ReadFull(c, make([]byte, 10))
		}
		s.Abort()
		serving.Wait()
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for range 3 {
		live()
	}
	fds, goroutines, bytes := descriptors(), runtime.NumGoroutine(), liveBytes()
	const servers = 30
	for range servers {
		live()
	}
	const grows = servers / 2 * 128 << 10 // a server's loops alone have 128 KiB
	settled := func() bool {
		return descriptors() <= fds && runtime.NumGoroutine() <= goroutines && liveBytes()-bytes <= grows
	}
	for end := time.Now().Add(testTimeout); !settled() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !settled() {
		t.Errorf("%d descriptors and %d goroutines, before %d and %d; %d servers leave %d bytes",
			descriptors(), runtime.NumGoroutine(), fds, goroutines, servers, liveBytes()-bytes)
	}
}

// BenchmarkAbort is how long it takes to end a server with 1,000 clients.
func BenchmarkAbort(b *testing.B) {
	for range b.N {
		b.StopTimer()
		ts := serve(b, "tcp", 2, hooks{})
		for range 1000 {
			ts.dial().do("list-tube-used\r\n", "USING default\r\n")
		}
		b.StartTimer()
		ts.Abort()
	}
}
