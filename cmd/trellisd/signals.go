package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// signals are those that the server answers to.
type signals struct {
	stop    chan os.Signal // the first to stop in order, once clients are served
	drain   chan os.Signal // SIGUSR1: drain mode
	reload  chan os.Signal // SIGHUP: load files again
	caught  chan os.Signal // SIGTERM, SIGINT, as they come
	serving atomic.Bool
}

// catchSignals takes the signals over.
func catchSignals() *signals {
	s := &signals{
		stop:   make(chan os.Signal, 1),
		drain:  make(chan os.Signal, 1),
		reload: make(chan os.Signal, 1),
		caught: make(chan os.Signal, 2),
	}
	signal.Notify(s.caught, syscall.SIGTERM)
	// What was started with it ignored, in the background of a script, outlives ^C.
	if !signal.Ignored(syscall.SIGINT) {
		signal.Notify(s.caught, syscall.SIGINT)
	}
	signal.Notify(s.drain, syscall.SIGUSR1)
	// Also where it is ignored, as by nohup: it ends nothing.
	signal.Notify(s.reload, syscall.SIGHUP)
	// Without this, losing the reader of the log would end the process.
	signal.Ignore(syscall.SIGPIPE)
	return s
}

func (s *signals) release() {
	signal.Stop(s.caught)
	signal.Stop(s.drain)
	signal.Stop(s.reload)
}

// during runs a server, which sets s.serving and then heeds s.stop, and returns
// its error. It does not wait for the server's end when a signal comes before
// clients are served, as they have been told nothing yet that could be lost, or
// when the second signal comes: what the server is doing may take long (replaying
// a log) or for ever (writing to a disk that hangs).
func (s *signals) during(server func() error, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- server() }()
	for stopping := false; ; stopping = true {
		select {
		case err := <-ended:
			return err
		case sig := <-s.caught:
			switch {
			case !s.serving.Load():
				log.Info("stopping before clients are served", "signal", sig.String())
				return nil
			case stopping:
				number, _ := sig.(syscall.Signal)
				return exitWith(exitBySignal+int(number), fmt.Errorf("stopping at once: %w", errStoppedTwice))
			}
			s.stop <- sig
		}
	}
}
