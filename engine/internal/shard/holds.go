package shard

import (
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A holder is a session on record, in the sight of a shard. The session's loop owns it, or
// whoever has claimed the session.
type holder struct {
	reply.Source

	gone journal.Pos // what its number's end is on record up to; 0 if it is not
	// closed: the session's end is recorded, or about to be. Whoever has a shard's lock may read it.
	closed atomic.Bool
	held   bool // a hold of the session was recorded
	// patience is the time before which none of its times to run ends, as its client cannot be heard.
	// Whoever has a shard's lock may read it.
	patience atomic.Int64
	// absent is the account of an absent session, "" for none or if that is not known; nil if a loop has the session.
	// Whoever has a shard's lock may read it.
	absent atomic.Pointer[string]
}

// leaves notes that no loop has the session any more, whose client was one of that account.
func (h *holder) leaves(account string, now clock.Time) {
	h.patience.Store(int64(now + absence))
	h.absent.Store(&account)
}

// absence is for how long an absent session's times to run do not end: a touch may be on its way.
const absence = 2 * clock.Second

// GoOnRecord puts a client, the session of that id, on record: it has no reservations, or those that were the absent
// session's. No record tells of what it does before the end of a command is known.
func (cl *Client) GoOnRecord(session uint64, held *ReservationSet) {
	if cl.reserved = held; held == nil {
		cl.set().holder = &holder{Source: reply.Source{Session: session, Recorded: true}}
	} else {
		held.holder.absent.Store(nil)
	}
}

// Source is the client's session if that is on record, nil if it is not.
func (cl *Client) Source() *reply.Source {
	if cl.reserved == nil || cl.reserved.holder == nil {
		return nil
	}
	return &cl.reserved.holder.Source
}

// RecordAll puts a client, the session of that id, on record, with all that it has reserved. It reports false, and
// leaves it off the record, if the records take more bytes than room has, from which they are taken, if its
// number is gone, or if another server has taken over.
func (c *Tx) RecordAll(now clock.Time, cl *Client, session uint64, room *atomic.Int64) bool {
	hs := cl.set()
	// Whoever has the lock of one of its shards finds all of it on record there, or nothing.
	c.lockAll(hs.shards, now)
	ok := c.recordAll(hs, session, room)
	c.unlockAll(hs.shards)
	return ok
}

// recordAll is RecordAll with all locks held.
func (c *Tx) recordAll(hs *ReservationSet, session uint64, room *atomic.Int64) bool {
	size := int64(0)
	for h := hs.first; h != nil; h = h.next {
		size += int64(h.jobs.Len()) * journal.HoldSize
	}
	if room.Add(-size) < 0 {
		room.Add(size)
		return false
	}
	if _, err := c.shared.LoopNumbers.Enter(session, false); err != nil {
		return false
	}
	hs.holder = &holder{Source: reply.Source{Session: session, Recorded: true}} // no command has made these records
	for h := hs.first; h != nil; h = h.next {
		for r := range h.jobs.All() {
			j := h.shard.job(r)
			reserves := h.shard.counters.At(j.counters).reserves
			if _, err := h.shard.recordHold(hs.holder, j, j.endOnRecord(), reserves, true); err != nil {
				return false
			}
		}
	}
	return true
}

// recordHold records that a session has a job until end, which was reserved so often then. A touch tells of its
// command if no record has; any other hold does always, because a reserve-batch has many.
func (sh *shard) recordHold(s *holder, j *job, end clock.Time, reserves uint32, touch bool) (journal.Pos, error) {
	h := journal.Hold{ID: j.ID, Session: s.Session, End: sh.shared.wall(end), Offset: s.Offset, Reserves: reserves}
	if touch {
		if h.Touch = !s.Recorded && s.Offset > 0; !h.Touch {
			h.Offset = 0
		}
	}
	pos, err := sh.shared.log.Holds.Hold(&h)
	if err != nil {
		return 0, err
	}
	s.Recorded, s.held = true, true
	sh.recorded(pos)
	return pos, nil
}

// recordEnd puts on record that a job is one of a set's until end, if the set's reservations are on record, or those in
// the job's tube. more is how many reserves that counts as.
func (sh *shard) recordEnd(of *ReservationSet, j *job, end clock.Time, more uint32, out *reply.Output) error {
	switch {
	case of.holder != nil:
		pos, err := sh.recordHold(of.holder, j, end, sh.counters.At(j.counters).reserves+more, more == 0)
		if err != nil {
			return err
		}
		out.Recorded(pos)
	case sh.tubes[j.tube].outlasts():
		out.DependOn(sh.recordReserved(j, end, sh.counters.At(j.counters).reserves+more))
	}
	return nil
}

// touch starts the time to run of a reserved job anew, at a time that ends then. That is on
// record if its session is.
func (sh *shard) touch(r ref, j *job, end clock.Time, out *reply.Output) error {
	if err := sh.recordEnd(sh.reservations[j.Next].of, j, end, 0, out); err != nil {
		return err
	}
	sh.endAt(r, j, end)
	return nil
}

// onRecord reports whether a reserved job is held on record.
func (sh *shard) onRecord(j *job) bool {
	return sh.reservations[j.Next].of.holder != nil || sh.tubes[j.tube].outlasts()
}

// stay takes a record of a job that leaves it where it is.
func (sh *shard) stay(r ref, j *job, ch *change) error {
	was := sh.present(j)
	ch.to, ch.at, ch.counters.order = was.to, was.at, was.counters.order
	if err := sh.provide(j, ch); err != nil {
		return err
	}
	if j.state == ready {
		sh.apply(r, j, ch)
		return nil
	}
	j.pri = ch.pri // it has no part in the order of other jobs
	if j.counters != 0 {
		*sh.counters.At(j.counters) = ch.counters
	}
	return nil
}
