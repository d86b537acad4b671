package shard

import (
	"sync/atomic"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/quota"
)

// No put is accepted that would make jobs exceed Limits.Memory. What other commands, and keys, take is
// counted without asking, and may exceed it: a job that moves makes keys in its new tube, and a limited key is made
// when its job is.

// usage is what is held of what Limits bound besides memory, and how often that was too much.
type usage struct {
	keys atomic.Int64 // unique and limited keys, each by tube

	refusedTubes, refusedWatching, refusedKeys atomic.Uint64
}

// jobMemory is what a job takes beside its body: its record, its counters, and
// its entry in the index.
const jobMemory = int64(unsafe.Sizeof(job{}) + unsafe.Sizeof(counters{}) + unsafe.Sizeof(ids.Place(0)))

// jobFootprint is the memory that a job with a body of size bytes is counted for. keys may
// be nil.
func jobFootprint(size uint32, keys *journal.Keys) int64 {
	n := jobMemory + arena.Footprint(size)
	if keys != nil {
		n += keysFootprint(keys)
	}
	return n
}

// charge counts a job with a body of size bytes and these keys, which may be nil, unless it
// would be too much. A limited key that no job has yet is counted when the job gets it. The
// bytes for it are taken now and left in the loop's quota, from which countBytes takes them.
func (c *Tx) charge(size uint32, keys *journal.Keys) bool {
	return !c.shared.memory.Limited() || c.chargeLimited(size, keys)
}

// chargeLimited is charge where there is a limit.
func (c *Tx) chargeLimited(size uint32, keys *journal.Keys) bool {
	n, more := jobFootprint(size, keys), int64(0)
	if keys != nil && keys.Limited != "" {
		more = limitedKeyFootprint(keys.Limited) + groupMemory
	}
	if !c.shared.memory.Take(&c.quota, n+more) {
		return false
	}
	if more > 0 {
		c.refundBytes(more)
	}
	return true
}

// dismiss counts a put of n bytes off, also in the account to which it was admitted, if there
// is one.
func (c *Tx) dismiss(account *account.Tally, n int64) {
	c.refundBytes(n)
	account.Dismiss(n)
}

// countBytes counts n bytes whether they fit below the limit or not.
func (c *Tx) countBytes(n int64) {
	if m := &c.shared.memory; m.Limited() {
		m.Count(c.ownQuota(), n)
	}
}

// refundBytes counts n bytes of a job off.
func (c *Tx) refundBytes(n int64) {
	if m := &c.shared.memory; m.Limited() {
		m.Refund(c.ownQuota(), n)
	}
}

// ownQuota is that of the loop, nil for who only looks.
func (c *Tx) ownQuota() *quota.Quota {
	if c.purse == nil {
		return nil
	}
	return &c.quota
}
