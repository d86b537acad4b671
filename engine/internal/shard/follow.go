package shard

import (
	"bytes"
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/record"
)

// Follower feeds an engine with what a journal tells: the one that was left by the
// process before, or that of another server which this one stands in for. Until
// [Follower.Serve] the engine has no sessions, and nothing in it becomes ready by
// time. Each record replaces what was there, so that records may come twice, and a
// full record may come long after the updates that it contains, unless [Follower.Strict]
// says that they come once and in order. A Follower is for one goroutine.
type Follower struct {
	shared *Shards
	tx     Tx
	now    clock.Time // delays that have ended by it are over; clock.Always if that is not known
	stamp  clock.Time // when the records were made: jobs that they make ready have been so since then

	strict  bool
	decided uint64     // no id below it may become a job any more
	tidyAt  clock.Time // when Tidy looks at the shards again

	absent  map[uint64]*ReservationSet // of sessions that have holds, or had, by id
	sweepAt int                        // how many of them there are when those without are forgotten
}

// Follow begins to feed the engine. Delays that have ended by now are over, and none lasts
// longer from now on than its whole length, even if somebody has set the wall clock. At
// Always the records' own times count.
func (e *Shards) Follow(now clock.Time) *Follower {
	e.ids.BeginRestore()
	for _, sh := range e.shards {
		sh.mu.Lock()
		sh.still, sh.fed = true, true
		sh.now = max(sh.now, now)
		sh.mu.Unlock()
	}
	return &Follower{shared: e, tx: Tx{shared: e}, now: now, stamp: now}
}

// Strict says that from now on every record comes once, and behind all that it builds
// on. A record that does not fit is an error then: this engine differs from the others
// that follow the same journal, and must not be relied on.
func (f *Follower) Strict() { f.strict = true }

// Decided says that no id below id becomes a job any more, unless the job is on record
// already. To a strict follower, such a job is an error.
func (f *Follower) Decided(id uint64) { f.decided = max(f.decided, id) }

// Stamp says when the records that follow were made, by the wall clock of Config.Start
// in nanoseconds since 1970. It does not go back.
func (f *Follower) Stamp(wall int64) { f.stamp = max(f.stamp, f.shared.sinceStart(wall)) }

// RecordIn says in which journal the engine records what its sessions do. Before Serve,
// it replaces that of the engine's Config.
func (f *Follower) RecordIn(j record.Journal) { f.shared.recordIn(j) }

// Full takes the whole state of a job, or a tombstone, which replaces an earlier one. It
// returns where that stood.
func (f *Follower) Full(r *journal.Record, place journal.Place) (replaced journal.Former, err error) {
	if r.State == journal.Deleted {
		return f.tombstone(r, place.Segment)
	}
	e := f.shared
	sh := e.shardFor([]byte(r.Tube))
	if old, ref, j := f.lockJob(r.ID); old != nil {
		replaced = old.former(j)
		same := j.state != tombstone && old.tubes[j.tube].name == r.Tube
		if f.strict && (same || j.state == tombstone) {
			old.unlock(&f.tx)
			return replaced, fmt.Errorf("job %d comes into being, but there is one of that id", r.ID)
		}
		stays := place.Known() || j.size == 0 || !j.cold() // a body that is in a file is so no more
		if old == sh && same && stays && j.ttr == max(r.TTR, 1) && old.hasKeys(j, &r.Keys) &&
			j.created == e.sinceStart(r.Created) && old.hasBody(j, r) {
			if err := old.placeRoom(); err != nil {
				old.unlock(&f.tx)
				return replaced, fmt.Errorf("job %d: %w", r.ID, err)
			}
			old.unplace(j)
			j.onRecord(r, place.Segment)
			old.placed(j, place, 0)
			// Otherwise it was moved, and is reserved.
			if j.state != reserved || f.now == clock.Always || r.State != journal.Ready {
				err = f.apply(old, ref, j, r)
			}
			old.unlock(&f.tx)
			return replaced, err
		}
		old.takeOut(j)
		old.free(ref, j)
		old.unlock(&f.tx)
	}
	if f.strict && replaced == (journal.Former{}) && r.ID < f.decided {
		return replaced, fmt.Errorf("job %d comes into being, but ids below %d were decided on before", r.ID, f.decided)
	}
	f.tx.countBytes(jobFootprint(0, &r.Keys) + f.shared.bounded(arena.Footprint(r.BodySize())))
	sh.lock(&f.tx, f.stamp)
	defer sh.unlock(&f.tx)
	if err := f.insert(sh, r, place); err != nil {
		return replaced, fmt.Errorf("job %d: %w", r.ID, err)
	}
	return replaced, nil
}

// hasKeys reports whether a job has these keys, and none of them was lost.
func (sh *shard) hasKeys(j *job, keys *journal.Keys) bool {
	has := sh.keysOf(j)
	return has.Equal(keys) && (j.flags == 0 || !sh.keyedOf(j).lost)
}

