package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that should happen at once.
const patience = 60 * time.Second

// attempts is how often a test is tried in which a stall of the machine, longer than one of the
// server's own limits, changes what is seen.
const attempts = 10

// binary is the path of the trellisd that is tested.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(activateEnv) != "" {
		activateAndExec()
	}
	flag.Parse()
	// Most of the time is spent waiting for servers' deadlines. With many more tests at a time
	// it would be spent on elections: leaders hear from nobody when dozens of servers run.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trellisd-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // for the tests that start it as another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if binary, err = program(dir, "trellisd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// binEnv names the folder in which make has put the programs.
const binEnv = "TRELLIS_BIN"

// program puts trellisd or trellis into dir: the one that make has built, where there is one,
// or else a new one. Some tests start it as a user who cannot reach the folder of make.
func program(dir, name string) (path string, err error) {
	path = filepath.Join(dir, name)
	if bin := os.Getenv(binEnv); bin != "" && !raceEnabled {
		content, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return "", err
		}
		return path, os.WriteFile(path, content, 0o755)
	}
	return path, goBuild(path, "../"+name)
}

// goBuild builds a program as the tests are built.
func goBuild(path, dir string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-o", path}, flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, dir)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", dir, err, out)
	}
	return nil
}

// process is a running trellisd.
type process struct {
	t      testing.TB // nil for one that belongs to no test
	cmd    *exec.Cmd
	stdout bytes.Buffer  // to be read after wait
	read   chan struct{} // closed when all of stderr was read

	mu      sync.Mutex
	lines   []string      // guarded by mu; of stderr
	changed chan struct{} // guarded by mu; closed with the next line, or at the end
	ended   bool          // guarded by mu; no more lines will come

	waitOnce sync.Once
}

// launch starts trellisd with these arguments. It is killed at the end of the
// test if it still runs then.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	return launchCommand(t, exec.Command(binary, args...))
}

func launchCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p, err := spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", strings.Join(cmd.Args, " "), strings.Join(p.log(), "\n"))
		}
		// Whatever the server does, its memory accesses must be in order.
		if log := strings.Join(p.log(), "\n"); strings.Contains(log, "DATA RACE") {
			t.Errorf("%s:\n%s", strings.Join(cmd.Args, " "), log)
		}
	})
	return p
}

// spawn starts a process that is to be ended with kill.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, read: make(chan struct{}), changed: make(chan struct{})}
	cmd.Stdout = &p.stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.readLog(stderr)
	return p, nil
}

func (p *process) readLog(stderr io.Reader) {
	defer close(p.read)
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, 1<<20)
	for more := true; more; {
		more = in.Scan()
		p.mu.Lock()
		if more {
			p.lines = append(p.lines, in.Text())
		}
		p.ended = !more
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}

// log is what the process has written to stderr so far.
func (p *process) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[:len(p.lines):len(p.lines)]
}

// await waits for a line with this text.
func (p *process) await(text string) error {
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		lines, changed, ended := p.lines, p.changed, p.ended
		p.mu.Unlock()
		for _, l := range lines {
			if strings.Contains(l, text) {
				return nil
			}
		}
		if ended {
			return fmt.Errorf("the server ended without logging %q; it wrote:\n%s", text, strings.Join(lines, "\n"))
		}
		select {
		case <-changed:
		case <-timeout:
			return fmt.Errorf("the server did not log %q; it wrote:\n%s", text, strings.Join(lines, "\n"))
		}
	}
}

