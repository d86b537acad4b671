package shard

import "trellis/binlog/journal"

// charge counts a job with a body of size bytes and these keys, which may be nil, unless it
// would be too much. A limited key that no job has yet is counted when the job gets it. The
// bytes for it are taken now and left in the loop's quota, from which countBytes takes them.
func (c *Tx) charge(size uint32, keys *journal.Keys) bool {
	limit := c.shared.cfg.Limits.Memory
	return limit == 0 || c.chargeUpTo(limit, size, keys)
}

// chargeUpTo is charge where there is a limit.
func (c *Tx) chargeUpTo(limit int64, size uint32, keys *journal.Keys) bool {
	n := jobFootprint(size, keys)
	if keys != nil && keys.Limited != "" {
		more := limitedKeyFootprint(keys.Limited) + groupMemory
		if !c.take(n+more, limit) {
			return false
		}
		c.shared.refundBytes(c, more)
		return true
	}
	return c.take(n, limit)
}

// fits reports whether there is room for n bytes, and takes none.
func (c *Tx) fits(n int64) bool {
	limit, u := c.shared.cfg.Limits.Memory, &c.shared.usage
	if limit == 0 {
		return true
	}
	if u.memory.Load()-c.quota.bytes.Load() <= limit-n {
		return true
	}
	c.shared.callIn()
	if u.memory.Load() <= limit-n {
		return true
	}
	u.refusedMemory.Add(1)
	return false
}

// take counts n bytes if they fit below the limit.
func (c *Tx) take(n, limit int64) bool {
	e := c.shared
	if c.quota.spend(n) {
		return true
	}
	if e.usage.take(n+quotaPortion, limit) {
		c.quota.bytes.Add(quotaPortion)
		return true
	}
	if e.usage.take(n, limit) {
		return true
	}
	e.callIn()
	if e.usage.take(n, limit) {
		return true
	}
	e.usage.refusedMemory.Add(1)
	return false
}

// callIn takes the quotas of all loops back.
func (e *Shards) callIn() {
	for _, p := range e.allPurses() {
		e.usage.memory.Add(-p.quota.bytes.Swap(0))
	}
}
