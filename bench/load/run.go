package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
)

// A shared is what the workers of a run have in common. Its plain fields do not change while workers run, but for
// atStart and atEnd, which are worker 0's.
type shared struct {
	cfg      *bench.Config
	addr     *bench.Address
	drv      driver
	consumes bool
	violations
	book     *book
	bodies   *bodies
	mix      *mixTable
	meter    *meter
	counters []counters
	base     time.Time
	prefix   string // of the names of tubes
	tubes    []string
	abort    atomic.Bool // give up at once
	broken   atomic.Bool // begin nothing more
	dialled  atomic.Int64
	spread   int // how many connections are open at once
	seed     uint64
	// unitsPerConn is how many units a connection has under way at once.
	unitsPerConn int
	atStart      usage
	atEnd        usage
}

// now returns the time on the run's clock in nanoseconds.
func (s *shared) now() int64 { return int64(time.Since(s.base)) }

func (s *shared) tube(i int) string { return s.tubes[i%len(s.tubes)] }

// emptyTube is one that never gets a job.
func (s *shared) emptyTube() string { return s.prefix + "-empty" }

func (s *shared) sample(to *usage) {
	u, err := s.meter.read()
	if err != nil {
		s.violations.add(bench.ViolationClosed, "%v", err)
		return
	}
	u.at = s.now()
	*to = u
}

// tubePrefix is how the names of a run's tubes begin. It differs between runs, also of other processes and on other
// machines.
func tubePrefix() string { return fmt.Sprintf("bench-%d-%x", os.Getpid(), rand.Uint64()) }

// Run measures. It returns a result also when the server broke the protocol; Result.Err tells that. With an error, the
// result holds what was measured before, and is nil when that is nothing. ctx ends it early, and then the jobs are taken
// out all the same.
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
	ctl, err := dialControl(&cfg.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { ctl.Close() }()
	seed := cfg.Seed + uint64(number)
	s := &shared{
		cfg: cfg, addr: &cfg.Addr, drv: sc.driver, consumes: sc.Consumers, seed: seed, unitsPerConn: cfg.Depth,
		bodies: newBodies(cfg.Size, seed), mix: newMixTable(cfg.Mix), counters: make([]counters, cfg.Threads),
		base: time.Now(), prefix: tubePrefix(),
	}
	if sc.single {
		s.unitsPerConn = 1
	}
	s.book = newBook(&s.violations, s.bodies, cfg.Threads > 1)
	for i := range cfg.Tubes {
		s.tubes = append(s.tubes, fmt.Sprintf("%s-%d", s.prefix, i))
	}
	if s.meter, err = openMeter(&cfg.Addr, ctl, cfg.CPUs); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.abort.Store(true) })
	defer stop()
	workers, err := s.newWorkers()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, w := range workers {
			w.closeAll()
		}
	}()

	r := &bench.RunResult{}
	phase := s.progress(number + 1)
	defer phase("")
	phase("connecting")
	giveUp := func(err error) (*bench.RunResult, error) {
		r.Violations = s.violations.report() // jobs that come back from connections that broke shall not add to it
		phase("cleaning up")
		for _, w := range workers {
			w.closeAll()
		}
		s.abort.Store(false)
		ctl.timeout = cfg.Patience
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
		ctl.timeout = cfg.Patience
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
		memoryPerJob(r, connected, loaded, r.JobsLeft)
		loaded = min(connected, loaded)
	}
	if cfg.Held == 0 {
		memoryPerConn(r, before, loaded, cfg.Conns+cfg.Idle+cfg.Waiting)
	}

	phase("cleaning up")
	if cfg.Idle > 0 {
		if err := onAll(workers, (*worker).rollCall); err != nil {
			return giveUp(err)
		}
	}
	for _, w := range workers {
		w.closeAll()
	}
	if cfg.AfterLoad != nil {
		ctl.Close()
		addr, err := cfg.AfterLoad()
		if err != nil {
			return r, err
		}
		next, err := dialControl(&addr)
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
	s.book.close(cfg.Keep)
	r.Violations = s.violations.report()
	return r, nil
}

// failed ends a run that could not go on. Violations are a result; anything else is an error.
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

// inServer returns the number of jobs that the workers have put and not deleted.
func inServer(workers []*worker) int64 {
	n := int64(0)
	for _, w := range workers {
		n += w.puts - w.gone
	}
	return n
}

// newWorkers makes the workers and spreads the connections over them.
func (s *shared) newWorkers() ([]*worker, error) {
	cfg := s.cfg
	units, consumers := cfg.Conns, 0
	if s.consumes {
		units = cfg.Producers
		consumers = cfg.Conns - units
	}
	workers := make([]*worker, cfg.Threads)
	for i := range workers {
		workers[i] = newWorker(s, i)
	}
	n := 0
	add := func(role role, count int) {
		for i := range count {
			w := workers[n%len(workers)]
			w.conns = append(w.conns, conn{role: role, number: uint32(i)})
			n++
		}
	}
	add(roleUnits, units)
	add(roleConsumer, consumers)
	add(roleIdle, cfg.Idle)
	add(roleWaiting, cfg.Waiting)
	s.spread = n
	if cfg.Scenario == "churn" {
		s.spread = churnSources * portsPerSource
	}
	if err := host.RaiseFileLimit(n + 64); err != nil {
		return nil, err
	}
	given := int64(0)
	for _, w := range workers {
		own := 0
		for j := range w.conns {
			if w.conns[j].role == roleUnits {
				own++
			}
		}
		if cfg.Rate > 0 && own > 0 {
			w.interval = 1e9 / cfg.Rate * float64(units) / float64(own)
		}
		w.share = -1
		if cfg.Count > 0 {
			// In proportion to the connections; the first worker, which has one whenever there is any, gets the rest.
			w.share = cfg.Count * int64(own) / int64(units)
			given += w.share
		}
		if err := w.prepare(); err != nil {
			return nil, err
		}
	}
	if cfg.Count > 0 {
		workers[0].share += cfg.Count - given
	}
	return workers, nil
}

// onAll runs f for all workers at once, each on its thread, and returns the first error.
func onAll(workers []*worker, f func(*worker) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		wg.Go(func() {
			if errs[i] = w.onThread(func() error { return f(w) }); errs[i] != nil {
				w.abort.Store(true)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, errAborted) {
			return err
		}
	}
	return errors.Join(errs...)
}

// progress starts to report what the workers do. The function that it returns names the next phase; "" ends it.
func (s *shared) progress(run int) func(phase string) {
	if s.cfg.Progress == nil {
		return func(string) {}
	}
	phases := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		p, began := bench.Progress{Run: run}, time.Now()
		for {
			select {
			case p.Phase = <-phases:
				if p.Phase == "" {
					return
				}
				began = time.Now()
				continue
			case <-tick.C:
			}
			if p.Phase == "warming up" && time.Since(began) >= s.cfg.Warmup {
				p.Phase, began = "running", began.Add(s.cfg.Warmup)
			}
			p.Elapsed, p.Commands, p.Units, p.Errors = time.Since(began), 0, 0, s.violations.total.Load()
			for i := range s.counters {
				p.Commands += s.counters[i].commands.Load()
				p.Units += s.counters[i].units.Load()
			}
			s.cfg.Progress(p)
		}
	}()
	return func(phase string) {
		phases <- phase
		if phase == "" {
			<-ended
		}
	}
}
