package load

import (
	"errors"
	"sync"

	"trellis/bench/internal/host"
)

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
	if s.scenario.reconnects {
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
			// In proportion to its connections. The first worker, which always has one, gets what is left.
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

// onAll runs f for all workers at once, each on a thread of its own. An error of one aborts the others, and is
// returned in preference to their errAborted.
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
