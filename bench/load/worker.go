package load

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"trellis/bench"
	"trellis/bench/internal/host"
)

// counters are what a worker shows the other goroutines while it runs.
type counters struct {
	commands  atomic.Int64
	units     atomic.Int64
	puts      atomic.Int64 // sent
	deletions atomic.Int64 // jobs deleted
	active    atomic.Int64 // units under way
	finished  atomic.Bool  // begins no more units
	_         [64]byte
}

// times are the moments of a run on its clock, in nanoseconds. What begins or is due in [record, stop) is
// recorded, also when it ends later.
type times struct {
	record int64
	stop   int64 // far away when a count ends the run
}

// A worker drives a share of the connections on a thread of its own. Its fields belong to that thread; those of shared,
// to all workers.
type worker struct {
	*shared
	id     int
	public *counters // its element of shared.counters
	rng    *rand.Rand

	poll    poller
	closed  bool // poll was closed
	conns   []conn
	slots   []slot // of all connections, w.mask+1 for each
	mask    uint32
	in      []byte // what a read brings
	plain   []byte // what was decrypted of it
	rep     reply  // the reply that is being handled
	tag     uint32 // of the job in that reply
	took    int64  // that job's time from put to RESERVED, negative when not known
	out     []byte // what is to be written on the connection that is being served
	putLine []byte // the whole put line, when all bodies have one size
	seq     uint64 // the number of the next job; workers count in steps of their number

	ready     int   // connections that are set up
	active    int64 // units under way
	puts      int64 // sent since the start
	deletions int64 // deleted since the start
	lastReply int64 // when the latest reply came
	stopping  bool  // no more units begin
	share     int64 // the units that this worker is to begin while recording; negative: no limit
	budget    int64 // how many of them are left

	free     []uint32 // ring of connections that could begin a unit, [freeHead, freeTail)
	freeHead uint32
	freeTail uint32
	nextDue  float64 // open loop: when the next unit is due
	interval float64 // open loop: nanoseconds between units; 0: closed loop

	refused []uint32 // connections that a unix socket had no room for, to be opened again

	window    times
	recording bool // durations are recorded
	counting  bool // what ends is counted, until the end of the window; recording goes on until all units have ended
	rec       recorder
	commands  int64             // answered while counting
	ended     [numMetrics]int64 // how many of each ended while counting
	unbegun   int64             // units that were due in the window and were given up
	startedAt int64             // when counting began
	endedAt   int64             // when it ended
	busy      int64             // CPU time of this thread meanwhile
	spun      int64             // how much of that went into waiting for the next unit
	nextLog   int64             // when the next interval of the log ends
}

var errAborted = errors.New("interrupted")

func newWorker(s *shared, id int) *worker {
	return &worker{
		shared: s, id: id, public: &s.counters[id], rng: rand.New(rand.NewPCG(s.seed, uint64(id))), seq: uint64(id),
		in: make([]byte, 256<<10), out: make([]byte, 0, 64<<10), rec: recorder{base: s.base},
	}
}

// prepare makes room for the connections, whose roles the caller has set.
func (w *worker) prepare() error {
	ring := 2 * w.cfg.Depth // a unit may have two commands in flight
	if w.cfg.Held > 0 {
		ring = max(ring, 64)
	}
	ring = powerOfTwo(ring)
	w.mask = uint32(ring - 1)
	w.slots = make([]slot, ring*len(w.conns))
	w.free = make([]uint32, powerOfTwo(w.cfg.Depth*len(w.conns)))
	if size := w.bodies.fixed; size >= 0 {
		w.putLine = fmt.Appendf(nil, "put 0 0 %d %d\r\n", longestTime, size)
	}
	for i := range w.conns {
		w.conns[i].index = uint32(i)
		w.conns[i].fd = -1
	}
	return w.poll.open()
}

func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// onThread runs f on a thread of its own, bound to the processors of the configuration.
func (w *worker) onThread(f func() error) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its settings with it
	tuneThread()
	if err := host.PinThread(w.cfg.CPUs); err != nil {
		return err
	}
	return f()
}

func (w *worker) violate(kind bench.Violation, format string, args ...any) {
	w.violations.add(kind, format, args...)
}
