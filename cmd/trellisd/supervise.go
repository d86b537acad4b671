package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"trellis/cmd/trellisd/internal/web"
	"trellis/engine"
	"trellis/reactor"
)

// stopTimeout is how long clients may take to read their last replies after the
// server was told to stop. It is below what service managers and container
// runtimes wait before they kill.
const stopTimeout = 5 * time.Second

// errDraining is why a server is not ready in drain mode, which a signal or a client's
// command turns on.
var errDraining = errors.New("draining")

// supervise serves the sockets until a signal says stop, or one of them or the
// log fails.
func supervise(eng *engine.Engine, srv *reactor.Server, sock *sockets, certs *certificates, logFailed <-chan error,
	ready *web.Readiness, delay time.Duration, sigs *signals, log *slog.Logger,
) error {
	sigs.serving.Store(true)
	failed := make(chan error, len(sock.plain)+len(sock.tls))
	serve := func(serve func() error) {
		if err := serve(); err != nil {
			failed <- err
		}
	}
	for _, l := range sock.plain {
		go serve(func() error { return srv.Serve(l) })
	}
	for _, l := range sock.tls { // there are none without certificates
		go serve(func() error { return srv.ServeTLS(l, certs.Config()) })
	}
	ready.ReadyUnless(func() error {
		if eng.Draining() {
			return errDraining
		}
		return nil
	})
	log.Info("ready")
	notify(daemon.SdNotifyReady, log)

	var delayed <-chan time.Time
	for {
		select {
		case <-sigs.drain:
			eng.Drain(true)
			log.Info("drain mode: refusing new jobs")
		case sig := <-sigs.stop:
			log.Info("stopping", "signal", sig.String())
			ready.NotReady("stopping")
			delayed = time.After(delay)
		case <-delayed:
			return stop(srv, logFailed, log)
		case err := <-failed:
			log.Info("stopping", "error", err)
			ready.NotReady("a listener has failed")
			return errors.Join(err, stop(srv, logFailed, log))
		case err := <-logFailed:
			// The kernel does not tell what of the log is on disk. Replies
			// that wait for it are dropped, and their connections end; what was
			// acknowledged before is there.
			log.Info("stopping", "error", err)
			ready.NotReady("the binlog has failed")
			srv.CommitFailed()
			return errors.Join(err, stop(srv, nil, log))
		}
	}
}

// stop ends the service in order. The log may still fail meanwhile: then nobody waits
// for replies that will never be sent.
func stop(srv *reactor.Server, logFailed <-chan error, log *slog.Logger) error {
	notify(daemon.SdNotifyStopping, log)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Shutdown(ctx) }()
	var err, failed error
	select {
	case err = <-ended:
	case failed = <-logFailed:
		srv.CommitFailed()
		err = <-ended
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		log.Warn("some clients did not read their last replies in time", "timeout", stopTimeout)
	case err != nil:
		return errors.Join(failed, fmt.Errorf("stopping: %w", err))
	}
	log.Info("stopped")
	return failed
}

// notify tells systemd, if it has started us, how far we are.
func notify(state string, log *slog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("notifying systemd", "state", state, "error", err)
	}
}
