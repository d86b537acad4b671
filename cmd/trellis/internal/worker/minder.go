package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// minderTimeout is how long a minder may leave its full pipe unread. One that is stopped would block all slots.
const minderTimeout = 10 * time.Second

// errMinder ends a worker whose minder has ended before it.
var errMinder = errors.New("the process that minds the commands has ended")

// A Minder is a process that kills the commands of a worker that has ended without stopping them, because it was
// killed. The system's own means reach a command, but not the processes that it has started, as a shell script does.
//
// The worker writes the process groups of commands into a pipe, as they begin and, negative, as they end. The end of
// the pipe is the end of the worker. The methods of a Minder may be called from any goroutine.
type Minder struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // how; to be read after ended

	mu   sync.Mutex
	pipe *os.File // guarded by mu
}

// StartMinder starts a minder: a program that calls [Mind] with its standard input, and nothing else.
func StartMinder(cmd *exec.Cmd) (*Minder, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to the process that minds the commands: %w", err)
	}
	defer theirs.Close()
	cmd.Stdin = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of what kills the worker's own group
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting the process that minds the commands: %w", err)
	}
	m := &Minder{cmd: cmd, ended: make(chan struct{}), pipe: ours}
	go func() {
		defer close(m.ended)
		m.err = cmd.Wait()
	}()
	return m, nil
}

// Close ends the minder. It returns an error if that had ended before, or fails at its end.
func (m *Minder) Close() error {
	m.mu.Lock()
	m.pipe.Close()
	m.mu.Unlock()
	if <-m.ended; m.err != nil {
		return fmt.Errorf("the process that minds the commands: %w", m.err)
	}
	return nil
}

// begin tells that a process group is to be killed with the worker.
func (m *Minder) begin(pgid int) { m.tell(pgid) }

// end tells that nothing of a process group is to be killed any more.
func (m *Minder) end(pgid int) { m.tell(-pgid) }

// tell writes a line to the minder, and kills one that does not read.
func (m *Minder) tell(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.pipe.SetWriteDeadline(time.Now().Add(minderTimeout))
	if _, err := fmt.Fprintln(m.pipe, n); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = m.cmd.Process.Kill()
	}
}

// Mind is the minder's side: it reads what the worker tells, and kills what runs when the worker has ended.
func Mind(worker io.Reader) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // it ends with the worker, not before
	for pgid := range running(worker) {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // it fails when the group has just ended
	}
}

// running reads to the end, and returns the process groups that have begun and not ended.
func running(worker io.Reader) map[int]bool {
	groups := make(map[int]bool)
	for in := bufio.NewScanner(worker); in.Scan(); {
		switch n, err := strconv.Atoi(in.Text()); {
		case err != nil || n == 1: // not from a worker; and kill(-1) would reach every process there is
		case n > 0:
			groups[n] = true
		default:
			delete(groups, -n)
		}
	}
	return groups
}
