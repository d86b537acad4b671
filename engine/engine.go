package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"trellis/engine/internal/ids"
)

const defaultShards = ids.MaxShards

// Engine is a whole queue server without its connections. Make one with [New].
type Engine struct {
	shared
	defaultTube *tube // always exists
	emptyTube   *tube // takes the place of the default tube for those who may not have that; see session_grant.go
	roll        roll
	draining    atomic.Bool

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
	e := new(Engine)
	e.shared.init(cfg, n)
	e.defaultTube, e.emptyTube = e.defaultTubes()
	return e
}

// Drain turns drain mode on or off: while it is on, puts are refused. Any
// goroutine may call it.
func (e *Engine) Drain(on bool) { e.draining.Store(on) }

// Draining reports whether drain mode is on. A client's command may have changed it, too.
// Any goroutine may call it.
func (e *Engine) Draining() bool { return e.draining.Load() }
