package worker

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runEnv is in the environment of every command, with the name of its run.
const runEnv = "TRELLIS_WORK_RUN"

// restartAfter is how long a worker that has lost its minder waits before it starts another.
const restartAfter = 100 * time.Millisecond

// minderPatience is how long a minder may leave its full pipe unread. One that is stopped would block all slots.
const minderPatience = 10 * time.Second

// A Minder keeps a process that kills the commands of a worker that has ended without stopping them, for instance because
// it was killed. The system's own means reach a command, but not the processes that it has started, as a shell script does.
//
// The worker tells the process through a pipe which commands run. The end of the pipe is the end of the worker. A process
// that ends before that is replaced, and the new one is told of the commands that run.
// The methods of a Minder may be called from any goroutine.
type Minder struct {
	program func() *exec.Cmd
	name    string        // begins the names of runs, and is no other worker's
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when no minder is kept any more

	mu       sync.Mutex
	patience time.Duration  // guarded by mu; minderPatience but in tests
	cmd      *exec.Cmd      // guarded by mu
	pipe     *os.File       // guarded by mu
	err      error          // guarded by mu; why there is no minder any more
	last     uint64         // guarded by mu; the number of the last run
	runs     map[string]int // guarded by mu; process groups by the names of runs; 0 while the command is being started
}

// StartMinder starts a minder: a program that calls [Mind] with its standard input, and nothing else. The function makes the
// program's command, each time that it has to be started.
func StartMinder(program func() *exec.Cmd) (*Minder, error) {
	m := &Minder{
		program: program, name: rand.Text(), patience: minderPatience,
		closing: make(chan struct{}), ended: make(chan struct{}), runs: make(map[string]int),
	}
	if err := m.start(); err != nil {
		return nil, err
	}
	go m.keep()
	return m, nil
}

// start starts the program and tells it what runs. The caller holds mu, or is the only one.
func (m *Minder) start() error {
	cmd := m.program()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe to the process that minds the commands: %w", err)
	}
	defer theirs.Close()
	cmd.Stdin = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of what kills the worker's own group
	if err := cmd.Start(); err != nil {
		ours.Close()
		return fmt.Errorf("starting the process that minds the commands: %w", err)
	}
	if m.pipe != nil {
		m.pipe.Close()
	}
	m.cmd, m.pipe = cmd, ours
	for run, pgid := range m.runs {
		m.tell(run, pgid)
	}
	return nil
}

// keep replaces a minder that has ended.
func (m *Minder) keep() {
	defer close(m.ended)
	for {
		m.mu.Lock()
		cmd := m.cmd
		m.mu.Unlock()
		failed := cmd.Wait()
		select {
		case <-m.closing:
			m.mu.Lock()
			defer m.mu.Unlock()
			m.err = failed
			return
		case <-time.After(restartAfter):
		}
		if !m.restart() {
			return
		}
	}
}

// restart starts another minder, unless Close was called. It reports whether there is one to keep.
func (m *Minder) restart() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.closing:
		return false
	default:
	}
	m.err = m.start()
	return m.err == nil
}

// Close ends the minder. It returns an error if there is none any more, or if it has failed at its end.
func (m *Minder) Close() error {
	close(m.closing)
	m.mu.Lock()
	m.pipe.Close()
	m.mu.Unlock()
	<-m.ended
	if m.err != nil {
		return fmt.Errorf("the process that minds the commands: %w", m.err)
	}
	return nil
}

// begin names a run whose command is about to be started. The name has to be in the command's environment, by which the minder
// finds its processes if the worker is killed before it can tell the group.
func (m *Minder) begin() (run string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	run = fmt.Sprintf("%s.%d", m.name, m.last)
	m.set(run, 0)
	return run
}

// started tells the process group of a run.
func (m *Minder) started(run string, pgid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(run, pgid)
}

// end tells that nothing of a run is to be killed any more, or that its command could not be started.
func (m *Minder) end(run string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, run)
	m.say("end", run)
}

// set notes and tells the group of a run. The caller holds mu.
func (m *Minder) set(run string, pgid int) {
	m.runs[run] = pgid
	m.tell(run, pgid)
}

// tell tells the group of a run. The caller holds mu, or is the only one.
func (m *Minder) tell(run string, pgid int) { m.say("run", run, pgid) }

// say writes a line to the minder, and kills one that does not read. If it fails, keep tells the next minder. The caller holds
// mu, or is the only one.
func (m *Minder) say(words ...any) {
	_ = m.pipe.SetWriteDeadline(time.Now().Add(m.patience))
	if _, err := fmt.Fprintln(m.pipe, words...); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = m.cmd.Process.Kill()
	}
}

// Mind is the minder's side: it reads what the worker tells, and kills what runs when the worker has ended.
func Mind(worker io.Reader) {
	parent := os.Getppid()
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // it ends with the worker, not before
	var starting []string
	for run, pgid := range running(worker) {
		if pgid == 0 {
			starting = append(starting, run)
			continue
		}
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // it fails when the group has just ended
	}
	if len(starting) > 0 {
		killStarting(starting, parent)
	}
}

// running reads to the end, and returns the process groups of the runs that have begun and not ended, 0 where the worker has not
// told the group.
func running(worker io.Reader) map[string]int {
	groups := make(map[string]int)
	for in := bufio.NewScanner(worker); in.Scan(); {
		var pgid int
		switch words := strings.Fields(in.Text()); {
		case len(words) == 2 && words[0] == "end":
			delete(groups, words[1])
		case len(words) == 3 && words[0] == "run":
			if n, err := fmt.Sscan(words[2], &pgid); n != 1 || err != nil || pgid < 0 || pgid == 1 {
				continue // not from a worker; and kill(-1) would reach every process there is
			}
			groups[words[1]] = pgid
		}
	}
	return groups
}
