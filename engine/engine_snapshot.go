package engine

import (
	"trellis/engine/internal/shard"
	"trellis/engine/stats"
)

// Snapshot sums up what the server counts. Any goroutine may call it. It takes
// one shard's lock at a time, each for a moment.
func (e *Engine) Snapshot(now Time) *stats.Server {
	var c shard.Tx
	c.Begin(&e.Shards, nil, nil)
	return e.snapshot(&c, now)
}

func (e *Engine) snapshot(c *shard.Tx, now Time) *stats.Server {
	s := c.AddTo(&stats.Server{Draining: e.draining.Load()}, now)
	e.loopsMu.Lock()
	defer e.loopsMu.Unlock()
	for _, l := range e.loops {
		n := &l.counts
		for op := range s.Commands {
			s.Commands[op] += n.commands[op].Load()
		}
		s.Connections += n.sessions.Load()
		s.Producers += n.producers.Load()
		s.Workers += n.workers.Load()
		s.Waiting += n.waiting.Load()
		s.Opened += uint64(n.opened.Load())
	}
	return s
}
