package process

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
	"trellis/engine/script"
)

func TestTheServerBehavesAsTheCorpusSays(t *testing.T) {
	stalls := watchStalls(t)
	cases := map[string][]script.Case{"3": script.Corpus()}
	switch {
	case !servertest.Proof: // all of them are played to the engine there, without sockets
		cases["3"] = every(10, cases["3"][5:])
	case !servertest.RaceEnabled: // a server with one loop has no races worth the time
		cases["1"] = every(4, cases["3"])
	}
	for loops, cases := range cases {
		t.Run(loops+" loops", func(t *testing.T) {
			t.Parallel()
			playCases(t, stalls, cases, &script.Socket{Patience: servertest.Patience, Launch: func(options ...string) (*script.Process, error) {
				return launchForScript(t, append(options, "--loops="+loops)...)
			}, Authorize: authorize(t)})
		})
	}
}

// playCases plays cases to servers, each to one of its own: nearly every case names jobs by their
// ids, which begin at 1, or looks at counters of the server.
func playCases(t *testing.T, stalls *stalls, cases []script.Case, target *script.Socket) {
	for _, c := range cases {
		if !c.Applies("trellis", "access") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			switch err := stalls.play(c, target); {
			case errors.Is(err, errors.ErrUnsupported):
				t.Skip("played to a step for which a real server has no means: ", err)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

// launchForScript starts a server that lives as long as a case. It may be called
// on any goroutine.
func launchForScript(t *testing.T, options ...string) (*script.Process, error) {
	args := append([]string{"-l127.0.0.1", "-p0", "-V", "--log-format=json"}, options...)
	p, err := servertest.Spawn(exec.Command(servertest.Binary, args...))
	if err != nil {
		return nil, err
	}
	s, err := servertest.AwaitReady(p)
	if err != nil {
		p.Kill()
		return nil, err
	}
	addr := s.Addrs[len(s.Addrs)-1] // those for TLS come last
	return &script.Process{
		Network: addr.Network(),
		Addr:    addr.String(),
		Drain: func(on bool) error {
			if !on {
				return fmt.Errorf("drain mode off: %w", errors.ErrUnsupported)
			}
			if err := p.Cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				return err
			}
			return p.Await("drain mode")
		},
		Stop: func() {
			p.Kill()
			if log := strings.Join(p.Log(), "\n"); strings.Contains(log, "DATA RACE") {
				t.Error(log)
			}
		},
	}, nil
}

// stalls notices when this machine does not run what is ready to run. A script
// assumes that a server acts within some milliseconds; what it sees while
// nobody gets a processor says nothing about the server.
type stalls struct {
	mu   sync.Mutex
	last time.Time // guarded by mu; when the last stall ended
}

const (
	pulse     = 2 * time.Millisecond
	longPulse = 10 * time.Millisecond // below what scripts allow for
	replays   = 50
)

func watchStalls(t *testing.T) *stalls {
	s := new(stalls)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		before := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-time.After(pulse):
			}
			now := time.Now()
			if now.Sub(before) > longPulse {
				s.mu.Lock()
				s.last = now
				s.mu.Unlock()
			}
			before = now
		}
	}()
	return s
}

func (s *stalls) since(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.After(t)
}

// play plays a case. It plays a case that failed while the machine stalled again: only a failure
// without a stall is the server's, and only if it comes again, for a stall of the server alone, as
// by its disk, is not noticed here.
func (s *stalls) play(c script.Case, target script.Target) (err error) {
	unexplained := 0
	for range replays {
		began := time.Now()
		err = script.Play(c, target, "trellis", "access")
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if s.since(began) {
			continue
		}
		if unexplained++; unexplained == 3 {
			break
		}
	}
	return err
}
