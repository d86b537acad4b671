package replica

import (
	"math"
	"sync/atomic"
	"time"
)

// Clock is what a node knows of time. Any goroutine may call it.
type Clock interface {
	// Mono runs evenly and is never set: nanoseconds since some moment.
	Mono() int64
	// Wall is nanoseconds since 1970, as far as this machine knows.
	Wall() int64
}

type systemClock struct{ start time.Time }

func (c systemClock) Mono() int64 { return int64(time.Since(c.start)) }
func (c systemClock) Wall() int64 { return time.Now().UnixNano() }

// clusterClock is what a node knows of cluster time: what a leader's clock shows, which
// goes on from leader to leader and never back.
//
// Each entry that is applied carries the leader's time when it was sealed. Cluster time
// is later than that by at least the time since then, and goes on from the last entry. The
// greatest of these sums would be no better: where the next leader's clock is faster, or the
// last leader was down before, it is later than the last leader's clock, and times to run that
// have begun by that would end early. The clocks of machines are used to measure time that
// passes, and nothing else: two that differ by an hour do no harm.
type clusterClock struct {
	clock     Clock
	stamp     int64         // the last that an entry has shown; the applier's
	base      atomic.Int64  // cluster time at Mono 0, as that entry has shown it
	term      atomic.Uint64 // the latest that an entry was of
	firstTerm atomic.Uint64 // the term of the first leader that has sent something since the start; 0 if none has
}

func newClusterClock(c Clock) *clusterClock {
	k := &clusterClock{clock: c, stamp: math.MinInt64}
	k.base.Store(math.MinInt64)
	return k
}

// hear takes the term of a leader, this node included.
func (k *clusterClock) hear(term uint64) { k.firstTerm.CompareAndSwap(0, term) }

// informed reports whether an entry was applied of the first leader that was heard since the
// start, or of a later one. A leader may end before any entry of its own arrives, and then
// nobody has told how long the outage before it was.
func (k *clusterClock) informed() bool {
	first := k.firstTerm.Load()
	return first != 0 && k.term.Load() >= first
}

// observe takes an entry's stamp, and its term. The applier calls it.
func (k *clusterClock) observe(stamp int64, term uint64) {
	k.term.Store(max(k.term.Load(), term))
	if stamp > k.stamp { // it is earlier in a batch of an earlier term
		k.stamp = stamp
		k.base.Store(stamp - k.clock.Mono())
	}
}

// lead returns cluster time at Mono 0 for a node that becomes leader. One that no leader has
// informed since its start, because all were down or it is alone, has nothing but the wall
// clock to tell how long that was. last is the last stamp.
func (k *clusterClock) lead(last int64) (base int64) {
	base = max(k.base.Load(), last-k.clock.Mono())
	if !k.informed() {
		base = max(base, k.clock.Wall()-k.clock.Mono())
	}
	return base
}
