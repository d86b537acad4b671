package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A waitProbe measures how long `peek 0` takes. It is a process of its own, because in
// a process with thousands of goroutines an answer that has come is often noticed only
// when the scheduler has run the others.
type waitProbe struct {
	cmd *exec.Cmd
	in  io.WriteCloser // a line begins the measuring, and its end ends it
	out *bufio.Reader
	probeWaits
}

type probeWaits struct {
	n       int
	longest time.Duration
	// work is the most CPU time that the server used while a command waited. On a busy machine it says more, but the
	// system tells it of another process only to within one of its ticks, so 4 ms.
	work time.Duration
}

const (
	// waitProbeEnv makes a copy of this program a probe. It says the server's address and process.
	waitProbeEnv = "TRELLIS_TEST_PROBE"
	// askInterval is the time from one command of a probe to its next.
	askInterval = 200 * time.Microsecond

	waitProbeReady  = "ready"
	waitProbeFormat = "n %d longest %d work %d"
)

func init() {
	if to := os.Getenv(waitProbeEnv); to != "" {
		if err := runProbe(to); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
}

// startProbe returns a probe that has its connection, but sends nothing yet.
func startProbe(t *testing.T, s *server) *waitProbe {
	t.Helper()
	p := &waitProbe{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", waitProbeEnv, s.addrs[0], s.cmd.Process.Pid))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	p.out = bufio.NewReader(out)
	if line, err := p.out.ReadString('\n'); line != waitProbeReady+"\n" {
		t.Fatalf("a probe says %q, %v", line, err)
	}
	return p
}

func (p *waitProbe) begin(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

// end sets the result.
func (p *waitProbe) end(t *testing.T) {
	t.Helper()
	p.in.Close()
	line, err := p.out.ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, waitProbeFormat, &p.n, &p.longest, &p.work); scanErr != nil {
		t.Fatalf("a probe says %q, %v", line, errors.Join(err, scanErr))
	}
}

// runProbe is the process of a probe.
func runProbe(to string) error {
	address, process, _ := strings.Cut(to, " ")
	pid := 0
	if _, err := fmt.Sscan(process, &pid); err != nil {
		return fmt.Errorf("the server's process: %w", err)
	}
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	preferThread()
	fd, err := blockingConn(address)
	if err != nil {
		return err
	}
	if err := askOnce(fd); err != nil { // so that the server has given it to a loop
		return err
	}
	fmt.Println(waitProbeReady)
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop.Store(true)
	}()
	var r probeWaits
	for !stop.Load() {
		used, err := cpuTime(pid)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := askOnce(fd); err != nil {
			return err
		}
		took := time.Since(began)
		usedThen, err := cpuTime(pid)
		if err != nil {
			return err
		}
		r.n++
		r.longest, r.work = max(r.longest, took), max(r.work, usedThen-used)
		if left := askInterval - took; left > 0 {
			ts := unix.NsecToTimespec(int64(left))
			_ = unix.Nanosleep(&ts, nil)
		}
	}
	fmt.Printf(waitProbeFormat+"\n", r.n, r.longest, r.work)
	return nil
}

// preferThread has the system run this thread before others that do not need the processor as little as it does, as far
// as this user may ask for that.
func preferThread() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if attr, err := unix.SchedGetAttr(0, 0); err == nil && attr.Policy == unix.SCHED_FIFO {
		attr.Priority++ // it runs before the server and the other clients, which have this policy too
		_ = unix.SchedSetAttr(0, attr, 0)
		return
	}
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: -20, Runtime: uint64(100 * time.Microsecond)}, 0)
}

// blockingConn returns a descriptor that blocks.
func blockingConn(address string) (fd int, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if fd, err = unix.Dup(int(f.Fd())); err != nil {
		return 0, fmt.Errorf("copying a connection's descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return 0, fmt.Errorf("making a connection block: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(2 * patience / time.Second)}); err != nil {
		return 0, fmt.Errorf("limiting how long a connection blocks: %w", err)
	}
	return fd, nil
}

// askOnce sends one command and waits for the answer.
func askOnce(fd int) error {
	const reply = "NOT_FOUND\r\n"
	var b [len(reply)]byte
	if _, err := unix.Write(fd, []byte("peek 0\r\n")); err != nil {
		return fmt.Errorf("sending peek 0: %w", err)
	}
	n, err := unix.Read(fd, b[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, b[:])
	}
	if err != nil {
		return fmt.Errorf("waiting for the answer to peek 0: %w", err)
	}
	if string(b[:n]) != reply {
		return fmt.Errorf("peek 0 was answered %q", b[:n])
	}
	return nil
}

// cpuTime is the CPU time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	var ts unix.Timespec
	// The clock of a process is numbered by its inverted id; see clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("reading the server's CPU time: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
