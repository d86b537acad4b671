package shard

import (
	"cmp"
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/sliceheap"
)

// closing is the reservations of a closed session. They are given back in the order
// in which they were made, over all shards, which a heap finds a few at a time.
type closing struct {
	of   *Client
	left reservationScan // of a session on record: what may have to be left to orphans; at its end in any other case
	from *reservations   // whose jobs are to be gathered; those before it are all in jobs
	next int             // the next job of those
	jobs []reservation   // a heap, the oldest first
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
	sliceheap.Up(v.jobs, older)
}

func (v *closing) removeOldest() {
	last := len(v.jobs) - 1
	v.jobs[0], v.jobs = v.jobs[last], v.jobs[:last]
	sliceheap.Down(v.jobs, older)
}

// giveBackSlice is how many reservations are looked at under one lock.
const giveBackSlice = 128

// Depart ends a closed client as far as the round's budget goes, and returns true when nobody can see it any more.
// What it has reserved becomes ready, or lingers unless the client has quit. If it is on record, that is its session's
// id, which is 0 otherwise.
func (c *Tx) Depart(now clock.Time, cl *Client, session uint64, quit bool) (done bool) {
	if cl.reserved != nil && !c.giveBack(now, cl, c.departure(quit)) {
		return false
	}
	return c.depart(now, cl, session)
}

// Part is Depart for a client on record, which leaves what it has reserved to an absent session of its id.
func (c *Tx) Part(now clock.Time, cl *Client, session uint64) (done bool) {
	if cl.reserved != nil {
		c.leaveAbsent(now, cl)
	}
	return c.depart(now, cl, session)
}

// Stop says that the server is about to end, and clients of the loop leave for no other reason. A Tx that has not begun
// may be told, too.
func (c *Tx) Stop() { c.stopping = true }

// departure is how a client leaves.
func (c *Tx) departure(quit bool) departure {
	switch {
	case quit:
		return hasQuit
	case c.stopping:
		return serverStops
	}
	return isCutOff
}

// depart ends a closed client that has given back what it had reserved, or left it to an absent session.
func (c *Tx) depart(now clock.Time, cl *Client, session uint64) (done bool) {
	if c.unwatch(now, cl) {
		return false
	}
	c.attend(now, cl.used, -1, 0)
	cl.used = nil
	delete(c.listEnds, cl)
	if session != 0 {
		c.shared.LoopNumbers.Leave(session, cl.reserved)
		cl.reserved = nil
	}
	return true
}

// giveBack makes what a closed client has reserved ready again, or orphans, as far as the round's budget goes.
func (c *Tx) giveBack(now clock.Time, cl *Client, how departure) (done bool) {
	v := c.closings[cl]
	if v == nil && cl.reserved.leavesOrphans(how) && c.shared.Lingers() {
		v = &closing{of: cl, left: reservationScan{reservations: cl.reserved.first}}
	}
	if v != nil && v.left.reservations != nil {
		if v.leave(c, now, how) {
			c.goOnClosing(v)
			return false
		}
		v = nil
	}
	if v == nil {
		v = c.beginClosing(now, cl)
	}
	if v != nil && v.turn(c, now, how) {
		c.goOnClosing(v)
		return false
	}
	delete(c.closings, cl)
	return true
}

// goOnClosing has a closed client give back more in another turn.
func (c *Tx) goOnClosing(v *closing) {
	if c.closings == nil {
		c.closings = make(map[*Client]*closing)
	}
	c.closings[v.of] = v
}

// leavesOrphans reports whether orphans are to be on record before the end of a session, which has left like that.
func (hs *ReservationSet) leavesOrphans(how departure) bool {
	h := hs.holder
	return h != nil && how != hasQuit && h.gone == 0 && !h.closed.Load()
}

// leave makes orphans of what a session on record has reserved in tubes that linger, as far as the round's budget goes.
// That is on record before the end of the session, by which the rest is ready for all who read it, whatever settings
// have become by then.
func (v *closing) leave(c *Tx, now clock.Time, how departure) (more bool) {
	account, untold := v.of.left()
	for v.left.reservations != nil {
		sh, n := v.left.reservations.shard, 0
		sh.lock(c, now)
		v.left.slice(func(r ref, j *job) {
			if j.ID != untold && j.storage&isUntold == 0 && sh.tubes[j.tube].lingers() {
				sh.recordReserved(j, j.at(), sh.counters.At(j.counters).reserves)
				sh.orphan(r, j, account, how)
				n++
			}
		})
		sh.unlock(c)
		if c.spend(n + scanCost); !c.left() && v.left.reservations != nil {
			return true
		}
	}
	return false
}

