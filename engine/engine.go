package engine

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"trellis/engine/internal/arena"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
)

const defaultShards = ids.MaxShards

// Engine is a whole queue server without its connections. Make one with [New].
type Engine struct {
	shared
	defaultShard *shard // of the tube that always exists
	defaultTube  *tube
	emptyTube    *tube // takes the place of the default tube for those who may not have that; see session_grant.go
	roll         roll
	draining     atomic.Bool

	loopsMu sync.Mutex
	loops   []*Loop // guarded by loopsMu

	life      sync.RWMutex  // held to discard the engine, and shared by those who walk it
	discarded atomic.Bool   // the engine is, or is about to be
	era       atomic.Uint32 // its lowest bit marks the puts that go on record now: see Walk
	walks     sync.Mutex    // held to change era, and until the puts of the era before are jobs
}

// New makes an engine at time 0.
func New(cfg Config) *Engine { return newEngine(cfg, maphash.MakeSeed()) }

// newEngine places tubes by seed.
func newEngine(cfg Config, seed maphash.Seed) *Engine {
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
	e := &Engine{shared: shared{cfg: cfg, seed: seed}}
	e.recordIn(cfg.Journal)
	e.ClockSet(cfg.Start)
	for i := range n {
		sh := &shard{
			shared:       &e.shared,
			number:       i,
			self:         1 << i,
			byName:       make(map[string]*tube),
			jobs:         arena.NewSlab[job](),
			counters:     arena.NewSlab[counters](),
			reservations: make([]*reservations, 1),
			due:          MaxTime,
			armed:        MaxTime,
		}
		sh.tidier.shard = sh
		sh.tidier.timer.Owner = &sh.tidier
		sh.tombstones.shard = sh
		sh.tombstones.timer.Owner = &sh.tombstones
		sh.firings.shard = sh
		sh.firings.timer.Owner = &sh.firings
		sh.expiries.shard = sh
		sh.expiries.timer.Owner = &sh.expiries
		sh.table = queue.TableOf(&sh.jobs.Pool)
		e.shards = append(e.shards, sh)
	}
	e.defaultShard = e.shardFor([]byte(defaultTube))
	e.defaultTube = e.defaultShard.tube([]byte(defaultTube), false)
	e.emptyTube = &tube{name: defaultTube, shard: e.defaultShard}
	if cfg.Accounts != nil {
		cfg.Accounts.add(&e.shared)
	}
	return e
}

// ClockSet says that somebody has set the wall clock, so that Time 0 was at start
// by it. No deadline moves, and no job's age; what is recorded in the journal goes
// by the new time. Any goroutine may call it.
func (e *Engine) ClockSet(start time.Time) {
	if start.IsZero() {
		start = time.Unix(0, 0)
	}
	e.start.Store(start.UnixNano())
}

// Drain turns drain mode on or off: while it is on, puts are refused. Any
// goroutine may call it.
func (e *Engine) Drain(on bool) { e.draining.Store(on) }

// Draining tells whether drain mode is on. A client's command may have changed it, too.
// Any goroutine may call it.
func (e *Engine) Draining() bool { return e.draining.Load() }
