package shard

import (
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/record"
	"trellis/engine/internal/reply"
)

// journalShard is what a shard knows of its records. The shard's lock guards all of
// it but lastEnd.
type journalShard struct {
	record    journal.Record // to be filled for one call
	latest    mark           // the last record of the shard
	pending   mark           // an earlier latest: once its pos is committed, so is all that was recorded before its at
	committed clock.Time     // what was recorded before this is committed

	// lastEnd is the position behind the shard's last record of a job's end or
	// change: a reply that something is not there may depend on it. Written under
	// the shard's lock, read by anybody.
	lastEnd atomic.Uint64
}

type mark struct {
	pos journal.Pos
	at  clock.Time
}

func (sh *shard) journaled() bool { return sh.shared.log.Journal != nil }

// recorded notes that the shard has something on record up to pos.
func (sh *shard) recorded(pos journal.Pos) {
	sh.journal.latest = mark{max(sh.journal.latest.pos, pos), sh.now}
}

// dependsOn is the position in the journal on which a reply depends that shows a job which
// became ready at since, or 0 when its record is committed for certain. A job is seldom handed out
// before that, and then waits for no more than the commit that is under way.
func (sh *shard) dependsOn(since clock.Time) journal.Pos {
	log, s := sh.shared.log.Journal, &sh.journal
	if log == nil || since < s.committed {
		return 0
	}
	if log.Committed() >= s.pending.pos {
		s.committed, s.pending = s.pending.at, s.latest
		if since < s.committed {
			return 0
		}
	}
	return s.latest.pos
}

// dependsOnEnds is the position on which a reply depends that says that something is not
// in the shard: whatever made it so is recorded before. Any goroutine may call it.
func (sh *shard) dependsOnEnds() journal.Pos { return journal.Pos(sh.journal.lastEnd.Load()) }

// record records a change of a job that has not been made yet: the first one puts the
// job on record.
func (sh *shard) record(j *job, ch *change, out *reply.Output) error {
	if !sh.journaled() {
		return nil
	}
	return sh.recordChange(j, ch, out)
}

// recordChange is record where there is a journal.
func (sh *shard) recordChange(j *job, ch *change, out *reply.Output) error {
	log, r := sh.shared.log.Journal, sh.describe(j, ch)
	if by := out.Source(); by != nil {
		r.Origin = by.Origin()
	}
	if j.state == unqueued {
		if err := sh.beforeFull(r, j); err != nil {
			return err
		}
		ticket, err := log.Put(r)
		if err != nil {
			return err
		}
		sh.recordedPut(j, ticket, out)
		return nil
	}
	if ch.to == reserved && sh.shared.log.Holds != nil && sh.shared.log.Holds.RecordsHolds() {
		r.State = journal.Stays
	}
	pos, err := log.Update(r)
	if err != nil {
		return err
	}
	sh.recordedEnd(pos, out)
	return nil
}

// recordedPut notes that a job's first record was written.
func (sh *shard) recordedPut(j *job, t journal.Ticket, out *reply.Output) {
	j.segment = t.Segment
	sh.placed(j, t.Place(), t.Pos)
	sh.recorded(t.Pos)
	out.Recorded(t.Pos)
}

// recordedEnd notes a record by which a job, or its state, has come to an end.
func (sh *shard) recordedEnd(pos journal.Pos, out *reply.Output) {
	sh.recorded(pos)
	sh.journal.lastEnd.Store(uint64(pos))
	out.Recorded(pos)
}

// former is the last full record of a job or tombstone.
func (sh *shard) former(j *job) journal.Former {
	if j.flags == 0 {
		return journal.Former{Segment: j.segment, Size: journal.Size(sh.tubes[j.tube].name, int(j.size)+int(j.optional))}
	}
	k := sh.keyedOf(j)
	keys := k.keys()
	if j.state == tombstone {
		return journal.Former{Segment: j.segment, Size: journal.SizeOf(k.space.name, 0, &keys)}
	}
	name := sh.tubes[j.tube].name
	return journal.Former{
		Segment: j.segment, Size: journal.SizeOf(name, int(j.size)+int(j.optional), &keys),
		Tombstone: journal.TombstoneSize(name, &keys),
	}
}