// hasBody reports whether a job has the body of a record, as far as that can be seen: the full records of a job whose
// body is not told, or not in memory, have the same.
func (sh *shard) hasBody(j *job, r *journal.Record) bool {
	if j.cold() || r.Absent != nil {
		return j.size == r.BodySize()
	}
	return bytes.Equal(sh.body(j), r.Body)
}

// insert makes a job of a full record.
func (f *Follower) insert(sh *shard, r *journal.Record, place journal.Place) error {
	if k := sh.holder(r.Tube, r.Keys.Unique); f.strict && k != nil {
		if _, j := sh.find(k.id); j.state != tombstone {
			return fmt.Errorf("it has the key %q, but so has job %d", r.Keys.Unique, k.id)
		}
	}
	if err := sh.placeRoom(); err != nil {
		return err
	}
	size, storage := r.BodySize(), uint8(0)
	var body ref
	if sh.residents != nil && size > 0 && place.Known() && f.shared.log.Bodies != nil {
		storage = isCold
	} else if r.Absent != nil {
		return errors.New("its body is elsewhere, and nothing reads bodies")
	} else {
		var err error
		if body, err = sh.allocBody(size); err != nil {
			return err
		}
		copy(sh.bodies.Bytes(body, size), r.Body)
	}
	ref, j, err := sh.newJob()
	if err != nil {
		if storage == 0 {
			sh.freeBlock(body, size)
		}
		return err
	}
	*j = job{
		Links: queue.Links{ID: r.ID}, created: f.shared.sinceStart(r.Created), ttr: max(r.TTR, 1),
		size: size, body: body, storage: storage, tube: sh.tube([]byte(r.Tube), false).index,
	}
	if j.cold() {
		sh.residents.countCold(1, size)
	}
	j.onRecord(r, place.Segment)
	sh.placed(j, place, 0)
	f.shared.ids.Put(r.ID, ids.PlaceOf(sh.number, ref))
	sh.tubes[j.tube].CountJob(1, jobFootprint(j.size, &r.Keys))
	if r.Keys != (journal.Keys{}) {
		sh.attach(sh.tubes[j.tube], j, newKeyed(r.ID, &r.Keys))
	}
	return f.apply(sh, ref, j, r)
}

// tombstone takes what is left of a deleted job. If another job holds its key, the
// tombstone has lost it.
func (f *Follower) tombstone(r *journal.Record, segment uint32) (replaced journal.Former, err error) {
	old, ref, j := f.lockJob(r.ID)
	switch {
	case old != nil:
		replaced = old.former(j)
		keys := old.keysOf(j)
		if f.strict && (j.state == tombstone || old.tubes[j.tube].name != r.Tube || keys.Tombstone() != r.Keys) {
			err = fmt.Errorf("job %d leaves a tombstone that is not its own", r.ID)
		} else {
			old.takeOut(j)
			old.free(ref, j)
		}
		old.unlock(&f.tx)
	case f.strict:
		err = fmt.Errorf("job %d leaves a tombstone, but there is none of that id", r.ID)
	}
	if err != nil {
		return replaced, err
	}
	f.tx.countBytes(tombstoneFootprint(&r.Keys))
	sh := f.shared.shardFor([]byte(r.Tube))
	sh.lock(&f.tx, f.stamp)
	defer sh.unlock(&f.tx)
	ref, j, err = sh.newJob()
	if err != nil {
		return replaced, fmt.Errorf("tombstone of job %d: %w", r.ID, err)
	}
	*j = job{Links: queue.Links{ID: r.ID}, segment: segment}
	f.shared.ids.Put(r.ID, ids.PlaceOf(sh.number, ref))
	end := f.shared.sinceStart(r.Due)
	if f.now != clock.Always {
		end = min(end, f.now+f.shared.lasting(&r.Keys)) // although somebody may have set the clock
	}
	k := newKeyed(r.ID, &r.Keys)
	sh.addKeyed(j, k)
	k.space = sh.keyspace(r.Tube)
	if o := sh.holderIn(k.space, r.Keys.Unique); o == nil {
		sh.hold(k)
	} else if _, other := sh.find(o.id); other.state == tombstone {
		sh.loseKey(o)
		sh.hold(k)
	} else {
		k.lost = true
	}
	if !k.lost {
		k.space.CountBytes(tombstoneFootprint(&r.Keys))
	}
	sh.lay(ref, j, k, end)
	return replaced, nil
}

// Update takes a later state of a job. One that is not known is ignored, unless the
// follower is strict.
func (f *Follower) Update(r *journal.Record) error {
	sh, ref, j := f.lockJob(r.ID)
	if sh != nil {
		defer sh.unlock(&f.tx)
	}
	if sh == nil || j.state == tombstone {
		if f.strict {
			return fmt.Errorf("job %d changes, but there is none of that id", r.ID)
		}
		return nil
	}
	return f.apply(sh, ref, j, r)
}

