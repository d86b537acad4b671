package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/queue"
)

// A ReservationSet is what one session has reserved, by shard. It belongs to the session's loop;
// but whoever claims the session may add to it, with the lock of a shard that the
// session watches.
type ReservationSet struct {
	first  *reservations // a list, the newest first
	shards shardSet
	made   uint32       // reservations that the session has ever made: the order in which they are given back
	oldest reservations // the list's last; most sessions have no other
	holder *holder      // nil unless the session is on record; set before its first reservation
	nobody *orphans     // whose these are if they are no session's
}

// list is the first of a session's reservations, nil if it never had one.
func (hs *ReservationSet) list() *reservations {
	if hs == nil {
		return nil
	}
	return hs.first
}

// set is the shards in which the session has, or had, reservations.
func (hs *ReservationSet) set() shardSet {
	if hs == nil {
		return 0
	}
	return hs.shards
}

// reservations are what one session has reserved in one shard. The shard's lock
// guards them. The list lives until the session closes.
type reservations struct {
	of    *ReservationSet
	shard *shard
	next  *reservations // of the session's; does not change
	index uint32        // in shard.reservations
	jobs  queue.Heap    // by deadline
	timer queue.Timer   // fires no later than the first deadline
}

// reservationsOf returns a set's reservations in sh, and makes a list if there is none.
// Whoever calls it owns the session: it runs on its loop, or has claimed it.
func (sh *shard) reservationsOf(of *ReservationSet) *reservations {
	for h := of.first; h != nil; h = h.next {
		if h.shard == sh {
			return h
		}
	}
	h := &of.oldest
	if of.first != nil {
		h = new(reservations)
	}
	h.of, h.shard, h.next = of, sh, of.first
	h.timer.Owner = h
	if n := len(sh.freeReservations); n > 0 {
		h.index = sh.freeReservations[n-1]
		sh.freeReservations = sh.freeReservations[:n-1]
		sh.reservations[h.index] = h
	} else {
		h.index = uint32(len(sh.reservations))
		sh.reservations = append(sh.reservations, h)
	}
	of.first = h
	of.shards |= sh.self
	return h
}

// free frees a list that is empty.
func (h *reservations) free() {
	sh := h.shard
	sh.wheel.Cancel(&h.timer)
	sh.reservations[h.index] = nil
	sh.freeReservations = append(sh.freeReservations, h.index)
}

// add puts a reserved job into the order of deadlines.
func (h *reservations) add(r ref, j *job) {
	h.jobs.Push(h.shard.table, j.at().Key(), r, &j.Links)
	h.shard.arm(&h.timer, h.deadline())
}

// deadline is the first at which a time to run ends, MaxTime if there is none.
func (h *reservations) deadline() clock.Time {
	if h.jobs.Len() == 0 {
		return clock.MaxTime
	}
	return clock.TimeOf(h.jobs.First().Key)
}

// marginBegins is when the session begins to be told that the first of its times to run
// is about to end, MaxTime if there is none.
func (h *reservations) marginBegins() clock.Time {
	if at := h.deadline(); at != clock.MaxTime {
		return at - safetyMargin
	}
	return clock.MaxTime
}

// reservedBy reports whether j is one of these reservations. hs may be nil.
func (sh *shard) reservedBy(hs *ReservationSet, j *job) bool {
	return j.state == reserved && sh.reservations[j.Next].of == hs
}

// Expire ends the reservations whose time to run has ended.
func (h *reservations) Expire(now int64) (done bool) {
	sh := h.shard
	if s := h.of.holder; s != nil && clock.Time(now) < clock.Time(s.patience.Load()) {
		sh.arm(&h.timer, max(h.deadline(), clock.Time(s.patience.Load())))
		return true
	}
	for h.deadline() <= clock.Time(now) {
		if !sh.mayMove() {
			return false
		}
		r := h.jobs.First().Ref
		if sh.lapse(r, sh.job(r), byTimeOut) != nil {
			return false // it lapses a moment later
		}
	}
	sh.arm(&h.timer, h.deadline())
	return true
}

// safetyMargin is the last part of a job's time to run, during which the client that has
// reserved it is not made to wait for another job.
const safetyMargin = clock.Second