func (sh *shard) recordDelete(j *job, out *reply.Output) error {
	if !sh.journaled() {
		return nil
	}
	var pos journal.Pos
	var err error
	if by := out.Source().Origin(); by == (journal.Origin{}) {
		pos, err = sh.shared.log.Journal.Delete(j.ID, sh.former(j))
	} else {
		pos, err = sh.shared.log.Holds.DeleteFor(j.ID, sh.former(j), by)
	}
	if err != nil {
		return err
	}
	sh.recordedEnd(pos, out)
	return nil
}

// Migrate records all of a job again if its last full record stands in the segment of
// that place, where a record of it has that body. Of a place without an offset only the segment is known: the job is
// recorded if its body is in memory. It returns what [record.Journal.Move] does. Any goroutine may call it, with no
// lock held that a loop may need.
func (e *Shards) Migrate(id uint64, place journal.Place, body []byte) error {
	tx := Tx{shared: e}
	sh, _, j := e.lockRecord(&tx, id, clock.Always, true)
	if sh == nil {
		return nil
	}
	err := sh.migrate(j, place, body)
	sh.unlock(&tx)
	return err
}

// JobsIn returns the jobs and tombstones whose last full records stand in a segment of the journal, by their ids. It
// looks at all that there are, and holds the lock of one shard for a moment at a time. Any goroutine may call it, with
// no lock held.
func (e *Shards) JobsIn(segment uint32) (list []uint64) {
	tx := Tx{shared: e}
	for id := range e.ids.From(1) {
		if sh, _, j := e.lockRecord(&tx, id, clock.Always, true); sh != nil {
			if j.segment == segment {
				list = append(list, id)
			}
			sh.unlock(&tx)
		}
	}
	return list
}

// migrate is Migrate for a job or tombstone of the shard.
func (sh *shard) migrate(j *job, place journal.Place, body []byte) error {
	if j.segment != place.Segment {
		return nil
	}
	ch := sh.present(j)
	r := sh.describe(j, &ch)
	if j.cold() {
		if place != j.place() {
			return nil // it comes to that record as well, or cannot read it
		}
		r.Body = body
	}
	if err := sh.beforeFull(r, j); err != nil {
		return err
	}
	ticket, err := sh.shared.log.Journal.Move(r, sh.former(j))
	if err != nil {
		return err
	}
	j.onRecord(r, ticket.Segment)
	sh.placed(j, ticket.Place(), ticket.Pos)
	sh.recorded(ticket.Pos)
	if j.state == reserved && sh.tubes[j.tube].outlasts() {
		sh.recordReserved(j, j.endOnRecord(), ch.counters.reserves)
	}
	return nil
}

// wall is the time of the wall clock at t, in nanoseconds since 1970, as the
// clock goes now.
func (e *Shards) wall(t clock.Time) int64 { return e.start.Load() + int64(t) }

// sinceStart is the reverse of wall.
func (e *Shards) sinceStart(wall int64) clock.Time { return clock.Time(wall - e.start.Load()) }

// recordTaken records that a delayed or buried job is about to be reserved: after a
// restart it is ready, as every reserved job is. Where there is no disk space to record
// that, it will be where it was, unless others follow the journal: they must not know
// another state, and the command is refused.
func (sh *shard) recordTaken(j *job, out *reply.Output) error {
	if j.state == ready {
		return nil
	}
	ch := sh.present(j)
	ch.to = ready
	ch.counters.reserves++
	if err := sh.provide(j, &ch); err != nil {
		return err // and the reservation would have failed for the same reason
	}
	return sh.record(j, &ch, out)
}

// Log is the journal, in the sight of loops and commands.
func (e *Shards) Log() record.Log { return e.log }