// Delete takes the end of a job or a tombstone. It returns the segment in which its full
// record stood, 0 if the job is not known. A caller that has asked for Strict takes 0 for
// an error.
func (f *Follower) Delete(id uint64) (segment uint32) {
	sh, ref, j := f.lockJob(id)
	if sh == nil {
		return 0
	}
	defer sh.unlock(&f.tx)
	segment = j.segment
	sh.takeOut(j)
	sh.free(ref, j)
	return segment
}

// Tidy gives back some of the memory that jobs do not need any more, as the loops do when
// the engine serves. It returns true if it is to be called again, when more was fed or at
// once. Time passes here as Stamp says.
func (f *Follower) Tidy() (more bool) {
	more = f.tidyShards()
	if arena.Discarded() && !arena.GiveBack(arena.Slice) {
		more = true
	}
	return more
}

// tidyShards takes one step of one shard's tidier, whose timer does not fire in a standby.
// It returns false when none has anything to do for now.
func (f *Follower) tidyShards() (more bool) {
	if f.stamp < f.tidyAt {
		return false
	}
	for _, sh := range f.shared.shards {
		sh.lock(&f.tx, f.stamp)
		stepped := sh.tidier.step(f.stamp)
		sh.unlock(&f.tx)
		if stepped {
			return true
		}
	}
	f.tidyAt = f.stamp + tidyInterval
	return false
}

// Serve ends the feeding: sessions may be opened from now on. nextID is the first id
// that was never used. What has become due meanwhile becomes ready in turns. All holds end, which
// the journal is told: whoever has them cannot be heard yet.
func (f *Follower) Serve(nextID uint64, now clock.Time) {
	f.endHolds(now)
	f.serve(nextID, now)
}

// ServeOn is Serve, but holds go on. Sessions that have some are absent: their times to run do not end for
// a moment, until Loop.Attach finds them, or they are ended by CloseAbsent or EndNumber.
func (f *Follower) ServeOn(nextID uint64, now clock.Time) {
	f.sweep()
	for _, id := range f.absentIDs() {
		f.absent[id].holder.leaves("", now)
	}
	f.shared.LoopNumbers.Restore(f.absent)
	f.absent = nil
	f.serve(nextID, now)
}

func (f *Follower) serve(nextID uint64, now clock.Time) {
	e := f.shared
	e.ids.Last.Store(max(nextID, 1) - 1)
	e.ids.EndRestore(max(nextID, 1))
	if !e.cfg.Stock { // the server before did not come to fire what is complete, or did not record all of it
		e.groups.EndEpochs()
		for _, sh := range e.shards {
			sh.lock(&f.tx, now)
			sh.fireAllHeld()
			sh.unlock(&f.tx)
		}
	}
	for _, sh := range e.shards {
		sh.lock(&f.tx, now)
		sh.beginLingering()
		sh.unlock(&f.tx)
		sh.mu.Lock()
		sh.still, sh.fed = false, false
		sh.now = max(sh.now, now)
		sh.setAlarm()
		sh.mu.Unlock()
	}
}

// lockJob locks the shard of a job or tombstone and returns it; sh is nil if there is none.
func (f *Follower) lockJob(id uint64) (sh *shard, r ref, j *job) {
	return f.shared.lockRecord(&f.tx, id, f.stamp, true)
}

// apply brings a job to the state that a record tells of.
func (f *Follower) apply(sh *shard, ref ref, j *job, r *journal.Record) error {
	ch := f.shared.changeOf(r)
	if ch.to == held && (j.flags&hasGroups == 0 || sh.keyedOf(j).terms.After == "") {
		return fmt.Errorf("job %d is held, but waits for no group", r.ID)
	}
	if r.State == journal.Stays {
		return sh.stay(ref, j, &ch)
	}
	if ch.to == delayed && f.now != clock.Always {
		ch.at = min(ch.at, f.now+clock.Seconds(r.Delay))
		if ch.at <= f.now {
			ch.to = ready
		}
	}
	if err := sh.provide(j, &ch); err != nil {
		return fmt.Errorf("job %d: %w", r.ID, err)
	}
	sh.apply(ref, j, &ch)
	return nil
}

// Setting takes a tube's setting, which replaces the one of before, or its end. There may be more
// than clients may make.
func (f *Follower) Setting(x *journal.Setting) error {
	kept := *x
	kept.Origin = journal.Origin{}
	sh := f.shared.shardFor([]byte(kept.Tube))
	sh.lock(&f.tx, f.stamp)
	defer sh.unlock(&f.tx)
	f.shared.settings.Keep(&kept, false, 0)
	sh.putInForce(&kept)
	if t := sh.byName[kept.Tube]; t != nil && !t.lingers() {
		f.ceaseLingering(t)
	}
	return nil
}
