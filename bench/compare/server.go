package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
)

// A Server is a server that can be started: a name and a command in which {host}, {port} and {dir} stand for where it
// shall listen and for an empty directory of its own. The command is split at spaces; there is no shell.
type Server struct {
	Name    string
	Command string
}

// ParseServer understands "name=command". Without a name, the base name of the program is taken.
func ParseServer(s string) (Server, error) {
	name, command, named := strings.Cut(s, "=")
	if !named || strings.ContainsAny(name, " /{") {
		name, command = "", s
	}
	words := strings.Fields(command)
	if len(words) == 0 {
		return Server{}, fmt.Errorf("server %q: no command", s)
	}
	if name == "" {
		name = words[0][strings.LastIndexByte(words[0], '/')+1:]
	}
	if !strings.Contains(command, "{port}") {
		return Server{}, fmt.Errorf("server %q: the command does not say where {port} belongs", s)
	}
	return Server{name, command}, nil
}

// errNoStart is returned for a server that ends instead of starting, as one does that lacks an option.
var errNoStart = errors.New("the server does not start")

const (
	startPatience = 60 * time.Second // a server may have a long log to read
	stopPatience  = 10 * time.Second
)

// A process is a server that runs.
type process struct {
	cmd    *exec.Cmd
	addr   bench.Address
	begun  time.Time
	output output
	ended  chan struct{} // closed when it has ended
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

// errPortTaken is returned for a server that ended while another program had its port.
var errPortTaken = errors.New("another program took the port")

// startAttempts is how many ports a server is started on while other programs take them.
const startAttempts = 5

// start runs the server on the given processors, with more arguments, and returns when it accepts connections. dir
// stands for {dir}.
func (s Server) start(ctx context.Context, args, dir string, cpus []int) (p *process, err error) {
	for range startAttempts {
		if p, err = s.startOnce(ctx, args, dir, cpus); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return p, err
}

// startOnce is start on a port that was free a moment ago.
func (s Server) startOnce(ctx context.Context, args, dir string, cpus []int) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &process{ended: make(chan struct{})}
	if p.addr, err = bench.ParseAddress("127.0.0.1:" + strconv.Itoa(port)); err != nil {
		return nil, err
	}
	words := strings.Fields(s.Command + " " + args)
	for i, w := range words {
		words[i] = strings.NewReplacer("{host}", "127.0.0.1", "{port}", strconv.Itoa(port), "{dir}", dir).Replace(w)
	}
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.startOn(cpus); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	for deadline := p.begun.Add(startPatience); ; {
		c, err := net.DialTimeout("tcp", p.addr.Name, time.Second)
		if err == nil {
			c.Close()
			return p, nil
		}
		select {
		case <-p.ended:
			err := errNoStart
			if l, taken := net.Listen("tcp", p.addr.Name); taken != nil {
				err = fmt.Errorf("%w: %w", errNoStart, errPortTaken)
			} else {
				l.Close()
			}
			return nil, fmt.Errorf("%w: %s: %s", err, p.cmd.ProcessState, p.output.String())
		case <-ctx.Done():
			p.stop()
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.stop()
			return nil, fmt.Errorf("%s does not listen on %s: %s", s.Name, p.addr, p.output.String())
		}
	}
}

// startOn starts the command from a thread that is bound to cpus, which the process inherits.
func (p *process) startOn(cpus []int) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its binding
		err := host.PinThread(cpus)
		if err == nil {
			p.begun = time.Now()
			err = p.cmd.Start()
		}
		result <- err
	}()
	return <-result
}

// stop ends the server and waits until it is gone.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopPatience):
		p.kill()
	}
}

// kill ends the server without giving it a chance.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
