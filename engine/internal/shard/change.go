package shard

import (
	"errors"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
)

// A change is what a command, a deadline or the journal makes of a job: its state
// and all that goes with it, as they are afterwards. Whatever happens to a job but
// its end and a touch is a change, made by one function: [shard.requeue].
type change struct {
	to state
	// at is, of a job that becomes delayed, when it will be ready, MaxTime if it is held; of a buried
	// one, its position in the order of burying; of a reserved one, when its time
	// to run ends.
	at       clock.Time
	pri      uint32
	counters counters
	holder   *ReservationSet // of a job that becomes reserved
}

// present is the change that leaves a job as it is.
func (sh *shard) present(j *job) change {
	ch := change{to: j.state, at: j.at(), pri: j.pri}
	if j.counters != 0 {
		ch.counters = *sh.counters.At(j.counters)
	}
	return ch
}

// change records a change of a job and makes it. If it cannot be recorded, or there
// is no memory for what it counts, nothing changes.
func (sh *shard) change(r ref, j *job, ch *change, out *reply.Output) error {
	if err := sh.provide(j, ch); err != nil {
		return err
	}
	if err := sh.record(j, ch, out); err != nil {
		return err
	}
	sh.apply(r, j, ch)
	return nil
}

// provide gives a job the memory that a change of it needs.
func (sh *shard) provide(j *job, ch *change) error {
	if j.counters != 0 || ch.counters == (counters{}) {
		return nil
	}
	return sh.makeCounters(j)
}

// makeCounters gives a job counters of 0.
func (sh *shard) makeCounters(j *job) error {
	r, err := sh.counters.Alloc()
	if err != nil {
		return err
	}
	*sh.counters.At(r) = counters{}
	j.counters = r
	return nil
}

// apply makes a change for which provide has found memory.
func (sh *shard) apply(r ref, j *job, ch *change) {
	if j.counters != 0 {
		*sh.counters.At(j.counters) = ch.counters
	}
	sh.requeue(r, j, ch.to, ch.at, ch.pri, ch.holder)
}

// requeue takes a job out of the queue of its old state, and puts it into that of the new one. Whoever makes
// a job ready by it, or ends a reservation, also dispatches the tube, before the lock is released.
func (sh *shard) requeue(r ref, j *job, to state, at clock.Time, pri uint32, holder *ReservationSet) {
	from, t := j.state, sh.tubes[j.tube]
	plain := j.plain(t)
	if !plain {
		sh.beforeChange(t, j, to)
	}
	if from != unqueued {
		sh.takeOut(j)
	}
	j.pri, j.state, j.At = pri, to, int64(at)
	sh.totals.in[to]++
	switch to {
	case ready:
		j.At = int64(sh.now)
		if j.cold() {
			t.countCold(1)
		}
		if j.pri < queue.UrgentBelow {
			sh.totals.urgent++
		}
		if plain {
			t.ready.Push(sh.table, j.pri, r, &j.Links)
		} else {
			sh.pushReady(t, r, j)
		}
	case delayed:
		t.delayed.Push(sh.table, at.Key(), r, &j.Links)
		sh.arm(&t.timer, t.firstDelay())
	case held:
		sh.pushHeld(t, r, j)
	case buried:
		sh.buries = max(sh.buries, uint64(at))
		t.buried.Push(sh.table, r, &j.Links)
	case reserved:
		h := sh.reservationsOf(holder)
		j.Next = h.index
		t.reserved++
		t.totals().busy -= sh.now.Micros()
		h.add(r, j)
		if !plain {
			sh.addReserved(t, j)
		}
	}
	if !plain {
		sh.afterChange(j, from)
	}
}

// takeOut removes a job from the queue of its state. It is for the caller to give it
// a new state, or to free it.
func (sh *shard) takeOut(j *job) {
	if j.state == tombstone {
		sh.tombstones.heap.Remove(sh.table, &j.Links)
		sh.totals.in[tombstone]--
		return
	}
	t := sh.tubes[j.tube]
	switch j.state {
	case ready:
		if j.storage&(isCold|isWanted) != 0 {
			sh.leaveAhead(t, j)
		}
		if j.plain(t) {
			t.ready.Remove(sh.table, j.pri, &j.Links)
		} else {
			sh.removeReady(t, j)
		}
		if j.pri < queue.UrgentBelow {
			sh.totals.urgent--
		}
	case delayed:
		t.delayed.Remove(sh.table, &j.Links)
	case held:
		sh.removeHeld(t, j)
	case buried:
		t.buried.Remove(sh.table, &j.Links)
	case reserved:
		j.storage &^= isUntold
		sh.reservations[j.Next].jobs.Remove(sh.table, &j.Links)
		t.reserved--
		t.total.busy += sh.now.Micros()
		if !j.plain(t) {
			sh.removeReserved(t, j)
		}
	default:
		return // it is new
	}
	sh.totals.in[j.state]--
}

// makeReady makes a job ready because its delay, its time to run or its client's
// connection has ended. That is not on record: after a restart it is so anyway.
func (sh *shard) makeReady(r ref, j *job) {
	sh.requeue(r, j, ready, 0, j.pri, nil)
}

