package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"trellis/cmd/internal/client"
)

var (
	errStopped = errors.New("the worker has been stopped")
	errGone    = errors.New("the job has been deleted, or its time to run has passed")
)

// startError tells that the command could not be started.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// do runs the command for a job, and settles the job by its outcome. After an error the connection must be
// closed, which gives the job back.
func (w *worker) do(c *conn, job *reservation) error {
	command, flush, err := w.start(job)
	if err != nil {
		return &startError{err}
	}
	given := w.attend(c, job, command)
	failed := command.wait()
	flush()
	if given != nil {
		w.givenUp.Add(1)
		w.printf("job %d: given up, its command has ended: %v", job.ID, given)
		switch {
		case errors.Is(given, errGone):
			return nil
		case errors.Is(given, errStopped):
			w.giveBack(c, job)
		}
		return given
	}
	if failed != nil {
		w.printf("job %d: %v", job.ID, failed)
	}
	return w.settle(c, job, failed == nil)
}

// start starts the command. flush is to be called when it has ended.
func (w *worker) start(job *reservation) (c *command, flush func(), err error) {
	stdout, stderr, flush := w.cfg.Stdout, w.cfg.Stderr, func() {}
	if w.cfg.Prefix {
		prefix := fmt.Sprintf("%d: ", job.ID)
		out, errs := newPrefixer(&w.output, stdout, prefix), newPrefixer(&w.output, stderr, prefix)
		stdout, stderr = io.Writer(out), io.Writer(errs)
		flush = func() { out.flush(); errs.flush() }
	}
	c, err = start(w.cfg.Argv, w.environment(job), job.Body, stdout, stderr, w.cfg.Minder)
	return c, flush, err
}

// environment is what the command is told of its job.
func (w *worker) environment(job *reservation) []string {
	env := []string{fmt.Sprintf("TRELLIS_JOB_ATTEMPT=%d", w.attempt(job))}
	for key := range strings.FieldsSeq("id tube pri age delay ttr reserves timeouts releases buries kicks") {
		if v, ok := job.stats.Get(key); ok && !strings.ContainsRune(v.Text, 0) {
			env = append(env, "TRELLIS_JOB_"+strings.ToUpper(key)+"="+v.Text)
		}
	}
	return env
}

// attend touches the job until its command has ended. It stops the command, and returns why, when the job is no longer
// this worker's, when the connection is lost, and when the worker's grace has ended. After the grace the job is still
// touched until the command has ended, so that no other worker begins it before.
func (w *worker) attend(c *conn, job *reservation, command *command) error {
	ttr := min(max(1, job.stats.Uint("ttr")), math.MaxUint32)
	touch := time.NewTicker(time.Duration(ttr) * time.Second / 2)
	defer touch.Stop()
	grace := w.grace.Done()
	var stopped error
	for {
		err := attendUntil(grace, touch.C, c, command)
		select {
		case <-command.done:
			return cmp.Or(stopped, err)
		default:
		}
		if err == nil && grace != nil && w.grace.Err() != nil {
			command.stop()
			grace, stopped = nil, errStopped
		}
		if err == nil {
			err = w.ask(func(ctx context.Context) error { return c.Touch(ctx, job.ID) })
		}
		if errors.Is(err, client.ErrNotFound) {
			err = errGone
		}
		if err != nil {
			command.stop()
			return err
		}
	}
}

// attendUntil returns when the job is to be touched, and earlier when the command or the grace has ended. It returns an
// error when the connection has.
func attendUntil(grace <-chan struct{}, touch <-chan time.Time, c *conn, command *command) error {
	ended, stop := c.observe()
	select {
	case <-grace:
	case <-command.done:
	case <-ended:
	case <-touch:
	}
	return stop()
}

// attempt is the number of this attempt at the job, from 1. Failed attempts count, less the
// new ones that each kick gave.
func (w *worker) attempt(job *reservation) uint64 {
	s := job.stats
	failed, given := s.Uint("releases")+s.Uint("timeouts")+s.Uint("buries"), w.cfg.Attempts*s.Uint("kicks")
	if failed < given {
		return 1
	}
	return failed - given + 1
}

// settle tells the server the outcome.
func (w *worker) settle(c *conn, job *reservation, done bool) error {
	attempt, pri := w.attempt(job), uint32(min(job.stats.Uint("pri"), math.MaxUint32))
	counter := &w.released
	call := func(ctx context.Context) error { return c.Release(ctx, job.ID, pri, w.backoff(attempt)) }
	switch {
	case done:
		counter = &w.deleted
		call = func(ctx context.Context) error { return c.Delete(ctx, job.ID) }
	case w.cfg.Attempts > 0 && attempt >= w.cfg.Attempts:
		w.printf("job %d: buried after %d attempts", job.ID, attempt)
		counter = &w.buried
		call = func(ctx context.Context) error { return c.Bury(ctx, job.ID, pri) }
	}
	err := w.ask(call)
	refused := (*client.RefusedError)(nil)
	switch {
	case err == nil:
		counter.Add(1)
		return nil
	case errors.As(err, &refused) && refused.Command == "release" && refused.Reply == "BURIED":
		w.printf("job %d: buried, since the server had no memory to release it", job.ID)
		w.buried.Add(1)
		return nil
	case errors.Is(err, client.ErrNotFound):
		w.givenUp.Add(1)
		w.printf("job %d: the job was deleted, or its time to run had passed, before its command ended", job.ID)
		return nil
	}
	w.givenUp.Add(1)
	w.printf("job %d: its outcome could not be told to the server, which will hand it out again", job.ID)
	return err
}

// giveBack makes a job that is not settled ready, which counts as no attempt. The end of the connection, which
// follows, would do that too, but where the job's tube takes the end of a connection for a failure (disconnects=1).
// That is left to a server that lacks move-job or does not grant it.
func (w *worker) giveBack(c *conn, job *reservation) {
	if tube, ok := job.stats.Get("tube"); ok {
		_ = w.ask(func(ctx context.Context) error { return c.MoveJob(ctx, job.ID, tube.Text) })
	}
}

// ask bounds the time of one command. It does not end with the worker: what runs is to be settled.
func (w *worker) ask(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.Timeout)
	defer cancel()
	return call(ctx)
}

// backoff is the delay after so many attempts, in seconds, rounded up.
func (w *worker) backoff(attempts uint64) uint32 {
	d := w.cfg.Backoff
	for i := uint64(1); i < attempts && d < w.cfg.MaxBackoff && d > 0; i++ {
		d *= 2
	}
	d = min(d, w.cfg.MaxBackoff, math.MaxUint32*time.Second)
	return uint32((d + time.Second - 1) / time.Second)
}
