package worker

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// A Minder is a process that kills the commands of a worker that has ended without doing so, for instance because it was
// killed. The system's own means reach a command, but not the processes that it has started: those of a shell script.
//
// The worker tells it of the groups that run, through a pipe. The end of the pipe is the end of the worker.
// Its methods may be called from any goroutine.
type Minder struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	pipe io.WriteCloser // guarded by mu
	err  error          // guarded by mu; the first one of the pipe
}

// StartMinder starts cmd as a minder: a program that calls [Mind] with its standard input, and nothing else.
func StartMinder(cmd *exec.Cmd) (*Minder, error) {
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of what kills the worker's own group
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process that minds the commands: %w", err)
	}
	return &Minder{cmd: cmd, pipe: pipe}, nil
}

// Close ends the minder. It returns an error if the minder has failed meanwhile, and has not been able to do its work.
func (m *Minder) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pipe.Close()
	if err := m.cmd.Wait(); m.err == nil {
		m.err = err
	}
	if m.err != nil {
		return fmt.Errorf("the process that minds the commands: %w", m.err)
	}
	return nil
}

func (m *Minder) begin(pgid int) { m.tell("begin", pgid) }
func (m *Minder) end(pgid int)   { m.tell("end", pgid) }

func (m *Minder) tell(what string, pgid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := fmt.Fprintln(m.pipe, what, pgid); m.err == nil {
		m.err = err
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
		var what string
		var pgid int
		if n, _ := fmt.Sscan(in.Text(), &what, &pgid); n != 2 || pgid <= 1 {
			continue // not from a worker; and kill(-1) would reach every process there is
		}
		switch what {
		case "begin":
			groups[pgid] = true
		case "end":
			delete(groups, pgid)
		}
	}
	return groups
}
