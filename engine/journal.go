package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// Journal makes changes outlive the process. The engine calls it under the lock
// of the job's shard, so that a job's changes are on record in the order in
// which they happened. No method may wait for a disk or call the engine. An
// error means that nothing was recorded; the engine then changes nothing
// either. A binlog.Log is one.
type Journal interface {
	// Put records a new job.
	Put(r *journal.Record) (journal.Ticket, error)
	// Update records a job's changed state. It ignores what never changes.
	Update(r *journal.Record) (journal.Pos, error)
	// Delete records a job's end. It needs no room and fails only for good.
	Delete(id uint64, segment uint32, size int64) (journal.Pos, error)
	// Move records all of a job again, so that the older record in segment from
	// is no longer needed.
	Move(r *journal.Record, from uint32) (journal.Ticket, error)
	// Committed is the place up to which the record is safe.
	Committed() journal.Pos
	// Counters are for the command stats.
	Counters() journal.Counters
}

// A reply that depends on a place in the journal must not be sent before the
// journal is committed up to there.
func (o *Output) dependOn(pos journal.Pos) { o.Pos = max(o.Pos, pos) }

// refuse appends the reply to a command whose change could not be recorded and
// therefore was not made.
func (o *Output) refuse(err error) {
	if errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrClosed) {
		o.reply(codec.ReplyInternalError)
		return
	}
	o.reply(codec.ReplyOutOfMemory)
}

// journalShard is what a shard knows of its records. The shard's lock guards it.
type journalShard struct {
	record  journal.Record // to be filled for one call
	latest  mark           // the last record of the shard
	pending mark           // an earlier latest: once it is committed, settled is its time
	settled Time           // what was recorded before this is committed
	buries  uint64         // the order of burying
}

type mark struct {
	pos journal.Pos
	at  Time
}

func (sh *shard) recorded(pos journal.Pos) { sh.journal.latest = mark{pos, sh.now} }

// unsettled is the place in the journal that a job depends on which became ready
// at since: 0 when its record is committed for certain. A job is seldom handed
// out before that, and then waits for no more than the commit that is under way.
func (sh *shard) unsettled(since Time) journal.Pos {
	log, s := sh.engine.cfg.Journal, &sh.journal
	if log == nil || since < s.settled {
		return 0
	}
	if log.Committed() >= s.pending.pos {
		s.settled, s.pending = s.pending.at, s.latest
		if since < s.settled {
			return 0
		}
	}
	return s.latest.pos
}

// describe fills the shard's record with a job's present state. A reserved job
// is ready to the journal.
func (sh *shard) describe(j *job) *journal.Record {
	var n tally
	if j.tally != 0 {
		n = *sh.tallies.At(j.tally)
	}
	r := &sh.journal.record
	*r = journal.Record{
		ID: j.id, State: journal.Ready,
		Pri: j.pri, Delay: n.delay, TTR: j.ttr, Created: sh.engine.wall(j.created),
		Reserves: n.reserves, Timeouts: n.timeouts, Releases: n.releases, Buries: n.buries, Kicks: n.kicks,
		Tube: sh.tubes[j.tube].name, Body: sh.body(j),
	}
	switch j.state {
	case delayed:
		r.State, r.Due = journal.Delayed, sh.engine.wall(j.at)
	case buried:
		r.State, r.BuryOrder = journal.Buried, uint64(j.at)
	}
	return r
}

// describeReady is describe for a job that is about to leave the delayed or buried
// ones.
func (sh *shard) describeReady(j *job) *journal.Record {
	r := sh.describe(j)
	r.State, r.Due, r.BuryOrder = journal.Ready, 0, 0
	return r
}

// recordPut records a job that is complete but stands in no queue yet. due is 0
// unless it is to be delayed.
func (sh *shard) recordPut(j *job, due Time, out *Output) error {
	if !sh.journaled() {
		return nil
	}
	r := sh.describe(j)
	if due != 0 {
		r.State, r.Due = journal.Delayed, sh.engine.wall(due)
	}
	ticket, err := sh.engine.cfg.Journal.Put(r)
	if err != nil {
		return err
	}
	j.segment = ticket.Segment
	sh.recorded(ticket.Pos)
	out.dependOn(ticket.Pos)
	return nil
}

func (sh *shard) journaled() bool { return sh.engine.cfg.Journal != nil }

// recordUpdate records a state that describe and its caller made up.
func (sh *shard) recordUpdate(r *journal.Record, out *Output) error {
	pos, err := sh.engine.cfg.Journal.Update(r)
	if err != nil {
		return err
	}
	sh.recorded(pos)
	out.dependOn(pos)
	return nil
}

func (sh *shard) recordDelete(j *job, out *Output) error {
	if !sh.journaled() {
		return nil
	}
	pos, err := sh.engine.cfg.Journal.Delete(j.id, j.segment, journal.Size(sh.tubes[j.tube].name, int(j.size)))
	if err != nil {
		return err
	}
	sh.recorded(pos)
	out.dependOn(pos)
	return nil
}

// Migrate records all of a job again if its last full record stands in the given
// segment of the journal. Any goroutine may call it.
func (e *Engine) Migrate(id uint64, segment uint32) error {
	p := e.ids.get(id)
	if p == 0 {
		return nil
	}
	sh := e.shards[p.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, j := sh.find(id)
	if j == nil || j.segment != segment {
		return nil
	}
	ticket, err := e.cfg.Journal.Move(sh.describe(j), segment)
	if err != nil {
		return err
	}
	j.segment = ticket.Segment
	sh.recorded(ticket.Pos)
	return nil
}

// wall is the time of the wall clock at t, in nanoseconds since 1970, as the
// clock goes now.
func (e *Engine) wall(t Time) int64 { return e.start.Load() + int64(t) }

// sinceStart is the reverse of wall.
func (e *Engine) sinceStart(wall int64) Time { return Time(wall - e.start.Load()) }
