package engine

import (
	"sync/atomic"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/ids"
)

// credit is memory that a loop may give to jobs. Its bytes are counted in
// usage.memory already, so that loops do not contend for that counter with every put
// and every delete. On two cores that buys 2 to 4 % (BenchmarkParallelCycle with a limit).
//
// No put is accepted that would make jobs and credits exceed Limits.Memory. What other
// commands, and keys, take is counted without asking, and may exceed it: a job that moves
// makes keys in its new tube, and a limited key is made when its job is. Before a put is
// refused, the credits of all loops are called in. It may be refused all the same while
// other loops take portions in that very moment: then up to creditPortion bytes a loop are free.
//
// Only its loop's goroutine adds to a credit. Any goroutine may call it in.
type credit struct {
	_     [64]byte
	bytes atomic.Int64 // never negative
	_     [64]byte
}

// creditPortion is how many bytes a loop takes from the limit at a time. It keeps no more
// than twice as many.
const creditPortion = 64 << 10

// jobFootprint is the memory that a job with a body of size bytes is counted for. keys may
// be nil.
func jobFootprint(size uint32, keys *journal.Keys) int64 {
	n := jobMemory + arena.Footprint(size)
	if keys != nil {
		n += keysFootprint(keys)
	}
	return n
}

// spend takes n bytes out of a credit, if it has them.
func (c *credit) spend(n int64) bool {
	for {
		have := c.bytes.Load()
		if have < n {
			return false
		}
		if c.bytes.CompareAndSwap(have, have-n) {
			return true
		}
	}
}

// take counts n bytes if they fit below the limit.
func (u *usage) take(n, limit int64) bool {
	for {
		used := u.memory.Load()
		if used > limit-n {
			return false
		}
		if u.memory.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// dismiss counts a put of n bytes off, also in the account to which it was admitted, if there
// is one. c is the goroutine that calls it.
func (e *shared) dismiss(c *lockSet, account *tally, n int64) {
	e.refundBytes(c, n)
	account.dismiss(n)
}

// countBytes counts n bytes whether they fit below the limit or not.
func (e *shared) countBytes(c *lockSet, n int64) {
	if e.cfg.Limits.Memory == 0 || c.credit != nil && c.credit.spend(n) {
		return
	}
	e.usage.memory.Add(n)
}

// refundBytes counts n bytes of a job off.
func (e *shared) refundBytes(c *lockSet, n int64) {
	if e.cfg.Limits.Memory == 0 {
		return
	}
	if c.credit == nil {
		e.usage.memory.Add(-n)
		return
	}
	if have := c.credit.bytes.Add(n); have > 2*creditPortion && c.credit.bytes.CompareAndSwap(have, creditPortion) {
		e.usage.memory.Add(creditPortion - have)
	}
}

// usage is what is held of what Limits bound, and how often that was too much.
type usage struct {
	_      [64]byte
	memory atomic.Int64 // bytes of jobs and of the loops' credits; counted only while they are limited
	_      [64]byte

	keys atomic.Int64 // unique and limited keys, each by tube

	refusedMemory, refusedTubes, refusedWatching, refusedKeys atomic.Uint64
}

// jobMemory is what a job takes beside its body: its record, its counters, and
// its entry in the index.
const jobMemory = int64(unsafe.Sizeof(job{}) + unsafe.Sizeof(counters{}) + unsafe.Sizeof(ids.Place(0)))