// waitText is await for a test.
func (p *process) waitText(text string) {
	p.t.Helper()
	if err := p.await(text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the process's exit code when it has ended, -1 if by a signal. One
// that does not end is killed.
func (p *process) wait() int {
	p.waitOnce.Do(func() {
		select {
		case <-p.read:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			<-p.read
		}
		_ = p.cmd.Wait() // its error is the exit code
	})
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.wait()
}

// server is a process that serves, on addresses that it has told.
type server struct {
	*process
	addrs []net.Addr
}

// start starts trellisd with these arguments and returns when it is ready. It
// listens on a free port of 127.0.0.1 unless there is a -l; sockets for TLS come
// behind.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	listens, tls := 0, 0
	for _, a := range args {
		if strings.HasPrefix(a, "-l") {
			listens++
		}
		if strings.HasPrefix(a, "--tls-listen") {
			tls++
		}
	}
	if listens == 0 {
		args = append([]string{"-l127.0.0.1"}, args...)
		listens = 1
	}
	args = append([]string{"-p0", "-V", "--log-format=json"}, args...)
	return ready(launch(t, args...), listens+tls)
}

// ready waits for a process that logs JSON to listen on that many sockets.
func ready(p *process, listens int) *server {
	p.t.Helper()
	s, err := awaitReady(p)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(s.addrs) != listens {
		p.t.Fatalf("the server listens on %v; want %d sockets", s.addrs, listens)
	}
	return s
}

func awaitReady(p *process) (*server, error) {
	if err := p.await(`"ready"`); err != nil {
		return nil, err
	}
	s := &server{process: p}
	for _, l := range p.log() {
		var record struct{ Msg, Network, Addr string }
		if json.Unmarshal([]byte(l), &record) == nil && record.Msg == "listening" {
			s.addrs = append(s.addrs, address{record.Network, record.Addr})
		}
	}
	return s, nil
}

type address struct{ network, addr string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.addr }

// client is a connection of a test to a server.
type client struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// dialInTime sends lines on a new connection, and returns when the first answer is there. The server
// may end a connection that a stalled machine has made too late to use: then there is another.
func (s *server) dialInTime(lines ...string) *client {
	s.t.Helper()
	var err error
	for range attempts {
		c := s.dial(0)
		if _, err = io.WriteString(c.conn, strings.Join(lines, "\r\n")+"\r\n"); err == nil {
			_, err = c.in.Peek(1)
		}
		if err == nil {
			return c
		}
	}
	s.t.Fatalf("%q is never answered: %v", lines, err)
	return nil
}

// dial connects to the server's n-th address.
func (s *server) dial(n int) *client {
	s.t.Helper()
	return dial(s.t, s.addrs[n])
}

func dial(t testing.TB, a net.Addr) *client {
	t.Helper()
	conn, err := net.DialTimeout(a.Network(), a.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	return clientOn(t, conn)
}

// clientOn is a client with a connection, which is closed at the end of the test.
func clientOn(t testing.TB, conn net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, conn, bufio.NewReader(conn)}
}

// renew has the time limit begin anew: a long conversation takes its time on a busy
// machine.
func (c *client) renew() {
	c.t.Helper()
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
}

// send sends lines, each with CR LF behind it. The time limit begins anew.
func (c *client) send(lines ...string) {
	c.t.Helper()
	c.renew()
	if _, err := io.WriteString(c.conn, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

// want reads as many lines and compares them. The time limit begins anew for each.
func (c *client) want(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		c.renew()
		got, err := c.in.ReadString('\n')
		if got != want+"\r\n" {
			c.t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
}

// wantEOF makes sure that the server closes and sends nothing before.
func (c *client) wantEOF() {
	c.t.Helper()
	c.renew()
	b, err := c.in.ReadByte()
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("got %q, %v; want the end", b, err)
	}
}

// line reads a line.
func (c *client) line() string {
	c.t.Helper()
	c.renew()
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("got %q, %v; want a line", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// data sends a command that is answered with data, and returns them.
func (c *client) data(command string) string {
	c.t.Helper()
	c.send(command)
	line := c.line()
	var size int
	if _, err := fmt.Sscanf(line, "OK %d", &size); err != nil {
		c.t.Fatalf("%s: got %q", command, line)
	}
	b := make([]byte, size+2)
	if _, err := io.ReadFull(c.in, b); err != nil {
		c.t.Fatal(err)
	}
	return string(b[:size])
}

// needPeer skips the test because something is missing that other projects make,
// or fails it where the environment promises that nothing is missing.
func needPeer(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format+" (make proof installs it)", args...)
}

func portOf(t testing.TB, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
