//go:build proof

package soak

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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/servertest"
)

// A waitProbe measures how long a command takes. It is a process of its own, because in
// a process with thousands of goroutines an answer that has come is often noticed only
// when the scheduler has run the others.
type waitProbe struct {
	cmd *exec.Cmd
	in  io.WriteCloser // a line begins the measuring, and its end ends it
	out *bufio.Reader
	probeWaits
}

// A question is what a probe asks.
type question string

const (
	askPeek   question = "peek"   // for a job that there cannot be; in a cluster the answer takes a round of the members
	askUse    question = "use"    // for a tube; the answer takes nobody but the server's loop
	askPut    question = "put"    // with a delete behind it; in a cluster each answer takes a commit
	askDisk   question = "disk"   // writes 4 KiB to a file of its own and has them synced: how long that takes for whoever wants it
	askNobody question = "nobody" // sleeps, and measures by how much too long: how long this machine keeps a process from running
)

type probeWaits struct {
	n                  int
	p99, p999, longest time.Duration
	// work is the most CPU time that the server used while a command waited. On a busy machine it says more, but the
	// system tells it of another process only to within one of its ticks, so 4 ms.
	work time.Duration
	slow []interval // waits of slowWait and longer, in order
}

// An interval is a time by the system's monotonic clock, which all processes share.
type interval struct{ from, to int64 }

// slowWait is how long a wait is that a probe tells of by itself.
const slowWait = time.Millisecond

// alone is the longest of some waits when the time of the others is taken off them. Both are in order.
func alone(waits, others []interval) (longest time.Duration) {
	for _, w := range waits {
		left, at := w.to-w.from, w.from
		for _, o := range others {
			from, to := max(o.from, at), min(o.to, w.to)
			if from < to {
				left -= to - from
				at = to
			}
		}
		longest = max(longest, time.Duration(left))
	}
	return longest
}

const (
	// waitProbeEnv makes a copy of this program a probe. It says the server's address and process, and what to ask.
	waitProbeEnv = "TRELLIS_TEST_PROBE"
	// askInterval is the time from one command of a probe to its next.
	askInterval = 200 * time.Microsecond

	waitProbeReady  = "ready"
	waitProbeFormat = "n %d p99 %d p999 %d longest %d work %d"
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
func startProbe(t *testing.T, address string, pid int, what question) *waitProbe {
	t.Helper()
	p := &waitProbe{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", waitProbeEnv, address, pid, what))
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
	if _, scanErr := fmt.Sscanf(line, waitProbeFormat, &p.n, &p.p99, &p.p999, &p.longest, &p.work); scanErr != nil {
		t.Fatalf("a probe says %q, %v", line, errors.Join(err, scanErr))
	}
	if line, err = p.out.ReadString('\n'); err != nil {
		t.Fatalf("a probe says %q, %v", line, err)
	}
	p.slow = nil
	for _, f := range strings.Fields(line) {
		var w interval
		if _, err := fmt.Sscanf(f, "%d-%d", &w.from, &w.to); err != nil {
			t.Fatalf("a probe tells of a wait %q, %v", f, err)
		}
		p.slow = append(p.slow, w)
	}
}

// runProbe is the process of a probe.
func runProbe(to string) error {
	var (
		address string
		pid     int
		what    question
	)
	if _, err := fmt.Sscan(to, &address, &pid, &what); err != nil {
		return fmt.Errorf("what to ask: %w", err)
	}
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	preferThread()
	fd, err := blockingConn(address)
	if err != nil {
		return err
	}
	if what == askDisk {
		f, err := os.CreateTemp("", "trellisd-probe-")
		if err != nil {
			return err
		}
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		diskFile, _ = unix.Dup(int(f.Fd()))
	}
	if _, err := askOnce(fd, what); err != nil { // so that the server has given it to a loop
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
	all := make([]time.Duration, 0, 1<<20)
	for !stop.Load() {
		used, err := cpuTime(pid)
		if err != nil {
			return err
		}
		took, err := askOnce(fd, what)
		if err != nil {
			return err
		}
		usedThen, err := cpuTime(pid)
		if err != nil {
			return err
		}
		all = append(all, took)
		if took >= slowWait {
			now, err := monotonic()
			if err != nil {
				return err
			}
			r.slow = append(r.slow, interval{now - int64(took), now})
		}
		r.work = max(r.work, usedThen-used)
		if left := askInterval - took; left > 0 {
			ts := unix.NsecToTimespec(int64(left))
			_ = unix.Nanosleep(&ts, nil)
		}
	}
	if r.n = len(all); r.n > 0 {
		slices.Sort(all)
		r.p99, r.p999, r.longest = all[r.n*99/100], all[r.n*999/1000], all[r.n-1]
	}
	fmt.Printf(waitProbeFormat+"\n", r.n, r.p99, r.p999, r.longest, r.work)
	for _, w := range r.slow {
		fmt.Printf("%d-%d ", w.from, w.to)
	}
	fmt.Println()
	return nil
}

func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return ts.Nano(), nil
}

// preferThread asks the system to run this thread before others that do not need the processor as little as it does, as far
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
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(2 * servertest.Patience / time.Second)}); err != nil {
		return 0, fmt.Errorf("limiting how long a connection blocks: %w", err)
	}
	return fd, nil
}

var (
	diskFile  int
	diskBlock [4096]byte
)

// askOnce asks, and returns how long the answer took.
func askOnce(fd int, what question) (took time.Duration, err error) {
	began := time.Now()
	switch what {
	case askPeek:
		_, err = exchange(fd, "peek 0\r\n", "NOT_FOUND\r\n")
	case askUse:
		_, err = exchange(fd, "use probe\r\n", "USING probe\r\n")
	case askPut:
		var id string
		id, err = exchange(fd, "put 0 0 60 1\r\nx\r\n", "INSERTED ")
		took = time.Since(began)
		if err == nil {
			began = time.Now()
			_, err = exchange(fd, "delete "+id, "DELETED\r\n")
		}
	case askDisk:
		if _, err = unix.Pwrite(diskFile, diskBlock[:], 0); err == nil {
			err = unix.Fdatasync(diskFile)
		}
	case askNobody:
		ts := unix.NsecToTimespec(int64(askInterval))
		_ = unix.Nanosleep(&ts, nil)
		began = began.Add(askInterval)
	}
	return max(took, time.Since(began)), err
}

// exchange sends a command and waits for a line that begins so. It returns what follows.
func exchange(fd int, command, reply string) (rest string, err error) {
	var b [64]byte
	if _, err := unix.Write(fd, []byte(command)); err != nil {
		return "", fmt.Errorf("sending %q: %w", command, err)
	}
	n, err := unix.Read(fd, b[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, b[:])
	}
	if err != nil {
		return "", fmt.Errorf("waiting for the answer to %q: %w", command, err)
	}
	rest, ok := strings.CutPrefix(string(b[:n]), reply)
	if !ok {
		return "", fmt.Errorf("%q was answered %q", command, b[:n])
	}
	return rest, nil
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
