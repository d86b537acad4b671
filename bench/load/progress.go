package load

import (
	"time"

	"trellis/bench"
)

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
