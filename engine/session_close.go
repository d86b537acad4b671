package engine

import "trellis/binlog/journal"

// Stop tells the loop that the server is about to end, and closes sessions for no other reason. So
// what their clients hold has not failed.
func (l *Loop) Stop() { l.stopping = true }

// Close ends the session: what it has reserved becomes ready, and its tubes lose it.
// It reports whether that is done. When it is much, or a job is on its way, Next goes on
// with it, and returns the session a last time when it is done.
func (s *Session) Close(now Time) (done bool) {
	if s.flags&isOpen == 0 {
		return s.used == nil
	}
	s.flags &^= isOpen
	if s.wait != nil && s.wait.task != nil {
		s.tellUnfinished()
	}
	l := s.loop
	l.engine.roll.remove(s)
	l.counts.sessions.Add(-1)
	if s.flags&restricted != 0 && s.wait.grant.account != nil {
		s.wait.grant.account.connections.Add(-1)
	}
	if s.flags&isProducer != 0 {
		l.counts.producers.Add(-1)
	}
	if s.flags&isWorker != 0 {
		l.counts.workers.Add(-1)
	}
	if s.claimed.Load() != claimFree && !s.stopWaiting(now) {
		return false // a job is on its way: Next finishes what is left
	}
	return s.finishClose(now)
}

// finishClose undoes all that others can see of a closed session, as far as the round's
// budget goes; Next goes on with the rest.
func (s *Session) finishClose(now Time) (done bool) {
	if s.used == nil {
		return false // it had left already: it stood in the loop's queue twice
	}
	if !s.discardIncoming(now) {
		s.loop.starve(s)
		return false
	}
	if !s.giveBack(now) || !s.unwatchAll(now) {
		s.loop.turns.push(s)
		return false
	}
	c := &s.loop.locks
	sh := s.used.shard
	sh.lock(c, now)
	s.used.using--
	sh.removeIfUnused(s.used)
	sh.unlock(c)
	s.used, s.wait = nil, nil
	if s.flags&onRecord != 0 {
		s.loop.engine.numbers.leave(s.id, s.reserved)
		s.reserved = nil
	}
	delete(s.loop.listed, s)
	delete(s.loop.weights, s)
	return true
}

// unwatchAll ends the session's interest in its tubes, one after the other.
func (s *Session) unwatchAll(now Time) (done bool) {
	l := s.loop
	// Each turn takes the first tube and moves the last one into the gap, which
	// shows in the order of list-tubes.
	for len(s.watched) > 0 {
		last := len(s.watched) - 1
		t := s.watched[0].tube
		s.watched[0] = s.watched[last]
		s.watched[last] = subscription{}
		s.watched = s.watched[:last]
		t.shard.lock(&l.locks, now)
		t.watching--
		t.shard.removeIfUnused(t)
		t.shard.unlock(&l.locks)
		if !l.Spend(lockCost) && len(s.watched) > 0 {
			return false
		}
	}
	s.watched = nil
	return true
}

// closing is the reservations of a closed session. They are given back in the order
// in which they were made, over all shards, which a heap finds a few at a time.
type closing struct {
	from *reservations // whose jobs are to be gathered; those before it are all in jobs
	next int           // the next job of those
	jobs []reservation // a heap, the oldest first
}

// reservation has no pointers, so that the collector need not look at a million.
type reservation struct {
	id    uint64
	age   uint32 // reservations that the session made since
	shard uint32 // its number
}

func older(a, b *reservation) bool { return a.age > b.age }

func (v *closing) add(x reservation) {
	v.jobs = append(v.jobs, x)
	heapUp(v.jobs, older)
}

func (v *closing) removeOldest() {
	last := len(v.jobs) - 1
	v.jobs[0], v.jobs = v.jobs[last], v.jobs[:last]
	heapDown(v.jobs, older)
}

// giveBackSlice is how many reservations are looked at under one lock.
const giveBackSlice = 128

