package worker

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// killAfter is how long a command that is stopped has between SIGTERM and SIGKILL. A test changes it.
var killAfter = 2 * time.Second

// drainAfter is how long output is still read after the command has exited: a process that it has left
// behind may hold the pipe open for ever.
const drainAfter = 2 * time.Second

// A command is one run of the configured program. Its methods are for one goroutine.
type command struct {
	cmd    *exec.Cmd
	minder *Minder
	done   chan struct{} // closed when the program has exited and its output was read
	err    error         // of the run; to be read after done
	kill   *time.Timer   // nil until stop
}

// start starts a program with body on its standard input, which the program need not read.
func start(argv, env []string, body []byte, stdout, stderr io.Writer, minder *Minder) (*command, error) {
	c := &command{cmd: exec.Command(argv[0], argv[1:]...), minder: minder, done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdin = bytes.NewReader(body) // exec does not take a closed pipe for an error
	c.cmd.Stdout, c.cmd.Stderr = stdout, stderr
	c.cmd.WaitDelay = drainAfter
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.cmd.SysProcAttr)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	minder.begin(c.cmd.Process.Pid)
	go func() {
		defer close(c.done)
		c.err = c.cmd.Wait()
		if errors.Is(c.err, exec.ErrWaitDelay) { // it has exited with status 0, and something else holds a pipe
			c.err = nil
		}
	}()
	return c, nil
}

// stop ends the program and the processes of its group. It does not wait.
func (c *command) stop() {
	if c.kill != nil {
		return
	}
	c.signal(syscall.SIGTERM)
	c.kill = time.AfterFunc(killAfter, func() { c.signal(syscall.SIGKILL) })
}

// wait returns when the program has ended, and says how. If the program was stopped, nothing of its group is left.
func (c *command) wait() error {
	<-c.done
	if c.kill != nil {
		c.kill.Stop()
		c.signal(syscall.SIGKILL)
	}
	c.minder.end(c.cmd.Process.Pid)
	return c.err
}

func (c *command) signal(sig syscall.Signal) {
	_ = syscall.Kill(-c.cmd.Process.Pid, sig) // it fails when all have exited
}
