package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"trellis/cmd/internal/client"

	"golang.org/x/sync/errgroup"
)

const (
	// reserveFor is how long the server is asked to wait for a job. It is asked again after that, so
	// that a server that does not answer any more is found out.
	reserveFor = 30 * time.Second

	// A slot that has lost its server tries again after reconnectMin, then twice that, up to reconnectMax.
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// Config says what a worker does. All fields but Token, Mode and Prefix have to be set, unless
// 0 is said to mean something.
type Config struct {
	Dial  func(context.Context) (net.Conn, error) // connects to the server
	Addr  string                                  // the server, for messages
	Token string                                  // to authenticate with, if it is not empty
	Tubes []Tube
	Mode  string   // how the server is to choose among the tubes, as in reserve-mode; "" for what servers do unasked
	Jobs  int      // how many commands run at once
	Argv  []string // the program, and its arguments

	Attempts   uint64        // failed attempts after which a job is buried; 0: never
	Backoff    time.Duration // the delay after the first failed attempt; delays are rounded up to whole seconds
	MaxBackoff time.Duration // the longest delay
	Grace      time.Duration // how long commands may go on when the worker stops
	Timeout    time.Duration // for connecting, and for the reply to one command

	Stdout, Stderr io.Writer // of the commands; a file is handed to them as it is
	Prefix         bool      // write the job's id before each line of them
	Log            io.Writer // what the worker has to say itself
	Minder         *Minder   // kills the commands if this process is killed
}

// A Tube is one whose jobs are done.
type Tube struct {
	Name   string
	Weight uint32 // 0 for none, which a weighted mode takes for 1
}

// Summary is what a worker has done.
type Summary struct {
	Deleted, Released, Buried uint64
	GivenUp                   uint64 // commands that were stopped, and jobs whose outcome could not be told to the server
}

// A worker is a call of Run.
type worker struct {
	cfg    Config
	grace  context.Context // ends when commands may not go on
	output sync.Mutex      // held while a line with a prefix is written
	log    sync.Mutex      // held while cfg.Log is written

	deleted, released, buried, givenUp atomic.Uint64
}

// Run works until ctx ends, and returns when all commands have ended: see [Config.Grace]. It returns an error if the
// first connection fails, and ends by itself with one if the server does not let it watch the tubes, or if the command
// cannot be started, which is no job's fault. A server that goes away is waited for.
func Run(ctx context.Context, cfg Config) (Summary, error) {
	first, err := connect(ctx, &cfg)
	if err != nil {
		return Summary{}, err
	}
	grace, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	w := &worker{cfg: cfg, grace: grace}
	slots, ctx := errgroup.WithContext(ctx)
	for i := range cfg.Jobs {
		var c *conn
		if i == 0 {
			c = first
		}
		slots.Go(func() error { return w.slot(ctx, c) })
	}
	slots.Go(func() error {
		select {
		case <-cfg.Minder.ended:
			return errMinder
		case <-ctx.Done():
			return nil
		}
	})
	idle := make(chan error, 1)
	go func() { idle <- slots.Wait() }()
	<-ctx.Done()
	w.printf("stopping: no job is begun any more, and commands may go on for %v", cfg.Grace)
	select {
	case err = <-idle:
	case <-time.After(cfg.Grace):
		kill()
		err = <-idle
	}
	return Summary{w.deleted.Load(), w.released.Load(), w.buried.Load(), w.givenUp.Load()}, err
}

// slot does one job after the other. c is its connection, nil if it has to connect. It returns an error if
// the worker must end.
func (w *worker) slot(ctx context.Context, c *conn) error {
	for wait := reconnectMin; ; wait = min(2*wait, reconnectMax) {
		var err error
		if c == nil {
			c, err = connect(ctx, &w.cfg)
		}
		if refused := (*client.RefusedError)(nil); errors.As(err, &refused) && ctx.Err() == nil {
			return err
		}
		if err == nil {
			var answered bool
			answered, err = w.serve(ctx, c)
			c.Close() // gives back what is still reserved
			c = nil
			if answered {
				wait = reconnectMin
			}
		}
		if broken := (*startError)(nil); errors.As(err, &broken) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		w.printf("%v; trying again", err)
		select {
		case <-time.After(wait/2 + rand.N(wait/2)): // the slots do not all come at once
		case <-ctx.Done():
			return nil
		}
	}
}

// serve does jobs on a connection, until it fails or ctx ends. answered reports whether a job was settled or none was
// there: the server works, and the pauses between connections begin anew.
func (w *worker) serve(ctx context.Context, c *conn) (answered bool, err error) {
	for ctx.Err() == nil {
		job, err := c.reserve(ctx, w.cfg.Timeout)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				w.giveBack(c, job)
			}
			return answered, nil
		case err == nil:
			err = w.do(c, job)
		case errors.Is(err, client.ErrNotFound):
			err = nil
		}
		if err != nil {
			return answered, err
		}
		answered = true
	}
	return answered, nil
}

func (w *worker) printf(format string, args ...any) {
	w.log.Lock()
	defer w.log.Unlock()
	fmt.Fprintf(w.cfg.Log, "trellis: "+format+"\n", args...)
}
