package main

import (
	"os"
	"os/signal"
	"syscall"
)

// signals are those that the server answers to.
type signals struct {
	stop  chan os.Signal // SIGTERM, SIGINT, SIGHUP: end in order
	drain chan os.Signal // SIGUSR1: drain mode
}

// catchSignals takes the signals over. It is called before anything is opened,
// so that a signal during the start ends in order too.
func catchSignals() *signals {
	s := &signals{
		stop:  make(chan os.Signal, 2),
		drain: make(chan os.Signal, 1),
	}
	signal.Notify(s.stop, syscall.SIGTERM)
	// A closed terminal and ^C leave alone what was started so that they do: by
	// nohup, or in the background of a script.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(s.stop, sig)
		}
	}
	signal.Notify(s.drain, syscall.SIGUSR1)
	// Without this, losing the reader of the log would end the process.
	signal.Ignore(syscall.SIGPIPE)
	return s
}

func (s *signals) release() {
	signal.Stop(s.stop)
	signal.Stop(s.drain)
}
