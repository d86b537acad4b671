package shard

import (
	"maps"
	"math"
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// Hold takes a reservation that is on record: the session has the job, whoever had it, and
// wherever it stood. A job that is not known is passed over. Where sessions do not outlive the
// server, the job is ready. That of no session is an orphan.
func (f *Follower) Hold(h *journal.Hold) error {
	if f.now == clock.Always && len(f.absent) >= f.sweepAt {
		f.sweep()
	}
	sh, ref, j := f.lockJob(h.ID)
	if sh != nil {
		defer sh.unlock(&f.tx)
	}
	if sh == nil || j.state == tombstone {
		f.contradiction(true)
		return nil
	}
	if h.Session == 0 {
		return f.outlasted(sh, ref, j, h)
	}
	ch := sh.present(j)
	ch.counters.reserves = max(h.Reserves, 1) // a reserved job has counters
	if f.now != clock.Always {
		ch.to, ch.at = ready, 0
	} else {
		s := f.session(h.Session)
		has := sh.reservedBy(s, j)
		adopts := j.state == reserved && sh.orphansWith(j) != nil
		f.contradiction(!has && !adopts && (j.state == reserved || h.Touch) ||
			f.shared.LoopNumbers.Gone(journal.NumberOf(h.Session)))
		ch.to, ch.at, ch.holder = reserved, f.shared.sinceStart(h.End), s
		if !has {
			ch.counters.order = s.made
			s.made++
		}
	}
	if err := sh.provide(j, &ch); err != nil {
		return err
	}
	sh.apply(ref, j, &ch)
	return nil
}

// contradiction counts a record that does not fit what was recorded before, unless records may come
// twice. It counts nevertheless: the last record is right. All members have the same records.
func (f *Follower) contradiction(is bool) {
	if is && f.strict {
		f.shared.contradictions.Add(1)
	}
}

// Contradictions is how many records of reservations did not fit those before them. There should
// be none. Any goroutine may call it.
func (e *Shards) Contradictions() uint64 { return e.contradictions.Load() }

// session returns what an absent session holds, and makes it if there is none.
func (f *Follower) session(id uint64) *ReservationSet {
	s := f.absent[id]
	if s == nil {
		x := &struct {
			set    ReservationSet
			holder holder
		}{holder: holder{Source: reply.Source{Session: id}, held: true}}
		x.set.holder = &x.holder
		s = &x.set
		f.absent[id] = s
	}
	return s
}

// minSweep is how many absent sessions are worth a sweep.
const minSweep = 1024

// sweep forgets absent sessions that hold nothing: their ends may never be on record, if the
// leader that had them is gone.
func (f *Follower) sweep() {
	if f.absent == nil {
		f.absent = make(map[uint64]*ReservationSet)
	}
	for id, s := range f.absent {
		if s.count(&f.tx, f.stamp, math.MaxInt) == 0 {
			s.free(&f.tx, f.stamp)
			delete(f.absent, id)
		}
	}
	f.sweepAt = 2*len(f.absent) + minSweep
}

// free frees the lists of a session that holds nothing.
func (s *ReservationSet) free(c *Tx, now clock.Time) {
	for h := s.first; h != nil; h = h.next {
		h.shard.lock(c, now)
		h.free()
		h.shard.unlock(c)
	}
}

// Close takes the end of a session: what it holds is ready.
func (f *Follower) Close(session uint64) error {
	if s := f.absent[session]; s != nil {
		f.end(s, f.stamp, 0)
	}
	return nil
}

// end makes ready what an absent session holds. Its end is on record at pos.
func (f *Follower) end(s *ReservationSet, now clock.Time, pos journal.Pos) {
	for h := s.first; h != nil; h = h.next {
		sh := h.shard
		sh.lock(&f.tx, now)
		if pos != 0 {
			sh.recorded(pos)
		}
		for h.jobs.Len() > 0 {
			r := h.jobs.First().Ref
			sh.makeReady(r, sh.job(r)) // nobody waits for it yet
		}
		h.free()
		sh.unlock(&f.tx)
	}
	delete(f.absent, s.holder.Session)
}

// absentIDs are the ids of absent sessions, in order: what ends at the same time does so in the same order everywhere.
func (f *Follower) absentIDs() []uint64 { return slices.Sorted(maps.Keys(f.absent)) }

// endHolds ends all holds when the engine is about to serve.
func (f *Follower) endHolds(now clock.Time) {
	for _, id := range f.absentIDs() {
		s := f.absent[id]
		var pos journal.Pos
		if f.shared.log.Holds != nil && s.count(&f.tx, now, math.MaxInt) > 0 {
			pos, _ = f.shared.log.Holds.Close(id) // it fails only if another server has taken over, which nobody is told then
		}
		f.end(s, now, pos)
	}
}

// Numbers takes numbers of loops. What their sessions hold is ready when they are gone.
func (f *Follower) Numbers(n *journal.Numbers) error {
	f.shared.LoopNumbers.Take(n)
	for _, id := range f.absentIDs() {
		if f.shared.LoopNumbers.Gone(journal.NumberOf(id)) {
			f.end(f.absent[id], f.stamp, 0)
		}
	}
	return nil
}
