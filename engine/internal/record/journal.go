// Package record is what the engine asks of a journal, and of one that other servers share.
package record

import "trellis/binlog/journal"

// Journal makes changes outlive the process. The engine calls it under the lock
// of the job's shard, so that a job's changes are on record in the order in
// which they happened; only a job that nobody can know of yet may be put without
// that lock. No method waits, for a disk or for anything else, or calls the
// engine. An error means that nothing was recorded; the engine then changes
// nothing either. After [journal.ErrRoom] somebody calls Engine.Room when trying
// again makes sense. A binlog.Log is one.
type Journal interface {
	// Put records a new job.
	Put(r *journal.Record) (journal.Ticket, error)
	// Update records a job's changed state. It ignores what never changes.
	Update(r *journal.Record) (journal.Pos, error)
	// Delete records the end of a job or a tombstone. A full disk is no reason for it to
	// fail.
	Delete(id uint64, former journal.Former) (journal.Pos, error)
	// Move records all of a job again, so that the former record is no longer needed.
	Move(r *journal.Record, former journal.Former) (journal.Ticket, error)
	// Replace records all of a job again because it goes to another tube, and needs
	// room as Put does; or it records that the job is deleted and leaves a tombstone, for
	// which it needs no more room than Delete.
	Replace(r *journal.Record, former journal.Former) (journal.Ticket, error)
	// Set records a tube's setting, which replaces the one of before, or its end. It is called under the lock
	// of the tube's shard.
	Set(s *journal.Setting) (journal.Pos, error)
	// Committed is the position up to which the record is safe.
	Committed() journal.Pos
	// Counters are for the command stats.
	Counters() journal.Counters
}

// Barrier is a further method of a [Journal] that other servers share, one of which may
// take over. There the commit of a record proves that the record is safe; but a reply
// that only shows state may come from a server that does not know yet that it was
// replaced, and the state may be another one by now.
type Barrier interface {
	// Barrier returns a position that is committed only if this server was not
	// replaced when Barrier was called, and only when all that was recorded before is
	// committed. Like the methods of Journal it does not wait.
	Barrier() journal.Pos
}

// Holds is a further set of methods of a [Journal] that other servers share. They make the
// reservations of sessions on record outlive the server. No method waits, and none is refused
// while this server was not replaced.
type Holds interface {
	// RecordsHolds reports whether all who read the journal can read what follows. It never
	// becomes false again.
	RecordsHolds() bool
	// RecordsAll tells the same of all other records that this program knows. It never becomes false
	// again, either.
	RecordsAll() bool
	// RecordsLinger tells the same of settings by which jobs linger, and of reservations of no session. It never
	// becomes false again, either.
	RecordsLinger() bool
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

// Reservations is a further method of a [Journal], by which what is reserved in a tube that lingers outlives the
// server.
type Reservations interface {
	// Hold records a reservation of no session on record, or that its time to run ends at another time.
	Hold(h *journal.Hold) (journal.Pos, error)
}

// Bodies is a further set of methods of a [Journal], from which bodies can be read back, so that not all of them need
// be in memory. Its tickets tell places. No method waits.
type Bodies interface {
	// Load asks for bodies. What becomes of each is told to Engine.Loaded. It is called without a lock.
	Load(list []journal.Fetch)
	// Durable is the position up to which no failing disk, and no loss of power, takes anything away that could be
	// read back: what the journal makes durable at all.
	Durable() journal.Pos
}

// Files have bodies that lie in no journal: those of a member of a cluster. No method waits, or calls the engine. What
// becomes of bodies is told to Spilled, Leaves, Moved and Loaded of the engine.
type Files interface {
	// Load asks for bodies, as that of Bodies does.
	Load(list []journal.Fetch)
	// Forget says that a job refers no more to the body of that size, in bytes, which it had at a place. It is called
	// under the lock of the job's shard. Only the segment of the place is told.
	Forget(at journal.Place, size uint32)
	// Crowded says that bodies take so much memory that Spill is to be called. It is called with no lock held.
	Crowded()
}

// A Log is a journal with the further methods that it has, each of them nil if it has not. Any goroutine may use it.
type Log struct {
	Journal      Journal
	Lead         Barrier
	Holds        Holds
	Reservations Reservations
	Bodies       Bodies
}

// LogOf is the journal j, nil for none, with the further methods that it has.
func LogOf(j Journal) (l Log) {
	l.Journal = j
	l.Lead, _ = j.(Barrier)
	l.Holds, _ = j.(Holds)
	l.Reservations, _ = j.(Reservations)
	l.Bodies, _ = j.(Bodies)
	return l
}

// RecordsAll reports whether all who read the journal can read whatever this program writes, but for what
// RecordsLinger tells of. Where it does not, only records of reservations are asked for, after RecordsHolds.
func (l Log) RecordsAll() bool { return l.Holds == nil || l.Holds.RecordsAll() }

// RecordsLinger reports whether all who read the journal can read a setting by which jobs linger.
func (l Log) RecordsLinger() bool { return l.Holds == nil || l.Holds.RecordsLinger() }

// RecordsHolds reports whether all who read the journal can read that reservations are on record.
func (l Log) RecordsHolds() bool { return l.Holds != nil && l.Holds.RecordsHolds() }

// Barrier returns a position in the journal that is committed only if this server was not replaced before. It is 0
// if there is no such journal.
func (l Log) Barrier() journal.Pos {
	if l.Lead == nil {
		return 0
	}
	return l.Lead.Barrier()
}

// Counters are those of the journal, zero without one.
func (l Log) Counters() (n journal.Counters) {
	if l.Journal != nil {
		n = l.Journal.Counters()
	}
	return n
}
