package engine

import (
	"sync"
	"sync/atomic"

	"trellis/binlog/journal"
)

// Holds is a further set of methods of a [Journal] that other servers share. They make the
// reservations of sessions on record outlive the server. No method waits, and none is refused
// while this server was not replaced.
type Holds interface {
	// RecordsHolds tells whether all who read the journal can read what follows. It never
	// becomes false again.
	RecordsHolds() bool
	// RecordsAll tells the same of all records that this program knows. It never becomes false
	// again, either.
	RecordsAll() bool
	// Hold records a reservation, or that its time to run ends at another time.
	Hold(h *journal.Hold) (journal.Pos, error)
	// EndHold records a job's changed state, as Update does: the time to run of a hold has ended.
	EndHold(r *journal.Record) (journal.Pos, error)
	// Close records the end of a session: all that it holds is ready.
	Close(session uint64) (journal.Pos, error)
	// Numbers records numbers of loops that were given, or are gone.
	Numbers(n *journal.Numbers) (journal.Pos, error)
	// DeleteFor is Delete, by a command.
	DeleteFor(id uint64, former journal.Former, by journal.Origin) (journal.Pos, error)
}

// recordsAll tells whether all who read the journal can read whatever this program writes. Where it
// does not, only records of reservations are asked for, after RecordsHolds.
func (e *shared) recordsAll() bool { return e.holds == nil || e.holds.RecordsAll() }

// A holder is a session on record, in the sight of a shard. The session's loop owns it, or
// whoever has claimed the session.
type holder struct {
	id     uint64
	offset uint64 // where the command ends that is executed
	told   bool   // a record has told of that command
	held   bool   // a hold of the session was recorded

	// closed: the session's end is recorded, or about to be. Whoever has a shard's lock may read it.
	closed atomic.Bool
}

// origin is the command that a record tells of which is made now: the first record of a command
// does. Nil stands for a session off the record.
func (h *holder) origin() (o journal.Origin) {
	if h != nil && !h.told {
		o = journal.Origin{Session: h.id, Offset: h.offset}
	}
	return o
}

// recordHold records that a session has a job, as ch says. A touch tells of its command if no
// record has; any other hold does always, because a reserve-batch has many.
func (sh *shard) recordHold(s *holder, j *job, ch *change, touch bool) (journal.Pos, error) {
	h := journal.Hold{ID: j.ID, Session: s.id, End: sh.shared.wall(ch.at), Offset: s.offset, Reserves: ch.counters.reserves}
	if touch {
		if h.Touch = !s.told; !h.Touch {
			h.Offset = 0
		}
	}
	pos, err := sh.shared.holds.Hold(&h)
	if err != nil {
		return 0, err
	}
	s.told, s.held = true, true
	sh.recorded(pos)
	return pos, nil
}

// touch starts the time to run of a reserved job anew, at a time that ends then. That is on
// record if its session is.
func (sh *shard) touch(h *reservations, r ref, j *job, end Time, out *Output) error {
	if s := h.of.holder; s != nil {
		ch := sh.present(j)
		ch.at = end
		pos, err := sh.recordHold(s, j, &ch, true)
		if err != nil {
			return err
		}
		out.recorded(pos)
	}
	h.jobs.Remove(sh.table, &j.Links)
	j.At = int64(end)
	h.add(r, j)
	return nil
}

// onRecord tells whether a reserved job is held on record.
func (sh *shard) onRecord(j *job) bool { return sh.reservations[j.Next].of.holder != nil }

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

// numbers are those of the loops of all members. With mu held no other lock of the engine is taken.
type numbers struct {
	mu   sync.Mutex
	next uint32            // none from here on was ever given; 0 stands for 1
	list []journal.Numbers // that were given and are not gone
}

// take takes a record of numbers.
func (g *numbers) take(n *journal.Numbers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = max(g.next, n.First+n.Count)
	kept := g.list[:0:0]
	for _, x := range g.list {
		other := x.Member == n.Member && x.Nonce != n.Nonce
		if n.Nonce == 0 || !other && x.First != n.First { // the record may come twice
			kept = append(kept, x)
		}
	}
	g.list = kept
	if n.Nonce != 0 {
		g.list = append(g.list, *n)
	} else {
		g.remove(n)
	}
}

// remove takes a range out of the list. With mu held.
func (g *numbers) remove(n *journal.Numbers) {
	kept := g.list[:0:0]
	for _, x := range g.list {
		end, gone := x.First+x.Count, n.First+n.Count
		if before := min(end, n.First); before > x.First {
			y := x
			y.Count = before - x.First
			kept = append(kept, y)
		}
		if after := max(x.First, gone); after < end {
			y := x
			y.First, y.Count = after, end-after
			kept = append(kept, y)
		}
	}
	g.list = kept
}

// gone tells whether a number was given and is gone.
func (g *numbers) gone(number uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if number == 0 || number >= g.next {
		return false
	}
	for i := range g.list {
		if g.list[i].Has(number) {
			return false
		}
	}
	return true
}
