// Package quota bounds the bytes that jobs take, without a counter for which loops contend.
//
// A loop has a [Quota]: bytes that it may give to jobs, and that are counted already. What jobs take comes out of the
// quota of the loop that makes them, and goes back to that of the loop that ends them. Only a loop that has not enough,
// or too many, changes what all share. On two cores that buys 2 to 4 % of the time of a put and its delete.
//
// Take never lets jobs and quotas together exceed the limit; Count asks nobody, and may. Before Take refuses anything,
// it calls the quotas of all loops in. It may refuse all the same while other loops take portions in that very moment:
// then up to 64 KiB a loop are free.
package quota

import (
	"sync"
	"sync/atomic"
)

// portion is how many bytes a loop takes from the limit at a time. It keeps no more than twice as many.
const portion = 64 << 10

// A Pool is the bytes that all loops share. The zero Pool has no limit, and counts nothing. Any goroutine may call
// any of its methods, each with a quota of its own.
type Pool struct {
	limit   int64 // 0 for none; does not change once there are quotas
	refused atomic.Uint64

	mu     sync.Mutex // taken last
	quotas []*Quota   // of all loops; guarded by mu

	_    [64]byte
	used atomic.Int64 // bytes of jobs and quotas
	_    [64]byte
}

// A Quota is bytes that one loop may give to jobs. Only its loop's goroutine adds to it. Any may call it in.
type Quota struct {
	_     [64]byte
	bytes atomic.Int64 // never negative
	_     [64]byte
}

// Limit bounds the bytes, before anybody takes some. 0 is no limit.
func (p *Pool) Limit(bytes int64) { p.limit = bytes }

// Limited reports whether there is a limit. Without one there is no need to call Take, Fits, Count or Refund.
func (p *Pool) Limited() bool { return p.limit != 0 }

// Refused is how often Take or Fits has returned false.
func (p *Pool) Refused() uint64 { return p.refused.Load() }

// Open adds the quota of a loop, which is empty.
func (p *Pool) Open(q *Quota) {
	p.mu.Lock()
	p.quotas = append(p.quotas, q)
	p.mu.Unlock()
}

// Used is how many bytes jobs take. Without a limit it is 0.
func (p *Pool) Used() int64 {
	n := p.used.Load()
	for _, q := range p.all() {
		n -= q.bytes.Load()
	}
	return n
}

// Take counts n bytes if they fit below the limit.
func (p *Pool) Take(q *Quota, n int64) bool {
	switch {
	case p.limit == 0 || q.spend(n):
	case p.take(n + portion):
		q.bytes.Add(portion)
	case p.take(n):
	default:
		if p.callIn(); !p.take(n) {
			p.refused.Add(1)
			return false
		}
	}
	return true
}

// Fits reports whether there is room for n bytes, and takes none.
func (p *Pool) Fits(q *Quota, n int64) bool {
	if p.limit == 0 || p.used.Load()-q.bytes.Load() <= p.limit-n {
		return true
	}
	if p.callIn(); p.used.Load() <= p.limit-n {
		return true
	}
	p.refused.Add(1)
	return false
}

// Count counts n bytes whether they fit below the limit or not. q is nil for a goroutine that is no loop's.
func (p *Pool) Count(q *Quota, n int64) {
	if p.limit != 0 && (q == nil || !q.spend(n)) {
		p.used.Add(n)
	}
}

// Refund counts n bytes off. q is nil for a goroutine that is no loop's.
func (p *Pool) Refund(q *Quota, n int64) {
	switch {
	case p.limit == 0:
	case q == nil:
		p.used.Add(-n)
	default:
		if have := q.bytes.Add(n); have > 2*portion && q.bytes.CompareAndSwap(have, portion) {
			p.used.Add(portion - have)
		}
	}
}

// spend takes n bytes out of a quota, if it has them.
func (q *Quota) spend(n int64) bool {
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
func (p *Pool) take(n int64) bool {
	for {
		used := p.used.Load()
		if used > p.limit-n {
			return false
		}
		if p.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// callIn takes the quotas of all loops back.
func (p *Pool) callIn() {
	for _, q := range p.all() {
		p.used.Add(-q.bytes.Swap(0))
	}
}

// Close forgets the quotas of all loops, which have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.quotas = nil
	p.mu.Unlock()
}

func (p *Pool) all() []*Quota {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quotas[:len(p.quotas):len(p.quotas)]
}