// reserve gives a ready, delayed or buried job to a session, whose loop is the
// caller's or that the caller has claimed. It fails when there is no memory. A reservation of a
// session on record, or in a tube that outlasts the server, is on record up to pos; another is not, and pos is 0.
func (sh *shard) reserve(to *ReservationSet, r ref, j *job) (pos journal.Pos, err error) {
	if j.counters == 0 {
		if err = sh.makeCounters(j); err != nil {
			return 0, err
		}
	}
	n, end := sh.counters.At(j.counters), sh.now+clock.Seconds(j.ttr)
	t := sh.tubes[j.tube]
	switch {
	case to.holder != nil:
		if pos, err = sh.recordHold(to.holder, j, end, n.reserves+1, false); err != nil {
			return 0, err
		}
	case !t.plain && t.outlasts():
		pos = sh.recordReserved(j, end, n.reserves+1)
	}
	n.reserves++
	n.order = to.made
	to.made++
	if t.limits != nil {
		t.limits.Start(sh.now)
	}
	total := t.totals()
	total.reserves++
	if j.state == ready {
		sh.totals.ready.Observe(time.Duration(sh.now-j.at()), 1)
		total.wait += sh.now.Micros() - j.at().Micros()
	}
	sh.requeue(r, j, reserved, end, j.pri, to)
	if j.cold() {
		sh.postpone(r, j)
	}
	if t.ahead != nil {
		sh.readAhead(t)
	}
	return pos, nil
}

// delete records the end of a job and frees it, but for the tombstone that it may leave.
func (sh *shard) delete(r ref, j *job, out *reply.Output) error {
	if j.flags != 0 && sh.leavesTombstone(j) {
		return sh.makeTombstone(r, j, out)
	}
	return sh.deleteEntirely(r, j, out)
}

// deleteEntirely records the end of a job and frees all of it.
func (sh *shard) deleteEntirely(r ref, j *job, out *reply.Output) error {
	if err := sh.recordDelete(j, out); err != nil {
		return err
	}
	t := sh.tubes[j.tube]
	sh.takeOut(j)
	sh.free(r, j)
	sh.dispatch(t)
	return nil
}

// free frees a job, or a tombstone, that stands in no queue.
func (sh *shard) free(r ref, j *job) {
	sh.retired.Retire(&sh.shared.ids, j.ID)
	sh.dropBody(j)
	var k *keyed
	n, body := jobMemory, arena.Footprint(j.size)
	if j.flags != 0 {
		k = sh.keyedOf(j)
		keys := k.keys()
		n += keysFootprint(&keys)
	}
	sh.by.refundJob(n, body)
	if j.state == tombstone {
		if !k.lost { // otherwise it was counted off with the key
			k.space.CountBytes(-n)
		}
		sh.freeRecord(r, j)
		sh.tidier.wanted()
		return
	}
	t := sh.tubes[j.tube]
	t.CountJob(-1, n+body)
	sh.freeRecord(r, j)
	sh.tidier.wanted()
	sh.removeIfUnused(t)
}

// newJob finds a place for the record of a job that stands nowhere yet. The caller fills the record.
func (sh *shard) newJob() (ref, *job, error) {
	r, err := sh.jobs.Alloc()
	if err != nil {
		return 0, nil, err
	}
	if r > ids.MaxRef {
		sh.jobs.Free(r)
		return 0, nil, errTooManyJobs
	}
	return r, sh.job(r), nil
}

// freeRecord frees a job's record, counters and keys, but not its body.
func (sh *shard) freeRecord(r ref, j *job) {
	if j.flags != 0 {
		if k := sh.removeKeys(j); k.terms != nil {
			sh.leave(k.terms)
		}
	}
	if j.counters != 0 {
		sh.counters.Free(j.counters)
	}
	sh.jobs.Free(r)
}

var errTooManyJobs = errors.New("the shard has no more names for jobs")

// changeOf is the change that a record tells of.
func (e *Shards) changeOf(r *journal.Record) change {
	ch := change{to: ready, pri: r.Pri, counters: counters{
		delay: r.Delay, reserves: r.Reserves, timeouts: r.Timeouts,
		releases: r.Releases, buries: r.Buries, kicks: r.Kicks, attempts: r.Attempts,
	}}
	switch r.State {
	case journal.Delayed:
		ch.to, ch.at = delayed, e.sinceStart(r.Due)
	case journal.Buried:
		ch.to, ch.at = buried, clock.Time(r.BuryOrder)
	case journal.Held:
		ch.to, ch.at = held, clock.MaxTime
	}
	return ch
}

// describe fills the shard's record with what a job is after a change.
func (sh *shard) describe(j *job, ch *change) *journal.Record {
	r := &sh.journal.record
	if j.state == tombstone {
		*r = sh.recordTombstone(j)
		return r
	}
	*r = sh.shared.recordOf(j, ch, sh.tubes[j.tube].name, sh.body(j))
	if j.flags != 0 {
		r.Keys = sh.keysOf(j)
	}
	return r
}

// recordOf is what the journal is told of a job after a change, but for its keys. A reserved
// job is ready to the journal.
func (e *Shards) recordOf(j *job, ch *change, tube string, body []byte) journal.Record {
	n := &ch.counters
	r := journal.Record{
		ID: j.ID, State: journal.Ready,
		Pri: ch.pri, Delay: n.delay, TTR: j.ttr, Created: e.wall(j.created),
		Reserves: n.reserves, Timeouts: n.timeouts, Releases: n.releases, Buries: n.buries, Kicks: n.kicks,
		Attempts: n.attempts,
		Tube:     tube, Body: body,
	}
	switch ch.to {
	case delayed:
		r.State, r.Due = journal.Delayed, e.wall(ch.at)
	case buried:
		r.State, r.BuryOrder = journal.Buried, uint64(ch.at)
	case held:
		r.State = journal.Held
	}
	return r
}

// kick makes a buried or delayed job ready.
func (sh *shard) kick(r ref, j *job, out *reply.Output) error {
	ch := sh.present(j)
	ch.to = ready
	ch.counters.kicks++
	ch.counters.attempts = 0
	err := sh.change(r, j, &ch, out)
	sh.dispatch(sh.tubes[j.tube])
	return err
}
