package engine

import "trellis/engine/internal/arena"

// Discard ends the engine and gives the memory of its jobs back to the system before it
// returns; what it has on the collected heap is garbage then. The loops must have ended, no
// follower may be fed, and no [Body] may be left. A walk that is under way ends first.
// Afterwards the engine is empty to those who look at it from outside, and may not be
// used otherwise.
//
// A process may make as many engines, one after the other, as it likes: addresses that
// were given back are used again.
func (e *Engine) Discard() {
	e.Shards.Discard()
	e.roll.clear()
	e.loopsMu.Lock()
	e.loops = nil
	e.loopsMu.Unlock()
}

// KeepMemory has the engines of this process take their memory from the collected heap, and keep what they free for
// each other: a simulation makes no system calls. It is called before there is any engine.
func KeepMemory() { arena.Keep() }
