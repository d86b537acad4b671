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

	refusedBodies, refusedTubes, refusedWatching, refusedKeys atomic.Uint64
}

// jobMemory is what a job takes beside its body: its record, its counters, and
// its entry in the index.
const jobMemory = int64(unsafe.Sizeof(job{}) + unsafe.Sizeof(counters{}) + unsafe.Sizeof(ids.Place(0)))

// jobFootprint is the memory that a job with a body of size bytes is counted for at its tube and its account, wherever
// that body is. keys may be nil.
func jobFootprint(size uint32, keys *journal.Keys) int64 {
	n := jobMemory + arena.Footprint(size)
	if keys != nil {
		n += keysFootprint(keys)
	}
	return n
}

// bounded is what of the footprint of a body counts for Limits.Memory: nothing where Limits.Bodies bounds bodies.
func (e *Shards) bounded(body int64) int64 {
	if e.cfg.Limits.Bodies > 0 {
		return 0
	}
	return body
}

// charge counts a job with a body of size bytes and these keys, which may be nil, unless it
// would be too much. A limited key that no job has yet is counted when the job gets it. The
// bytes for it are taken now and left in the loop's quota, from which countBytes takes them.
func (c *Tx) charge(size uint32, keys *journal.Keys) bool {
	return !c.shared.memory.Limited() || c.chargeLimited(size, keys)
}

// chargeLimited is charge where there is a limit.
func (c *Tx) chargeLimited(size uint32, keys *journal.Keys) bool {
	n, more := jobFootprint(0, keys)+c.shared.bounded(arena.Footprint(size)), int64(0)
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

// dismiss counts a put off of whose body so many bytes were counted, also in the account to which it was admitted, if
// there is one.
func (c *Tx) dismiss(account *account.Tally, keys *journal.Keys, body int64) {
	n := jobFootprint(0, keys)
	c.refundJob(n, body)
	account.Dismiss(n + body)
}

// countBytes counts n bytes whether they fit below the limit or not.
func (c *Tx) countBytes(n int64) {
	if m := &c.shared.memory; m.Limited() {
		m.Count(c.ownQuota(), n)
	}
}

// refundJob counts n bytes of a job off, and those of its body.
func (c *Tx) refundJob(n, body int64) {
	if c.shared.memory.Limited() {
		c.refundBytes(n + c.shared.bounded(body))
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
