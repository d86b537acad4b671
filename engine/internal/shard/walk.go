package shard

import (
	"errors"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// errDiscarded is returned by Walk when the shards were discarded meanwhile.
var errDiscarded = errors.New("engine: the engine was discarded")

// Walk calls f for jobs and tombstones by their ids, from id from on, with what the
// journal would be told of each at that moment: a reserved job is ready, and has a hold behind
// it if the reservation is on record, and neither the end of its session nor that of its number
// is, nor that its tube lingers no more. Otherwise the hold is nil. Walk visits at
// most n jobs, and returns the id to go on from, 0 when it has come to the end. Begin
// with 1. The record of a cold job has no body, and says where that lies. An error of f's ends it, and is returned
// with the id of f's job. It fails if the shards were discarded meanwhile. The record, its body and the hold, but not
// strings, are valid during the call of f only. No shard is locked then, but Discard waits for the end of the walk: f
// must not wait for a disk.
//
// Walk may be called from any goroutine while loops run, or while a follower is fed. It
// holds one shard's lock at a time, for as long as it takes to copy a record and at
// most 32 KiB. What a walk of many calls has seen was there at one moment or another:
//
//   - What was on record before the call with from 1 is seen, unless a later record
//     changed it or deleted the job.
//   - So the jobs that were visited, and then the records that were made from before
//     the walk until after it, make an engine that equals this one.
func (e *Shards) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (next uint64, err error) {
	e.life.RLock()
	defer e.life.RUnlock()
	if from <= 1 && !e.catchUp() || e.discarded.Load() {
		return 0, errDiscarded
	}
	w := walk{shared: e, f: f, tx: Tx{shared: e}}
	for id, has := range e.ids.From(from) {
		if n <= 0 {
			return id, nil
		}
		visited := true // a look at ids without jobs takes time as well
		if has {
			if visited, err = w.visit(id); err != nil {
				return id, err
			}
		}
		if visited {
			n--
		}
	}
	return 0, nil
}

// A walk is what one call of Walk needs.
type walk struct {
	shared *Shards
	f      func(*journal.Record, *journal.Hold) error
	tx     Tx
	record journal.Record
	hold   journal.Hold
	fetch  journal.Fetch
	body   []byte
}

// visit shows a job, if there is one of that id.
func (w *walk) visit(id uint64) (visited bool, err error) {
	// Nothing becomes due by the clock of somebody who only looks.
	sh, _, j := w.shared.lockRecord(&w.tx, id, clock.Always, true)
	if sh == nil {
		return false, nil
	}
	if j.state == tombstone {
		w.record = sh.recordTombstone(j)
		sh.unlock(&w.tx)
		return true, w.f(&w.record, nil)
	}
	ch := sh.present(j)
	hold := w.holdOf(sh, j, &ch)
	w.record = w.shared.recordOf(j, &ch, sh.tubes[j.tube].name, nil)
	w.record.Keys = sh.keysOf(j)
	if j.cold() {
		w.fetch = j.fetch()
		w.fetch.Lane, w.record.Absent = journal.Walk, &w.fetch
		sh.unlock(&w.tx)
		return true, w.f(&w.record, hold)
	}
	if j.size < pinnedSize {
		w.body = append(w.body[:0], sh.body(j)...)
		w.record.Body = w.body
		sh.unlock(&w.tx)
		return true, w.f(&w.record, hold)
	}
	body := sh.pin(j, 0)
	w.record.Body = body.Bytes
	sh.unlock(&w.tx)
	defer body.Release()
	return true, w.f(&w.record, hold)
}

// holdOf is the hold of a job, whose present state is ch, nil if there is none. A session whose end
// is on record gives back what it has in turns, and nobody would end a hold that is told of behind
// that record.
func (w *walk) holdOf(sh *shard, j *job, ch *change) *journal.Hold {
	if j.state != reserved {
		return nil
	}
	session := uint64(0)
	switch of := sh.reservations[j.Next].of; {
	case of.nobody != nil && of.nobody.end, !of.nobody.linger() && of.holder == nil && !sh.tubes[j.tube].lingers():
		return nil
	case of.holder != nil:
		session = of.holder.Session
		if of.holder.closed.Load() || w.shared.LoopNumbers.Gone(journal.NumberOf(session)) {
			return nil
		}
	}
	w.hold = journal.Hold{ID: j.ID, Session: session, End: w.shared.wall(j.endOnRecord()), Reserves: ch.counters.reserves}
	return &w.hold
}

// catchUpPause is how long catchUp sleeps between looking and looking again.
const catchUpPause = 100 * time.Microsecond

// catchUp waits until all that is on record is a job that can be found. A put of a large
// body is recorded a moment before (see recordLarge), or longer before if then there is
// neither memory for the job nor room in the journal to say so.
//
// Puts that go on record meanwhile belong to another era, and are not waited for. A put
// that has read the ending era's number, but is counted only after catchUp has looked,
// goes on record later, too.
func (e *Shards) catchUp() (done bool) {
	e.walks.Lock()
	defer e.walks.Unlock()
	ended := (e.era.Add(1) - 1) & 1
	for _, p := range e.allPurses() {
		for p.ahead[ended].Load() != 0 {
			if e.discarded.Load() {
				return false
			}
			time.Sleep(catchUpPause)
		}
	}
	return true
}

// Settings calls f for the settings that are in force, by the names of their tubes and as
// they are at one moment. An error of f's ends it and is returned. f does not change them. Any goroutine may
// call it, also while a follower is fed.
func (e *Shards) Settings(f func(*journal.Setting) error) error {
	list, _ := e.settings.Snapshot()
	for x := list.Next(); x != nil; x = list.Next() {
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}
