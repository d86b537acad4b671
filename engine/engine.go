package engine

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"trellis/engine/internal/arena"
	"trellis/engine/internal/queue"
)

// Config is what an engine needs to know and to reach.
type Config struct {
	// MaxJobSize is the largest body in bytes that a put may announce. The
	// engine shows it in statistics; the decoder enforces it.
	MaxJobSize uint32
	// Shards is the number of shards, a power of two of at most 16. 0 means 16.
	// More shards let more loops work at once.
	Shards int
	// Limits bound what clients can make the engine hold.
	Limits Limits
	// Journal makes changes durable. Nil keeps them in memory only.
	Journal Journal
	// Stock keeps the engine from doing by itself what beanstalkd does not do: settings of
	// dead letters and limited keys stay on record, but have no effect.
	Stock bool
	// SegmentSize is the size in bytes of the journal's segments that stats
	// shows, also of a server without one. 0 means beanstalkd's default.
	SegmentSize int64
	// Start is the time of the wall clock at Time 0. [Engine.ClockSet] changes it.
	Start time.Time
	// Info is shown by the command stats.
	Info Info
}

// Info describes the server's process and its machine.
type Info struct {
	PID      int
	Version  string
	ID       string // 16 hexadecimal digits that differ from one start to the next
	Hostname string
	OS       string // the system's version, as uname gives it
	Platform string // the machine, as uname gives it
	// Usage returns the processor time that the process has used. Any goroutine
	// may call it.
	Usage func() (user, system time.Duration)
	// Uptime returns how long the server has run. Any goroutine may call it. Nil
	// stands for the time since Time 0.
	Uptime func() time.Duration
}

func (i *Info) uptime(now Time) Time {
	if i.Uptime == nil {
		return now
	}
	return Time(i.Uptime())
}

const defaultShards = maxShards

// Engine is a whole queue server without its connections. Make one with [New].
type Engine struct {
	cfg          Config
	start        atomic.Int64 // wall clock at Time 0, nanoseconds since 1970
	seed         maphash.Seed
	shards       []*shard
	defaultShard *shard // of the tube that always exists
	defaultTube  *tube
	emptyTube    *tube // takes the place of the default tube for those who may not have that; see grant.go
	ids          idIndex
	_            [64]byte
	lastID       atomic.Uint64 // shares no cache line with what every command reads
	_            [64]byte
	registry     registry
	settings     settings // of dead letters
	roll         roll
	draining     atomic.Bool
	usage        usage
	barrier      Barrier // the journal's, nil if it has none

	loopsMu sync.Mutex
	loops   []*Loop // guarded by loopsMu

	life      sync.RWMutex  // held to discard the engine, and shared by those who walk it
	discarded atomic.Bool   // the engine is, or is about to be
	era       atomic.Uint32 // its lowest bit marks the puts that go on record now: see Walk
	walks     sync.Mutex    // held to change era, and until the puts of the era before are jobs
}

// New makes an engine at time 0.
func New(cfg Config) *Engine {
	n := cfg.Shards
	if n == 0 {
		n = defaultShards
	}
	if n < 0 || n > maxShards || n&(n-1) != 0 {
		panic(fmt.Sprintf("engine: %d shards: want a power of two of at most %d", n, maxShards))
	}
	if cfg.SegmentSize == 0 {
		cfg.SegmentSize = 10 << 20
	}
	e := &Engine{cfg: cfg, seed: maphash.MakeSeed()}
	e.recordIn(cfg.Journal)
	e.ClockSet(cfg.Start)
	for i := range n {
		sh := &shard{
			engine:   e,
			number:   i,
			self:     1 << i,
			byName:   make(map[string]*tube),
			jobs:     arena.NewSlab[job](),
			counters: arena.NewSlab[counters](),
			holdings: make([]*holding, 1),
			due:      MaxTime,
			armed:    MaxTime,
		}
		sh.tidier.shard = sh
		sh.tidier.timer.Owner = &sh.tidier
		sh.tombstones.shard = sh
		sh.tombstones.timer.Owner = &sh.tombstones
		sh.table = queue.TableOf(&sh.jobs.Pool)
		e.shards = append(e.shards, sh)
	}
	e.defaultShard = e.shardFor([]byte(defaultTube))
	e.defaultTube = e.defaultShard.tube([]byte(defaultTube), 0)
	e.emptyTube = &tube{name: defaultTube, shard: e.defaultShard}
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
