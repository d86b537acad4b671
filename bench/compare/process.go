package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/bench"
	"trellis/bench/internal/host"
)

// A process is a server, or a proxy in front of one, that runs. It leads a process group, so that a command which is a
// wrapper ends together with the server that it has started.
type process struct {
	cmd       *exec.Cmd
	addr      bench.Address
	http      string // where its metrics are if its command says {http}
	tls       string // where it speaks TLS if its command says {tls}
	startTime time.Time
	output    output
	ended     chan struct{} // closed behind its end, when nobody writes to output any more, or after stopTimeout
}

// An output keeps the beginning of what a process says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := 4096 - o.buf.Len(); room > 0 {
		o.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.buf.String())
}

// run starts a command from a thread that is bound to cpus, which the process inherits.
func (p *process) run(words []string, cpus []int) error {
	p.cmd, p.ended = exec.Command(words[0], words[1:]...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.WaitDelay = stopTimeout
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	host.EndWithThread(p.cmd.SysProcAttr) // Ctrl-C at a terminal reaches the generator alone
	result := make(chan error)
	go func() {
		// It is never unlocked: the thread ends with its binding, and not before the process, which would end too.
		runtime.LockOSThread()
		err := host.PinThread(cpus)
		if err == nil {
			p.startTime = time.Now()
			err = p.cmd.Start()
		}
		result <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	return <-result
}

// errSilent is returned when a process has not become ready in the given time.
var errSilent = errors.New("is not ready")

// await waits until ready says that the process serves on addr. It returns an error that wraps errNoStart
// when the process ends before.
func (p *process) await(ctx context.Context, addr string, timeout time.Duration, ready func() bool) error {
	for deadline := time.Now().Add(timeout); !ready(); {
		select {
		case <-p.ended:
			err := errNoStart
			if p.lostPort(addr) {
				err = fmt.Errorf("%w: %w", errNoStart, errPortTaken)
			}
			return fmt.Errorf("%w: %s: %s", err, p.cmd.ProcessState, p.output.String())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w on %s: %s", errSilent, addr, p.output.String())
		}
	}
	return nil
}

// lostPort reports whether another program has taken a port of the process, which has ended: the one of addr, or a
// further one that the process complained of.
func (p *process) lostPort(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return true
	}
	l.Close()
	return strings.Contains(strings.ToLower(p.output.String()), unix.EADDRINUSE.Error())
}

// signal sends a signal to the process and to those that it has started.
func (p *process) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // it fails when all have ended
}

func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
	}
	p.kill() // a wrapper may have ended before its server
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// killAll kills all processes before it waits for any, so that none goes on without the others.
func killAll(all []*process) {
	for _, p := range all {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range all {
		<-p.ended
	}
}
