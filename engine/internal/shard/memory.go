package shard

import (
	"sync/atomic"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/ids"
)

// quota is memory that a loop may give to jobs. Its bytes are counted in
// usage.memory already, so that loops do not contend for that counter with every put
// and every delete. On two cores that buys 2 to 4 % (BenchmarkParallelCycle with a limit).
//
// No put is accepted that would make jobs and quotas exceed Limits.Memory. What other
// commands, and keys, take is counted without asking, and may exceed it: a job that moves
// makes keys in its new tube, and a limited key is made when its job is. Before a put is
// refused, the quotas of all loops are called in. It may be refused all the same while
// other loops take portions in that very moment: then up to quotaPortion bytes a loop are free.
//
// Only its loop's goroutine adds to a quota. Any goroutine may call it in.
type quota struct {
	_     [64]byte
	bytes atomic.Int64 // never negative
	_     [64]byte
}

// quotaPortion is how many bytes a loop takes from the limit at a time. It keeps no more
// than twice as many.
const quotaPortion = 64 << 10

// jobFootprint is the memory that a job with a body of size bytes is counted for. keys may
// be nil.
func jobFootprint(size uint32, keys *journal.Keys) int64 {
	n := jobMemory + arena.Footprint(size)
	if keys != nil {
		n += keysFootprint(keys)
	}
	return n
}

// spend takes n bytes out of a quota, if it has them.
func (q *quota) spend(n int64) bool {
	for {
		have := q.bytes.Load()
		if have < n {
			return false
		}
		if q.bytes.CompareAndSwap(have, have-n) {
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
func (e *Shards) dismiss(c *Tx, account *account.Tally, n int64) {
	e.refundBytes(c, n)
	account.Dismiss(n)
}

// countBytes counts n bytes whether they fit below the limit or not.
func (e *Shards) countBytes(c *Tx, n int64) {
	if e.cfg.Limits.Memory == 0 || c.purse != nil && c.quota.spend(n) {
		return
	}
	e.usage.memory.Add(n)
}

// refundBytes counts n bytes of a job off.
func (e *Shards) refundBytes(c *Tx, n int64) {
	if e.cfg.Limits.Memory == 0 {
		return
	}
	if c.purse == nil {
		e.usage.memory.Add(-n)
		return
	}
	if have := c.quota.bytes.Add(n); have > 2*quotaPortion && c.quota.bytes.CompareAndSwap(have, quotaPortion) {
		e.usage.memory.Add(quotaPortion - have)
	}
}

// usage is what is held of what Limits bound, and how often that was too much.
type usage struct {
	_      [64]byte
	memory atomic.Int64 // bytes of jobs and of the loops' quotas; counted only while they are limited
	_      [64]byte

	keys atomic.Int64 // unique and limited keys, each by tube

	refusedMemory, refusedTubes, refusedWatching, refusedKeys atomic.Uint64
}

// jobMemory is what a job takes beside its body: its record, its counters, and
// its entry in the index.
const jobMemory = int64(unsafe.Sizeof(job{}) + unsafe.Sizeof(counters{}) + unsafe.Sizeof(ids.Place(0)))
