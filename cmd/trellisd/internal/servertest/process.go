package servertest

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long anything may take that should happen at once.
const Patience = 60 * time.Second

// Attempts is how often a test is tried in which a stall of the machine, longer than one of the
// server's own limits, changes what is seen.
const Attempts = 10

// Binary is the path of the trellisd that is tested. Main sets it.
var Binary string

// Exit codes of trellisd, as trellisd(8) has them.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 5
	ExitBinlog      = 10
	ExitUnknownUser = 33
	ExitChangeUser  = 34
	ExitListen      = 111
)

// Main builds trellisd, or takes the one that make has built, and runs the tests of a package.
func Main(m *testing.M) {
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
	if Binary, err = Program(dir, "trellisd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// binEnv names the folder in which make has put the programs.
const binEnv = "TRELLIS_BIN"

// Program puts trellisd or trellis into dir: the one that make has built, where there is one,
// or else a new one. Some tests start it as a user who cannot reach the folder of make.
func Program(dir, name string) (path string, err error) {
	path = filepath.Join(dir, name)
	if bin := os.Getenv(binEnv); bin != "" && !RaceEnabled {
		content, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return "", err
		}
		return path, os.WriteFile(path, content, 0o755)
	}
	return path, Build(path, "trellis/cmd/"+name)
}

// Build builds the program of a package, with the race detector if the tests have it.
func Build(path, pkg string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-o", path}, flags...)
	if RaceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, pkg)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Process is a running trellisd.
type Process struct {
	t      testing.TB // nil for one that belongs to no test
	Cmd    *exec.Cmd
	Stdout bytes.Buffer  // to be read after Wait
	read   chan struct{} // closed when all of stderr was read

	mu      sync.Mutex
	lines   []string      // guarded by mu; of stderr
	changed chan struct{} // guarded by mu; closed with the next line, or at the end
	ended   bool          // guarded by mu; no more lines will come

	waitOnce sync.Once
}

// Launch starts trellisd with these arguments. It is killed at the end of the
// test if it still runs then.
func Launch(t testing.TB, args ...string) *Process {
	t.Helper()
	return LaunchCommand(t, exec.Command(Binary, args...))
}

// LaunchCommand is Launch for a command that runs trellisd in another way.
func LaunchCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", strings.Join(cmd.Args, " "), strings.Join(p.Log(), "\n"))
		}
		// Whatever the server does, its memory accesses must be in order.
		if log := strings.Join(p.Log(), "\n"); strings.Contains(log, "DATA RACE") {
			t.Errorf("%s:\n%s", strings.Join(cmd.Args, " "), log)
		}
	})
	return p
}

// Spawn starts a process that belongs to no test: the caller ends it with Kill.
func Spawn(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, read: make(chan struct{}), changed: make(chan struct{})}
	cmd.Stdout = &p.Stdout
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

func (p *Process) readLog(stderr io.Reader) {
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

// Log is what the process has written to stderr so far.
func (p *Process) Log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[:len(p.lines):len(p.lines)]
}

// Await waits for a line of the log with this text.
func (p *Process) Await(text string) error {
	timeout := time.After(Patience)
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

// WaitText waits for a line with this text.
func (p *Process) WaitText(text string) {
	p.t.Helper()
	if err := p.Await(text); err != nil {
		p.t.Fatal(err)
	}
}

// Signal sends a signal.
func (p *Process) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// Wait returns the process's exit code when it has ended, -1 if by a signal. One
// that does not end is killed, and fails the test.
func (p *Process) Wait() int {
	p.waitOnce.Do(func() {
		select {
		case <-p.read:
		case <-time.After(Patience):
			p.t.Errorf("a process that was to end has not within %v", Patience)
			_ = p.Cmd.Process.Kill()
			<-p.read
		}
		_ = p.Cmd.Wait() // its error is the exit code
	})
	return p.Cmd.ProcessState.ExitCode()
}

// Kill ends the process at once, if it still runs.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	p.Wait()
}

// NeedPeer skips the test because something is missing that other projects make,
// or fails it where the environment promises that nothing is missing.
func NeedPeer(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format+" (make proof installs it)", args...)
}

// PortOf is the port of HOST:PORT.
func PortOf(t testing.TB, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Await waits for a condition, for twice Patience.
func Await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * Patience); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waited in vain until %s", what)
			return
		}
	}
}

// NoError fails the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
