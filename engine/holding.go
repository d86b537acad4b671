package engine

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

// hold puts a job that stands in no queue among those that a session has reserved.
// The caller owns the session.
func (sh *shard) hold(s *Session, r ref, j *job, until Time) {
	h := sh.holdingOf(s)
	j.state, j.at = reserved, until
	j.next = h.index
	sh.tubes[j.tube].reserved++
	sh.tally.in[reserved]++
	h.add(r, j)
}

// add puts a reserved job to its place by deadline.
func (h *holding) add(r ref, j *job) {
	h.jobs.push(h.shard, heapEntry{key: uint64(j.at), id: j.id, ref: r})
	h.shard.arm(&h.timer, Time(h.jobs[0].key))
}

// heldBy tells whether the session has reserved j.
func (sh *shard) heldBy(s *Session, j *job) bool {
	return j.state == reserved && sh.holdings[j.next].session == s
}

// expire makes the jobs ready again whose time to run has ended.
func (h *holding) expire(now Time) (done bool) {
	sh := h.shard
	for len(h.jobs) > 0 && h.jobs[0].key <= uint64(now) {
		if !sh.mayMove() {
			return false
		}
		r := h.jobs[0].ref
		j := sh.job(r)
		ch := sh.present(j)
		ch.to = ready
		ch.counters.timeouts++
		sh.tally.timeouts++
		sh.apply(r, j, &ch)
	}
	if len(h.jobs) > 0 {
		sh.arm(&h.timer, Time(h.jobs[0].key))
	}
	return true
}