// giveBack makes what the session has reserved ready again, in the order in
// which it was reserved, as far as the round's budget goes.
func (s *Session) giveBack(now Time) (done bool) {
	switch {
	case s.reserved == nil:
		return true
	case s.flags&parts != 0 && s.Reserves(now):
		s.reserved.holder.patience.Store(int64(now + absence))
		return true
	case s.flags&parts != 0:
		s.freeReservations(now)
		return true
	}
	if s.wait == nil || s.wait.closing == nil {
		n := s.countReservations(s.recordClose(), now)
		if n == 0 {
			s.freeReservations(now)
			return true
		}
		// No lock is held, and the list need not be copied while it grows.
		s.waiter().closing = &closing{from: s.reserved.first, jobs: make([]reservation, 0, n)}
	}
	for {
		if !s.gather(now) || !s.returnAll(now) {
			return false
		}
		if !s.Reserves(now) {
			s.freeReservations(now)
			return true
		}
		// Others have deleted some jobs meanwhile. That moves the rest,
		// where they may have been missed.
		v := s.wait.closing
		v.from, v.next = s.reserved.first, 0
	}
}

// recordClose records the end of a session on record, once, if it has ever held a job. No claim can
// add to what it holds any more. It returns the position behind, 0 if there is nothing to record.
func (s *Session) recordClose() journal.Pos {
	h := s.reserved.holder
	if h == nil || !h.held || h.closed.Load() {
		return 0
	}
	h.closed.Store(true) // before the record: see walk.holdOf
	if h.gone != 0 {
		return h.gone
	}
	pos, _ := s.loop.engine.holds.Close(h.id) // it fails only if another server has taken over
	return pos
}

// countReservations is how many jobs the session has reserved. From now on their times
// to run do not end; others may still delete them. The session's end is on record up to pos.
func (s *Session) countReservations(pos journal.Pos, now Time) (n int) {
	c := &s.loop.locks
	for h := s.reserved.first; h != nil; h = h.next {
		h.shard.lock(c, now)
		h.shard.wheel.Cancel(&h.timer)
		if pos != 0 {
			h.shard.recorded(pos)
		}
		n += h.jobs.Len()
		h.shard.unlock(c)
		s.loop.budget -= lockCost
	}
	return n
}

// gather learns what the session has reserved. What others delete at the same time may
// make it miss some jobs; none is added.
func (s *Session) gather(now Time) (done bool) {
	l, v := s.loop, s.wait.closing
	for v.from != nil {
		h := v.from
		h.shard.lock(&l.locks, now)
		end := min(v.next+giveBackSlice, h.jobs.Len())
		for i := v.next; i < end; i++ {
			e := h.jobs.At(i)
			order := h.shard.counters.At(h.shard.job(e.Ref).counters).order
			v.add(reservation{e.ID, s.reserved.made - order, uint32(h.shard.number)})
		}
		cost := end - v.next + lockCost
		if v.next = end; end == h.jobs.Len() {
			v.from, v.next = h.next, 0
		}
		h.shard.unlock(&l.locks)
		if !l.Spend(cost) {
			return v.from == nil
		}
	}
	return true
}

// returnAll makes the jobs ready, or what their tubes' settings make of jobs whose client has gone.
func (s *Session) returnAll(now Time) (done bool) {
	l, v := s.loop, s.wait.closing
	var dead shardSet // of a dead tube, whose lock could not be had without a wait
	for len(v.jobs) > 0 {
		number := v.jobs[0].shard
		sh := l.engine.shards[number]
		locked := sh.self | dead
		s.lockAll(locked, now)
		dead = 0
		n, moves := 0, sh.moves
		for ; n < giveBackSlice && sh.moves >= 0 && len(v.jobs) > 0 && v.jobs[0].shard == number; n++ {
			if r, j := sh.find(v.jobs[0].id); j != nil && sh.reservedBy(s.reserved, j) {
				if to := sh.giveBack(r, j, l.stopping); to != nil {
					dead = to.self
					break
				}
			}
			v.removeOldest()
		}
		cost := 2*n + moves - sh.moves + lockCost
		s.unlockAll(locked)
		if !l.Spend(cost) {
			return len(v.jobs) == 0
		}
	}
	return true
}

// freeReservations frees the lists of reservations, which are empty.
func (s *Session) freeReservations(now Time) {
	c := &s.loop.locks
	for h := s.reserved.first; h != nil; h = h.next {
		h.shard.lock(c, now)
		h.free()
		h.shard.unlock(c)
	}
	s.reserved = nil
}
