package reactor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process has one limit on descriptors, which would also hit the clients of a
// test. So the server is in a process of its own: this test's program, started
// again with this variable set to the limit.
const childEnv = "REACTOR_TEST_DESCRIPTORS"

// serveShort is the main function of that process. It prints the server's
// address, and its Stats for each line of its input, and ends with its input.
func serveShort(limit string) error {
	n, err := strconv.ParseUint(limit, 10, 32)
	if err != nil {
		return err
	}
	t := &mainTB{}
	defer t.cleanup()
	e, now := newEngine(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h := panicky()
	if n == 0 { // no limit, but an engine that breaks
		h.busy = func() bool { return true }
	} else if err := limitDescriptors(n); err != nil {
		return err
	}
	s, err := newServer(Config{
		Engine: e, Now: now, MaxJobSize: maxJob, Loops: 2, MaxConnections: 1 << 20, // descriptors end sooner
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, h)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		b, err := json.Marshal(s.Stats())
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	return <-served
}

func limitDescriptors(n uint64) error {
	var l unix.Rlimit
	set(&l.Cur, n)
	set(&l.Max, n)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// set is for fields whose type differs from system to system.
func set[T int64 | uint64](p *T, n uint64) { *p = T(n) }

// mainTB lets newEngine run outside of a test.
type mainTB struct {
	testing.TB
	cleanups []func()
}

func (t *mainTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *mainTB) cleanup() {
	for _, f := range t.cleanups {
		f()
	}
}

// child is such a process.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	log  *logBuffer
	addr net.Addr
}

func startChild(t *testing.T, limit int) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0]), log: new(logBuffer)}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childEnv, limit))
	c.cmd.Stderr = c.log
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.in.Close()
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", c.log)
		}
	})
	if c.addr, err = net.ResolveTCPAddr("tcp", strings.TrimSpace(c.line())); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the server is gone: %v\n%s", err, c.log)
	}
	return s
}

func (c *child) stats() (st Stats) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(c.line()), &st); err != nil {
		c.t.Fatal(err)
	}
	return st
}

func (c *child) until(what string, cond func(Stats) bool) {
	c.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		st := c.stats()
		if cond(st) {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("waited in vain until %s: %+v\n%s", what, st, c.log)
		}
	}
}

// logs waits until the server has logged a text, and checks that it is one line. A line
// reaches the test later than what the server counts.
func (c *child) logs(text string) {
	c.t.Helper()
	c.until("it logs "+text, func(Stats) bool { return strings.Contains(c.log.String(), text) })
	if n := strings.Count(c.log.String(), text); n != 1 {
		c.t.Errorf("%q was logged %d times", text, n)
	}
}

func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	const limit = 48
	s := startChild(t, limit)

	// More clients connect than the server has descriptors for. The system
	// accepts them all; the server some.
	began := time.Now()
	var all, served []*client
	for range limit + 10 {
		all = append(all, dial(t, s.addr))
	}
	s.until("accepting has paused", func(st Stats) bool { return st.AcceptPaused == 1 })
	served = all[:s.stats().Accepted]
	if len(served) < limit/2 || len(served) >= limit {
		t.Fatalf("%d clients are served with %d descriptors", len(served), limit)
	}
	waiting := all[len(served):]

	// Those who are served do not notice.
	for i, c := range served {
		c.do(fmt.Sprintf("use t%d\r\n", i), fmt.Sprintf("USING t%d\r\n", i))
	}
	served[0].send("watch jobs\r\nreserve\r\n")
	served[0].expect("WATCHING 2\r\n")
	served[1].do("use jobs\r\nput 0 0 60 1\r\nx\r\n", "USING jobs\r\nINSERTED 1\r\n")
	served[0].expect(reserved(1, "x"))

	// Trying goes on, ever more slowly: at most 9 times in the first second
	// after accepting has paused, and once a second from then on.
	s.until("it has tried again", func(st Stats) bool { return st.AcceptFailures >= 6 })
	st := s.stats()
	if most := 10 + int(time.Since(began).Seconds()); int(st.AcceptFailures) > most || st.AcceptPauses != 1 {
		t.Errorf("accepting failed %d times in %d pauses, want at most %d in 1", st.AcceptFailures, st.AcceptPauses, most)
	}
	if st.Refused != 0 {
		t.Errorf("%d connections were refused", st.Refused)
	}
	s.logs("accepting connections has paused")

	// A half-closed client that is owed much needs a descriptor at its end,
	// when there is none.
	slow := served[2]
	const n = 2000
	send, reply := floodReplies(slow, n)
	slow.send(send)
	slow.closeWrite()
	s.until("its end was noticed", func(st Stats) bool { return st.Loops[0].Ending+st.Loops[1].Ending == 1 })
	slow.expectMany(n, reply)
	slow.expectEOF()
	slow.Close()

	// Each client that leaves makes room for one that waits.
	for i, c := range served[3:10] {
		before := s.stats().Accepted
		c.Close()
		s.until("another is served", func(st Stats) bool { return st.Accepted > before })
		waiting[i].do("use next\r\n", "USING next\r\n")
	}
	for _, c := range all[:34] {
		c.Close()
	}
	for _, c := range all[34:] {
		c.do("use last\r\n", "USING last\r\n")
	}
	s.until("accepting goes on", func(st Stats) bool { return st.AcceptPaused == 0 })
	s.logs("accepting connections goes on")
	for _, c := range all {
		c.Close()
	}
	s.until("all connections are gone", func(st Stats) bool { return st.Loops[0].Connections+st.Loops[1].Connections == 0 })
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server's end: %v", err)
	}
}

func TestBrokenEngineEndsTheProcess(t *testing.T) {
	t.Parallel()
	s := startChild(t, 0)
	c := dial(t, s.addr)
	c.send("use panic\r\n")
	if err := s.cmd.Wait(); err == nil || s.cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("the process ended with %v, want exit status 2", err)
	}
	if !strings.Contains(s.log.String(), "fatal: a panic has interrupted the engine") {
		t.Errorf("it did not say why: %s", s.log)
	}
}
