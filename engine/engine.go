package engine

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"trellis/engine/internal/ids"
	"trellis/engine/internal/shard"
)

const defaultShards = ids.MaxShards

// Engine is a whole queue server without its connections. Make one with [New].
type Engine struct {
	shard.Shards
	config   Config // with all that was left out; the shards know the journal
	roll     roll
	draining atomic.Bool

	loopsMu sync.Mutex
	loops   []*Loop // guarded by loopsMu
}

// New makes an engine at time 0.
func New(cfg Config) *Engine {
	n := cfg.Shards
	if n == 0 {
		n = defaultShards
	}
	if n < 0 || n > ids.MaxShards || n&(n-1) != 0 {
		panic(fmt.Sprintf("engine: %d shards: want a power of two of at most %d", n, ids.MaxShards))
	}
	if cfg.SegmentSize == 0 {
		cfg.SegmentSize = 10 << 20
	}
	cfg.Shards = n
	if cfg.seed == (maphash.Seed{}) {
		cfg.seed = maphash.MakeSeed()
	}
	e := &Engine{config: cfg}
	shard.Init(
		&e.Shards, n, cfg.seed, cfg.Limits, cfg.Stock, cfg.Accounts, cfg.Journal, e.Room, cfg.Crowded, cfg.Start)
	return e
}

// Drain turns drain mode on or off: while it is on, puts are refused. Any
// goroutine may call it.
func (e *Engine) Drain(on bool) { e.draining.Store(on) }

// Draining reports whether drain mode is on. A client's command may have changed it, too.
// Any goroutine may call it.
func (e *Engine) Draining() bool { return e.draining.Load() }
