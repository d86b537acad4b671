package engine

import (
	"slices"
	"time"
)

// holding is what one session has reserved in one shard. The shard's lock
// guards it. It lives until the session closes.
type holding struct {
	session *Session
	shard   *shard
	index   uint32 // in shard.holdings
	jobs    heap   // by deadline
	timer   timer  // fires no later than the first deadline
}

// holdingOf returns the session's holding in sh, and makes it if there is none.
// The caller owns the session: it runs on its loop, or has claimed it.
func (sh *shard) holdingOf(s *Session) *holding {
	for _, h := range s.holdings {
		if h.shard == sh {
			return h
		}
	}
	h := &holding{session: s, shard: sh}
	h.timer.owner = h
	if n := len(sh.freeHoldings); n > 0 {
		h.index = sh.freeHoldings[n-1]
		sh.freeHoldings = sh.freeHoldings[:n-1]
		sh.holdings[h.index] = h
	} else {
		h.index = uint32(len(sh.holdings))
		sh.holdings = append(sh.holdings, h)
	}
	s.holdings = append(s.holdings, h)
	s.holds |= 1 << sh.number
	return h
}

// drop ends a holding that is empty.
func (h *holding) drop() {
	sh := h.shard
	sh.wheel.cancel(&h.timer)
	sh.holdings[h.index] = nil
	sh.freeHoldings = append(sh.freeHoldings, h.index)
}

// reserve gives a job that stands in no queue, and for which tallyOf has found
// memory, to a session. The caller owns the session.
func (sh *shard) reserve(s *Session, r ref, j *job, now Time) {
	n := sh.tallies.At(j.tally)
	h := sh.holdingOf(s)
	if j.state == ready {
		sh.counts.waits.Observe(time.Duration(now-j.at), 1)
	}
	n.reserves++
	n.turn = s.turn
	s.turn++
	j.state, j.at = reserved, now+seconds(j.ttr)
	j.next = h.index
	h.jobs.push(sh, heapEntry{key: uint64(j.at), id: j.id, ref: r})
	sh.tubes[j.tube].reserved++
	sh.counts.in[reserved]++
	sh.arm(&h.timer, Time(h.jobs[0].key))
}

// heldBy tells whether the session has reserved j.
func (sh *shard) heldBy(s *Session, j *job) bool {
	return j.state == reserved && sh.holdings[j.next].session == s
}

// touch starts the time to run of a reserved job anew.
func (sh *shard) touch(r ref, j *job, now Time) {
	h := sh.holdings[j.next]
	h.jobs.remove(sh, int(j.prev))
	j.at = now + seconds(j.ttr)
	h.jobs.push(sh, heapEntry{key: uint64(j.at), id: j.id, ref: r})
	sh.arm(&h.timer, Time(h.jobs[0].key))
}

// expire makes the jobs ready again whose time to run has ended.
func (h *holding) expire(now Time) bool {
	sh := h.shard
	for len(h.jobs) > 0 && h.jobs[0].key <= uint64(now) {
		if !sh.mayMove() {
			return false
		}
		r := h.jobs[0].ref
		j := sh.job(r)
		sh.takeOut(j)
		sh.tallies.At(j.tally).timeouts++
		sh.counts.timeouts++
		sh.makeReady(r, j, now)
	}
	if len(h.jobs) > 0 {
		sh.arm(&h.timer, Time(h.jobs[0].key))
	}
	return true
}

// giveBack makes all that the session has reserved ready again, in the order in
// which it was reserved.
func (s *Session) giveBack(now Time) {
	c := &s.loop.caller
	type held struct {
		sh   *shard
		id   uint64
		turn uint32
	}
	var all []held
	for _, h := range s.holdings {
		sh := h.shard
		sh.lock(c, now)
		for _, e := range h.jobs {
			all = append(all, held{sh, e.id, sh.tallies.At(sh.job(e.ref).tally).turn - s.turn})
		}
		sh.unlock(c)
	}
	slices.SortFunc(all, func(a, b held) int { return int(int64(a.turn) - int64(b.turn)) })
	for _, h := range all {
		h.sh.lock(c, now)
		if r, j := h.sh.find(h.id); j != nil && h.sh.heldBy(s, j) {
			h.sh.takeOut(j)
			h.sh.makeReady(r, j, now)
		}
		h.sh.unlock(c)
	}
	for _, h := range s.holdings {
		h.shard.lock(c, now)
		h.drop()
		h.shard.unlock(c)
	}
	s.holdings, s.holds = nil, 0
}
