package shard

import (
	"hash/maphash"
	"math"
	"time"

	"trellis/engine/account"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/record"
)

// Init makes e, which is zero, n shards, a power of two, at Time 0, which was at start by the wall clock. Tubes are
// placed by seed. What changes goes into a journal, nil for none. Commands that found no room are tried again by room,
// which any goroutine may call. When Evict is to be called, crowded is, if it is not nil, with no lock held.
func Init(
	e *Shards, n int, seed maphash.Seed,
	limits Limits, stock bool, accounts *account.Accounts, log record.Journal, room, crowded func(), start time.Time,
) {
	e.room, e.crowded = room, crowded
	e.cfg, e.seed = settled{Limits: limits, Stock: stock}, seed
	e.memory.Limit(limits.Memory)
	e.loads.Open(limits.Bodies/4, (*sender)(e))
	for i := range n {
		e.shards = append(e.shards, newShard(e, i))
	}
	sh := e.shardFor([]byte(DefaultTube))
	e.defaultTube, e.emptyTube = sh.tube([]byte(DefaultTube), false), &tube{name: DefaultTube, shard: sh}
	e.accounts.Open(accounts, e.recount)
	e.recordIn(log)
	e.ClockSet(start)
}

func newShard(e *Shards, number int) *shard {
	sh := &shard{
		shared:       e,
		number:       number,
		self:         1 << number,
		byName:       make(map[string]*tube),
		jobs:         arena.NewSlab[job](),
		counters:     arena.NewSlab[counters](),
		reservations: make([]*reservations, 1),
		due:          clock.MaxTime,
		armed:        clock.MaxTime,
	}
	if e.cfg.Limits.Bodies > 0 {
		sh.residents = new(residents)
		sh.residents.Open()
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
	return sh
}

// ClockSet says that somebody has set the wall clock, so that Time 0 was at start
// by it. No deadline moves, and no job's age; what is recorded in the journal goes
// by the new time. Any goroutine may call it.
func (e *Shards) ClockSet(start time.Time) {
	if start.IsZero() {
		start = time.Unix(0, 0)
	}
	e.start.Store(start.UnixNano())
}

// recordIn makes changes go into a journal, nil for none.
func (e *Shards) recordIn(j record.Journal) {
	if e.log = record.LogOf(j); e.files != nil {
		e.log.Bodies = (*spilled)(e)
	}
}

// Discard ends the shards and gives the memory of their jobs back to the system before it
// returns; what they have on the collected heap is garbage then. The loops must have ended, no
// follower may be fed, and no [Body] may be left. A walk that is under way ends first.
// Afterwards they are empty to those who look at them from outside, and may not be
// used otherwise.
//
// A process may make as many sets of shards, one after the other, as it likes: addresses that
// were given back are used again.
func (e *Shards) Discard() {
	e.discarded.Store(true)
	e.accounts.Close()
	e.life.Lock()
	defer e.life.Unlock()
	for _, sh := range e.shards {
		sh.mu.Lock()
		sh.discard()
		sh.mu.Unlock()
	}
	e.ids.Discard()
	e.roster.Clear()
	e.memory.Close()
	e.pursesMu.Lock()
	e.purses = nil
	e.pursesMu.Unlock()
	for !arena.GiveBack(math.MaxInt) {
	}
}

// discard frees all that belongs to the shard's tubes.
func (sh *shard) discard() {
	sh.jobs.Discard()
	sh.counters.Discard()
	sh.bodies.Discard()
	if sh.residents != nil {
		sh.residents.Discard()
	}
	clear(sh.byName)
	sh.tubes, sh.freeTubes, sh.pins = nil, nil, nil
	sh.keyed, sh.holders = hashtable.Table[keyed, byJobID]{}, hashtable.Table[keyed, byUniqueKey]{}
	sh.spaces, sh.recounting = nil, nil
	sh.keyspaces, sh.tombstones.heap = hashtable.Table[keyspace, byTubeName]{}, queue.Heap{}
	sh.reservations, sh.freeReservations = nil, nil
	sh.retired = ids.Retirement{}
	sh.totals = shardTotals{}
	sh.alarm, sh.wheel, sh.due = nil, queue.Wheel{}, clock.MaxTime
}
