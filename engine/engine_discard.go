package engine

import (
	"math"

	"trellis/engine/internal/arena"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
)

// Discard ends the engine and gives the memory of its jobs back to the system before it
// returns; what it has on the collected heap is garbage then. The loops must have ended, no
// follower may be fed, and no [Body] may be left. A walk that is under way ends first.
// Afterwards the engine is empty to those who look at it from outside, and may not be
// used otherwise.
//
// A process may make as many engines, one after the other, as it likes: addresses that
// were given back are used again.
func (e *Engine) Discard() {
	e.discarded.Store(true)
	if e.cfg.Accounts != nil {
		e.cfg.Accounts.remove(&e.shared)
	}
	e.life.Lock()
	defer e.life.Unlock()
	for _, sh := range e.shards {
		sh.mu.Lock()
		sh.discard()
		sh.mu.Unlock()
	}
	e.ids.Discard()
	e.registry.clear()
	e.roll.clear()
	e.loopsMu.Lock()
	e.loops = nil
	e.loopsMu.Unlock()
	for !arena.GiveBack(math.MaxInt) {
	}
}

// discard frees all that belongs to the shard's tubes.
func (sh *shard) discard() {
	sh.jobs.Discard()
	sh.counters.Discard()
	sh.bodies.Discard()
	clear(sh.byName)
	sh.tubes, sh.freeTubes, sh.pins = nil, nil, nil
	sh.keyed, sh.holders = hashTable[keyed, byJobID]{}, hashTable[keyed, byUniqueKey]{}
	sh.spaces, sh.recounting = nil, nil
	sh.keyspaces, sh.tombstones.heap = hashTable[keyspace, byTubeName]{}, queue.Heap{}
	sh.reservations, sh.freeReservations = nil, nil
	sh.retired = ids.Retirement{}
	sh.totals = shardTotals{}
	sh.alarm, sh.wheel, sh.due = nil, queue.Wheel{}, MaxTime
}

// clear removes all tubes.
func (g *registry) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pages, g.count, g.bytes = nil, 0, 0
}