// unwatch ends the interest of a closed client in its tubes, as far as the round's budget goes. It returns false
// when it has none.
func (c *Tx) unwatch(now clock.Time, cl *Client) (more bool) {
	// Each turn takes the first tube and moves the last one into the gap, which
	// shows in the order of list-tubes.
	for len(cl.watched) > 0 {
		last := len(cl.watched) - 1
		t := cl.watched[0].tube
		cl.watched[0] = cl.watched[last]
		cl.watched[last] = subscription{}
		cl.watched = cl.watched[:last]
		c.attend(now, t, 0, -1)
		if c.spend(lockCost); !c.left() && len(cl.watched) > 0 {
			return true
		}
	}
	cl.watched = nil
	return false
}

// beginClosing begins to give back what a closed session has reserved: it becomes ready in the order in which it
// was reserved. The result is nil if there is nothing to give back, and no trace of the session is left. The
// session's end is recorded if it is on record and has ever held a job. No claim can add to what it holds any
// more.
func (c *Tx) beginClosing(now clock.Time, cl *Client) *closing {
	hs := cl.reserved
	n := c.endReservations(hs, c.recordClose(hs), now)
	if n == 0 {
		c.forget(now, cl)
		return nil
	}
	// No lock is held, and the list need not be copied while it grows.
	return &closing{of: cl, from: hs.first, jobs: make([]reservation, 0, n)}
}

// turn gives back as much as the round's budget allows, of a client that has left like that. It returns false when
// all is given back.
func (v *closing) turn(c *Tx, now clock.Time, how departure) (more bool) {
	for {
		if !v.gather(c, now) || !v.returnAll(c, now, how) {
			return true
		}
		if c.CountReserved(now, v.of, 1) == 0 {
			c.forget(now, v.of)
			return false
		}
		// Others have deleted some jobs meanwhile. That moves the rest,
		// where they may have been missed.
		v.from, v.next = v.of.reserved.first, 0
	}
}

// leaveAbsent leaves what a closed client on record has reserved to an absent session of its id. If it has reserved
// nothing, no trace of it is left.
func (c *Tx) leaveAbsent(now clock.Time, cl *Client) {
	if c.CountReserved(now, cl, 1) == 0 {
		c.forget(now, cl)
		return
	}
	account, _ := cl.left()
	cl.reserved.holder.leaves(account, now)
}

// forget frees the lists of a client's reservations, which are empty.
func (c *Tx) forget(now clock.Time, cl *Client) {
	cl.reserved.free(c, now)
	cl.reserved = nil
}

// CountReserved returns how many jobs a client has reserved. It looks no further when it has found so many.
func (c *Tx) CountReserved(now clock.Time, cl *Client, most int) int {
	return cl.reserved.count(c, now, most)
}

// count is how many jobs these are. It looks no further when it has found so many.
func (hs *ReservationSet) count(c *Tx, now clock.Time, most int) (n int) {
	for h := hs.list(); h != nil && n < most; h = h.next {
		h.shard.lock(c, now)
		n += h.jobs.Len()
		h.shard.unlock(c)
	}
	return n
}

// recordClose records the end of a session on record, once, if it has ever held a job. It returns the
// position behind, 0 if there is nothing to record.
func (c *Tx) recordClose(hs *ReservationSet) journal.Pos {
	h := hs.holder
	if h == nil || !h.held || h.closed.Load() {
		return 0
	}
	h.closed.Store(true) // before the record: see walk.holdOf
	if h.gone != 0 {
		return h.gone
	}
	pos, _ := c.shared.log.Holds.Close(h.Session) // it fails only if another server has taken over
	return pos
}

// endReservations is how many jobs the session has reserved. From now on their times
// to run do not end; others may still delete them. The session's end is on record up to pos.
func (c *Tx) endReservations(hs *ReservationSet, pos journal.Pos, now clock.Time) (n int) {
	for h := hs.first; h != nil; h = h.next {
		h.shard.lock(c, now)
		h.shard.wheel.Cancel(&h.timer)
		if pos != 0 {
			h.shard.recorded(pos)
		}
		n += h.jobs.Len()
		h.shard.unlock(c)
		c.spend(lockCost)
	}
	return n
}

