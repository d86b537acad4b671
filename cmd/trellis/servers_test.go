package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

// patience is how long anything may take that should happen at once.
const patience = 2 * time.Minute

// serverDir is what TestMain removes.
var serverDir string

// server is the path of trellisd: the one in TRELLIS_BIN, or one that is built, once.
var server = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("TRELLIS_BIN"); bin != "" {
		return filepath.Join(bin, "trellisd"), nil
	}
	dir, err := os.MkdirTemp("", "trellis-test-")
	if err != nil {
		return "", err
	}
	serverDir = dir
	path := filepath.Join(dir, "trellisd")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../trellisd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building trellisd: %w\n%s", err, out)
	}
	return path, nil
})

// A queueServer is a process of trellisd or beanstalkd, on a socket that nobody else can take.
type queueServer struct {
	t     *testing.T
	addr  string
	stock bool // it is beanstalkd
	argv  []string
	kill  func()
}

// onBothServers runs a test with trellisd and with beanstalkd, at the same time.
func onBothServers(t *testing.T, test func(t *testing.T, s *queueServer)) {
	for name, start := range map[string]func(*testing.T, ...string) *queueServer{"trellisd": startServer, "beanstalkd": startStock} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

func startServer(t *testing.T, args ...string) *queueServer {
	t.Helper()
	path, err := server()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "socket")
	s := &queueServer{t: t, addr: "unix:" + socket, argv: append([]string{path, "-l", "unix:" + socket}, args...)}
	s.start()
	return s
}

func startStock(t *testing.T, args ...string) *queueServer {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "socket")
	path := strings.Fields(peer(t))[0]
	s := &queueServer{t: t, addr: "unix:" + socket, stock: true, argv: append([]string{path, "-l", "unix:" + socket}, args...)}
	s.start()
	return s
}

// start starts the server, again if it was killed.
func (s *queueServer) start() {
	s.t.Helper()
	_ = os.Remove(strings.TrimPrefix(s.addr, "unix:"))
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", s.argv[0], log.String())
		}
	})
	s.t.Cleanup(s.kill)
	waitFor(s.t, strings.TrimPrefix(s.addr, "unix:"))
}

// dial connects to the server. Calls on the connection are bounded by the test's patience.
func (s *queueServer) dial() *testConn {
	s.t.Helper()
	nc, err := net.Dial("unix", strings.TrimPrefix(s.addr, "unix:"))
	if err != nil {
		s.t.Fatal(err)
	}
	c := &testConn{s.t, client.New(nc, s.addr)}
	s.t.Cleanup(func() { c.Close() })
	return c
}

type testConn struct {
	t *testing.T
	*client.Conn
}

// do sends a command, and its body if there is one, and returns the reply's first line.
func (c *testConn) do(line string, body ...string) string {
	c.t.Helper()
	r := c.reply(line, body...)
	return r.Line()
}

func (c *testConn) reply(line string, body ...string) client.Reply {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if _, err := c.Capabilities(ctx); err != nil {
		c.t.Fatal(err)
	}
	var b []byte
	if len(body) > 0 {
		b = []byte(body[0])
	}
	r, err := c.Do(ctx, line, b)
	if err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return r
}

// put puts a job into a tube.
func (c *testConn) put(tube, pri, delay, ttr, body string) {
	c.t.Helper()
	c.do("use " + tube)
	if r := c.do(fmt.Sprintf("put %s %s %s %d", pri, delay, ttr, len(body)), body); !strings.HasPrefix(r, "INSERTED") {
		c.t.Fatal(r)
	}
}

// stat is one value of a tube's or a job's statistics, "" when there is no such tube or job.
func (c *testConn) stat(of, key string) string {
	c.t.Helper()
	r := c.reply(of)
	for line := range strings.Lines(string(r.Body)) {
		if value, ok := strings.CutPrefix(line, key+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// A tool is a process of the command that runs beside the test.
type tool struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	out, errs output
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startTool starts the command. It is killed at the end of the test.
func startTool(t *testing.T, args ...string) *tool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &tool{t: t, cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), mainEnv+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	p.cmd.WaitDelay = patience // commands that it has left behind
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("trellis %s:\n%s%s", strings.Join(args, " "), p.out.String(), p.errs.String())
		}
	})
	return p
}

// awaitErr waits until the process has written a text on standard error.
func (p *tool) awaitErr(text string) {
	p.t.Helper()
	eventually(p.t, text, func() bool { return strings.Contains(p.errs.String(), text) })
}

func (p *tool) awaitOut(text string) {
	p.t.Helper()
	eventually(p.t, text, func() bool { return strings.Contains(p.out.String(), text) })
}

// wait waits for the end, and returns the exit status.
func (p *tool) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatal("it does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// sortedLines are the lines of a text in order.
func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return lines
}
