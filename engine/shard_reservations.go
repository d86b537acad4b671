package engine

import "trellis/engine/internal/queue"

// holdings are what one session has reserved, by shard. They belong to the session's loop;
// but whoever claims the session may add to them, with the lock of a shard that the
// session watches.
type holdings struct {
	first  *holding // a list, the newest first
	shards shardSet
	made   uint32  // reservations that the session has ever made: the order in which they are given back
	oldest holding // the list's last; most sessions have no other
}

// list is the first of a session's holdings, nil if it never had one.
func (hs *holdings) list() *holding {
	if hs == nil {
		return nil
	}
	return hs.first
}

// set is the shards in which the session has, or had, reservations.
func (hs *holdings) set() shardSet {
	if hs == nil {
		return 0
	}
	return hs.shards
}

// holding is what one session has reserved in one shard. The shard's lock
// guards it. It lives until the session closes.
type holding struct {
	of    *holdings
	shard *shard
	next  *holding    // of the session's; does not change
	index uint32      // in shard.holdings
	jobs  queue.Heap  // by deadline
	timer queue.Timer // fires no later than the first deadline
}

// holdingOf returns a session's holding in sh, and makes it if there is none. The caller
// owns the session: it runs on its loop, or has claimed it.
func (sh *shard) holdingOf(of *holdings) *holding {
	for h := of.first; h != nil; h = h.next {
		if h.shard == sh {
			return h
		}
	}
	h := &of.oldest
	if of.first != nil {
		h = new(holding)
	}
	h.of, h.shard, h.next = of, sh, of.first
	h.timer.Owner = h
	if n := len(sh.freeHoldings); n > 0 {
		h.index = sh.freeHoldings[n-1]
		sh.freeHoldings = sh.freeHoldings[:n-1]
		sh.holdings[h.index] = h
	} else {
		h.index = uint32(len(sh.holdings))
		sh.holdings = append(sh.holdings, h)
	}
	of.first = h
	of.shards |= sh.self
	return h
}

// drop ends a holding that is empty.
func (h *holding) drop() {
	sh := h.shard
	sh.wheel.Cancel(&h.timer)
	sh.holdings[h.index] = nil
	sh.freeHoldings = append(sh.freeHoldings, h.index)
}

// add puts a reserved job to its place by deadline.
func (h *holding) add(r ref, j *job) {
	h.jobs.Push(h.shard.table, j.at().key(), r, &j.Links)
	h.shard.arm(&h.timer, h.deadline())
}

// deadline is the first at which a time to run ends, MaxTime if there is none.
func (h *holding) deadline() Time {
	if h.jobs.Len() == 0 {
		return MaxTime
	}
	return timeOf(h.jobs.First().Key)
}

// marginBegins is when the session begins to be told that the first of its times to run
// is about to end, MaxTime if there is none.
func (h *holding) marginBegins() Time {
	if at := h.deadline(); at != MaxTime {
		return at - safetyMargin
	}
	return MaxTime
}

// heldBy tells whether j is one of these reservations. hs may be nil.
func (sh *shard) heldBy(hs *holdings, j *job) bool {
	return j.state == reserved && sh.holdings[j.Next].of == hs
}

// Expire ends the reservations whose time to run has ended.
func (h *holding) Expire(now int64) (done bool) {
	sh := h.shard
	for h.deadline() <= Time(now) {
		if !sh.mayMove() {
			return false
		}
		r := h.jobs.First().Ref
		if !sh.timeOut(r, sh.job(r)) {
			return false
		}
	}
	sh.arm(&h.timer, h.deadline())
	return true
}

// safetyMargin is the last part of a job's time to run, during which the client that has
// reserved it is not made to wait for another job.
const safetyMargin = second