// gather learns what the session has reserved. What others delete at the same time may
// make it miss some jobs; none is added.
func (v *closing) gather(c *Tx, now clock.Time) (done bool) {
	for v.from != nil {
		h := v.from
		h.shard.lock(c, now)
		end := min(v.next+giveBackSlice, h.jobs.Len())
		for i := v.next; i < end; i++ {
			e := h.jobs.At(i)
			order := h.shard.counters.At(h.shard.job(e.Ref).counters).order
			v.add(reservation{e.ID, v.of.reserved.made - order, uint32(h.shard.number)})
		}
		cost := end - v.next + lockCost
		if v.next = end; end == h.jobs.Len() {
			v.from, v.next = h.next, 0
		}
		h.shard.unlock(c)
		if c.spend(cost); !c.left() {
			return v.from == nil
		}
	}
	return true
}

// returnAll makes the jobs ready, or orphans, or what else their tubes' settings make of jobs whose client has gone.
func (v *closing) returnAll(c *Tx, now clock.Time, how departure) (done bool) {
	account, untold := v.of.left()
	onRecord := v.of.reserved.holder != nil
	var dead shardSet // of a dead tube, whose lock could not be had without a wait
	for len(v.jobs) > 0 {
		number := v.jobs[0].shard
		sh := c.shared.shards[number]
		locked := sh.self | dead
		c.lockAll(locked, now)
		dead = 0
		n, moves := 0, sh.moves
		for ; n < giveBackSlice && sh.moves >= 0 && len(v.jobs) > 0 && v.jobs[0].shard == number; n++ {
			if r, j := sh.find(v.jobs[0].id); j != nil && sh.reservedBy(v.of.reserved, j) {
				to := (*shard)(nil)
				if onRecord || j.ID == untold && how == isCutOff { // see leave
					to = sh.giveBack(r, j, how.cause())
				} else {
					to = sh.forsake(r, j, account, how)
				}
				if to != nil {
					dead = to.self
					break
				}
			}
			v.removeOldest()
		}
		cost := 2*n + moves - sh.moves + lockCost
		c.unlockAll(locked)
		if c.spend(cost); !c.left() {
			return len(v.jobs) == 0
		}
	}
	return true
}

// heldJob is a job that a session has reserved.
type heldJob struct {
	id  uint64
	end uint64 // of its time to run
	age uint32 // reservations that the session made since
}

// HeldBy appends the ids of up to n of the jobs that a client has reserved to list, those whose
// time to run ends first, in the order in which they were reserved. It also returns how many
// there are, and whether the client waits for a job, in the same moment.
func (c *Tx) HeldBy(
	now clock.Time, cl *Client, list []uint64, n int,
) (_ []uint64, count int, waits bool, pos journal.Pos) {
	c.spend(len(cl.watched) / watchesPerCost)
	var room [100]heldJob
	jobs := room[:0]
	var set shardSet
	if !cl.isFree() {
		// Whoever claims it may add to what it holds, with the lock of a watched shard.
		set = cl.watchedShards
		c.lockAll(set, now)
	}
	free := set
	set |= cl.reserved.set()
	c.unlockAll(free)
	c.lockAll(set, now)
	waits = cl.claimed.Load() == claimWaiting
	for h := cl.reserved.list(); h != nil; h = h.next {
		sh := h.shard
		if h.jobs.Len() == 0 {
			continue
		}
		pos = max(pos, sh.dependsOn(sh.now))
		count += h.jobs.Len()
		for e := range h.jobs.Least(n) {
			jobs = append(jobs, heldJob{e.ID, e.Key, cl.reserved.made - sh.counters.At(sh.job(e.Ref).counters).order})
		}
	}
	c.unlockAll(set)
	if len(jobs) > n {
		slices.SortFunc(jobs, func(a, b heldJob) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.id, b.id)) })
		jobs = jobs[:n]
	}
	slices.SortFunc(jobs, func(a, b heldJob) int { return cmp.Compare(b.age, a.age) })
	for i := range jobs {
		list = append(list, jobs[i].id)
	}
	return list, count, waits, pos
}
