package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"trellis/binlog"
	"trellis/binlog/journal"
	"trellis/cmd/trellisd/internal/options"
	"trellis/engine"
	"trellis/reactor"
)

// durable is the server's log on disk, between the engine, which records in it,
// and the reactor, which holds replies back until it is committed.
type durable struct {
	*binlog.Log
	dir    string
	bodies bool       // not all of them are in memory
	failed chan error // gets one error when the log has failed for good; who receives it returns it
}

// openBinlog locks the directory and checks what is in it. It returns nil
// without -b.
func openBinlog(opt *options.Options, mon *monitor, log *slog.Logger) (*durable, error) {
	if opt.Binlog == "" {
		return nil, nil
	}
	o := logOptions(opt, log)
	if mon.commits != nil {
		o.Observer = mon.commits
	}
	l, err := binlog.Open(opt.Binlog, o)
	var damage *binlog.DamageError
	switch {
	case errors.As(err, &damage):
		return nil, fmt.Errorf("%w; look with: trellis binlog verify %s; "+
			"to start with what is sound, and keep the files aside, add --skip-damaged", err, opt.Binlog)
	case errors.Is(err, binlog.ErrNoSpace):
		return nil, err
	case err != nil:
		return nil, exitWith(exitBinlog, err)
	}
	mon.binlog.Store(l)
	d := newDurable(l, opt.Binlog)
	d.bodies = opt.BodyMemory > 0
	return d, nil
}

func newDurable(l *binlog.Log, dir string) *durable {
	return &durable{Log: l, dir: dir, failed: make(chan error, 1)}
}

// logOptions are the log's options as the command line has them.
func logOptions(opt *options.Options, log *slog.Logger) binlog.Options {
	return binlog.Options{
		SegmentSize: opt.SegmentSize,
		Sync:        opt.Sync,
		SkipDamaged: opt.SkipDamaged,
		Indexes:     opt.BodyMemory > 0,
		MaxPending:  opt.BodyMemory / 4, // 0, which means the default, without --body-memory
		Progress: func(p binlog.Progress) {
			log.Info("reading the binlog", "phase", p.Phase, "bytes", p.Done, "of", p.Total, "records", p.Records)
		},
		Log: log,
	}
}

// start begins to record what the engine does, and tells the server of commits.
func (d *durable) start(eng *engine.Engine, srv *reactor.Server) error {
	err := d.Start(binlog.Hooks{
		OnCommit: func(binlog.Pos) { srv.Committed() },
		OnRoom:   eng.Room,
		OnFail: func(err error) {
			d.failed <- fmt.Errorf("the binlog in %s has failed: %w; see to the disk and start again", d.dir, err)
		},
		Migrate: eng.Migrate,
		Jobs:    eng.JobsIn,
		Fetched: d.fetched(eng),
	})
	if err != nil {
		return fmt.Errorf("beginning to write the binlog: %w", err)
	}
	return nil
}

// fetched takes bodies that were read back, nil if all are in memory.
func (d *durable) fetched(eng *engine.Engine) func([]journal.Fetched) {
	if !d.bodies {
		return nil
	}
	return eng.Loaded
}

// restore fills the engine with what is on record.
func (d *durable) restore(eng *engine.Engine, now func() engine.Time, log *slog.Logger) error {
	began := time.Now()
	into := eng.Follow(now())
	if err := d.Replay(into); err != nil {
		return fmt.Errorf("replaying the binlog: %w", err)
	}
	into.Serve(d.NextID(), now())
	r := d.Recovery()
	log.Info("binlog replayed", "jobs", r.Jobs, "records", r.Records, "bytes", r.Bytes, "took", time.Since(began))
	return nil
}

// end commits and syncs what is left. Its error includes a failure of the log that nobody
// has received from d.failed: what was acknowledged last may not be on the disk.
func (d *durable) end() error {
	err := d.Close()
	select {
	case failed := <-d.failed:
		return failed
	default:
	}
	if err == nil || errors.Is(err, binlog.ErrFailed) { // whoever received that failure returns it
		return nil
	}
	return fmt.Errorf("closing the binlog in %s: %w", d.dir, err)
}
