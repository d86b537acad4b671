package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"trellis/bench"
)

// Run puts the load of cfg on a server, measures, and takes the jobs out again. When the server breaks the
// protocol, the Err of the result says so, not Run. With an error, the result holds what was measured before it,
// or is nil. When ctx ends, the load ends early, and its jobs are taken out all the same. Run may raise GOMAXPROCS
// and the limit of open files.
func Run(ctx context.Context, cfg bench.Config) (*bench.Result, error) {
	sc, err := complete(&cfg)
	if err != nil {
		return nil, err
	}
	// A worker that waits occupies one of Go's processors; the rest of this program needs some, too.
	if need := cfg.Threads + 2; runtime.GOMAXPROCS(0) < need {
		runtime.GOMAXPROCS(need)
	}
	var runs []bench.RunResult
	for i := range cfg.Runs {
		one, err := runOnce(ctx, &cfg, sc, i)
		if one != nil {
			runs = append(runs, *one)
		}
		if err != nil {
			if len(runs) == 0 {
				return nil, err
			}
			return bench.NewResult(cfg, runs), err
		}
	}
	return bench.NewResult(cfg, runs), nil
}

// runOnce is one run from connecting to cleaning up. With an error, it returns what was measured before, or nil.
func runOnce(ctx context.Context, cfg *bench.Config, sc *Scenario, number int) (*bench.RunResult, error) {
	ctl, err := dialControl(&cfg.Addr, cfg.Token, cfg.ReplyTimeout)
	if err != nil {
		return nil, err
	}
	defer func() { ctl.Close() }()
	seed := cfg.Seed + uint64(number)
	s := &shared{
		cfg: cfg, addr: &cfg.Addr, scenario: sc, drv: sc.driver, consumes: sc.Uses&Producers != 0, seed: seed,
		unitsPerConn: cfg.Depth, bodies: newBodies(cfg.Size, seed), mix: newMixTable(cfg.Mix),
		counters: make([]counters, cfg.Threads),
		base:     time.Now(), prefix: tubePrefix(),
	}
	if sc.single {
		s.unitsPerConn = 1
	}
	s.book = newBook(&s.violations, s.bodies, cfg.Threads > 1)
	for i := range cfg.Tubes {
		s.tubes = append(s.tubes, fmt.Sprintf("%s-%d", s.prefix, i))
	}
	heed := context.AfterFunc(ctx, func() { ctl.Close() }) // later there is something to take out
	s.meter, err = openMeter(cfg, ctl)
	if !heed() {
		return nil, errAborted
	}
	if err != nil {
		return nil, err
	}
	ctl.timeout = controlTimeout
	stop := context.AfterFunc(ctx, func() { s.abort.Store(true) })
	defer stop()
	workers, err := s.newWorkers()
	if err != nil {
		return nil, err
	}
	defer s.closeAll(workers)

	r := &bench.RunResult{}
	phase := s.progress(number + 1)
	defer phase("")
	phase("connecting")
	giveUp := func(err error) (*bench.RunResult, error) {
		if len(r.Violations) == 0 {
			r.Violations = s.violations.report() // now: jobs that come back from broken connections must not add to it
		}
		phase("cleaning up")
		s.closeAll(workers)
		s.abort.Store(false)
		ctl.timeout = cfg.ReplyTimeout
		_ = s.cleanUp(ctl) // what cannot be taken out stays; the run failed for another reason
		return s.failed(r, err)
	}
	if err := s.furtherTubes(ctl); err != nil {
		return giveUp(err)
	}
	before := s.meter.memory()
	if err := onAll(workers, (*worker).connect); err != nil {
		return giveUp(err)
	}
	connected, held := s.meter.memory(), inServer(workers)

	phase("warming up")
	window := times{record: s.now() + int64(cfg.Warmup), stop: math.MaxInt64}
	if cfg.Count == 0 {
		window.stop = window.record + int64(cfg.Duration)
	}
	err = onAll(workers, func(w *worker) error { return w.run(window) })
	if err != nil {
		ctl.timeout = cfg.ReplyTimeout
	}
	if s.atStart.at > 0 && s.atEnd.at == 0 {
		s.sample(&s.atEnd)
	}
	loaded := s.meter.memory()
	if s.atStart.at == 0 || s.atEnd.at == 0 || !s.meter.confirm() {
		s.atStart, s.atEnd, loaded = usage{}, usage{}, 0
	}
	s.collect(r, workers)
	if err != nil {
		return giveUp(err)
	}
	if r.JobsLeft = inServer(workers) - held; r.JobsLeft > 0 {
		r.BytesPerJob = growth(connected, loaded, r.JobsLeft, bench.MemoryJobs)
		loaded = min(connected, loaded)
	}
	if cfg.Held == 0 {
		r.BytesPerConn = growth(before, loaded, int64(cfg.Conns+cfg.Idle+cfg.Waiting), bench.MemoryConns)
	}

	phase("cleaning up")
	if cfg.Idle > 0 {
		if err := onAll(workers, (*worker).rollCall); err != nil {
			return giveUp(err)
		}
	}
	// A run that ended without a violation has outstanding commands too, and cleaning up may find the first one.
	unsure := s.violations.total.Load() > 0 && slices.ContainsFunc(workers, (*worker).unsure)
	if unsure { // now: such jobs must not add to it
		r.Violations = s.violations.report()
	}
	s.closeAll(workers)
	if cfg.AfterLoad != nil {
		ctl.Close()
		addr, err := cfg.AfterLoad()
		if err != nil {
			return r, err
		}
		next, err := dialControl(&addr, cfg.Token, controlTimeout)
		if err != nil {
			return r, err
		}
		ctl = next
	}
	if err := s.cleanUp(ctl); err != nil {
		return s.failed(r, err)
	}
	if s.abort.Load() {
		return giveUp(errAborted)
	}
	if !unsure {
		s.book.close(cfg.Keep)
		r.Violations = s.violations.report()
	}
	return r, nil
}

// failed returns what a run that could not go on has come to. Violations make it a result and err is dropped, unless
// the run was interrupted; without violations err is returned.
func (s *shared) failed(r *bench.RunResult, err error) (*bench.RunResult, error) {
	if len(r.Violations) == 0 {
		r.Violations = s.violations.report()
	}
	switch {
	case len(r.Violations) > 0 && !errors.Is(err, errAborted):
		return r, nil
	case r.Seconds == 0:
		return nil, err
	}
	return r, err
}

func inServer(workers []*worker) int64 {
	n := int64(0)
	for _, w := range workers {
		n += w.puts - w.deletions
	}
	return n
}
