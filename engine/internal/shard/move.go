package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
)

var errTooManyTubes = errors.New("there are as many tubes as there may be")

// move records that a job goes to another tube, and moves it. Both shards are locked. A
// reserved job is ready afterwards, a buried one last; any other keeps its position in the
// order. If it cannot be recorded, or there is no room, nothing changes.
func (sh *shard) move(r ref, j *job, to *shard, name string, out *reply.Output) error {
	if sh.tubes[j.tube].name == name {
		if j.state != reserved {
			return nil
		}
		if sh.overdue(j) && sh.endMoved(j.ID, out) {
			return nil
		}
		if sh.onRecord(j) {
			ch := sh.present(j)
			ch.to = ready
			if err := sh.change(r, j, &ch, out); err != nil {
				return err
			}
		} else {
			sh.makeReady(r, j)
		}
		sh.dispatch(sh.tubes[j.tube])
		return nil
	}
	ch := sh.present(j)
	switch ch.to {
	case reserved:
		ch.to = ready
	case buried:
		ch.at = clock.Time(to.buries + 1)
	}
	return sh.moveTo(r, j, &ch, to, name, out)
}

// moveTo records that a job goes to another tube, where it is what ch says, and moves it.
// Both shards are locked. If it cannot be recorded, or there is no room, or its body is not in memory, nothing
// changes.
func (sh *shard) moveTo(r ref, j *job, ch *change, to *shard, name string, out *reply.Output) error {
	if j.cold() {
		return errCold
	}
	old := sh.tubes[j.tube]
	t := to.tube([]byte(name), true)
	if t == nil {
		return errTooManyTubes
	}
	overdue, id := sh.overdue(j), j.ID
	keys, taken := sh.keysIn(to, name, j)
	before, size := sh.keysOf(j), j.size
	from, account := old.Account(), t.Account()
	var err error
	if account != from {
		err = account.AdmitMoved(jobFootprint(size, &keys), keyCount(&keys))
	}
	switch {
	case err != nil:
		to.removeIfUnused(t)
		return err
	case sh == to:
		err = sh.moveWithin(r, j, t, ch, keys, out)
	default:
		err = sh.moveAway(r, j, t, ch, keys, out)
	}
	if err != nil {
		if account != from {
			account.Dismiss(jobFootprint(size, &keys))
		}
		to.removeIfUnused(t)
		return err
	}
	old.CountJob(-1, jobFootprint(size, &before))
	if account == from {
		t.CountJob(1, jobFootprint(size, &keys))
	} else {
		t.CountAdmitted(account, jobFootprint(size, &keys))
	}
	if before != keys {
		sh.by.refundBytes(keysFootprint(&before) - keysFootprint(&keys))
	}
	if taken != 0 {
		if r, j := to.find(taken); j != nil {
			_ = to.deleteTombstone(r, j, out) // its timer tries again
		}
	}
	switch {
	case overdue && ch.to != buried && to.endMoved(id, out):
	case ch.to == ready: // a time-out that buries a dead letter has not set to.now, by which jobs are handed over
		to.dispatch(t)
	}
	sh.dispatch(old)
	sh.removeIfUnused(old)
	return nil
}

// endMoved has a job expire that was moved, or that is about to be given back by that. It returns
// false if that cannot be now.
func (sh *shard) endMoved(id uint64, out *reply.Output) (done bool) {
	r, j := sh.find(id)
	ch := sh.present(j)
	taken, err := sh.end(r, j, &ch, expired, out)
	if taken != nil && j.state != reserved { // its timer tries again, and nobody starts it before
		k := sh.keyedOf(j)
		sh.forgetExpiry(k)
		sh.pushExpiry(k, sh.now)
		return true
	}
	return taken == nil && err == nil
}

// keysIn are the keys that a job will have in the tube of that name, of the shard to. Where
// another job holds its unique key, it loses that. Where a tombstone does, taken is the
// tombstone's id, and the key goes to the job.
func (sh *shard) keysIn(to *shard, name string, j *job) (keys journal.Keys, taken uint64) {
	if j.flags == 0 {
		return keys, 0
	}
	k := sh.keyedOf(j)
	keys = k.keys()
	lost := k.lost
	other := to.holder(name, keys.Unique)
	if other != nil && !lost {
		if _, o := to.find(other.id); o.state == tombstone {
			taken = other.id
		} else {
			lost = true
		}
	}
	if lost {
		keys.Unique, keys.Seconds = "", 0
	}
	return keys, taken
}

// moveWithin moves a job to a tube of the same shard.
func (sh *shard) moveWithin(r ref, j *job, t *tube, ch *change, keys journal.Keys, out *reply.Output) error {
	if err := sh.provide(j, ch); err != nil {
		return err
	}
	if err := sh.recordMove(j, j, t, ch, keys, out); err != nil {
		return err
	}
	sh.takeOut(j)
	var k *keyed
	if j.flags != 0 {
		k = sh.removeKeys(j)
	}
	j.state, j.tube = unqueued, t.index
	if k != nil {
		sh.rekey(t, j, k, keys)
	}
	sh.apply(r, j, ch)
	return nil
}

// moveAway moves a job to a tube of another shard.
func (sh *shard) moveAway(r ref, j *job, t *tube, ch *change, keys journal.Keys, out *reply.Output) error {
	to := t.shard
	body, err := to.allocBody(j.size)
	if err != nil {
		return err
	}
	copy(to.bodies.Bytes(body, j.size), sh.body(j))
	there, moved, err := to.newJob()
	if err != nil {
		to.freeBlock(body, j.size)
		to.tidier.wanted()
		return err
	}
	*moved = job{
		Links: queue.Links{ID: j.ID}, created: j.created, ttr: j.ttr, size: j.size, body: body, tube: t.index,
	}
	if err = to.provide(moved, ch); err == nil {
		err = sh.recordMove(j, moved, t, ch, keys, out)
	}
	if err != nil {
		to.freeBlock(body, j.size)
		to.freeRecord(there, moved)
		to.tidier.wanted()
		return err
	}
	sh.shared.ids.Put(j.ID, ids.PlaceOf(to.number, there))
	sh.takeOut(j)
	sh.dropBody(j)
	var k *keyed
	if j.flags != 0 {
		k = sh.removeKeys(j)
	}
	sh.freeRecord(r, j)
	sh.tidier.wanted()
	if k != nil {
		to.rekey(t, moved, k, keys)
	}
	to.apply(there, moved, ch)
	return nil
}

// rekey gives a job that has moved to the tube t the keys that it has there. k is the record
// of those that it had.
func (sh *shard) rekey(t *tube, j *job, k *keyed, keys journal.Keys) {
	if keys != (journal.Keys{}) {
		*k = keyed{id: k.id, terms: k.terms}
		k.setKeys(&keys)
		sh.attach(t, j, k)
	}
}

// recordMove records all of a job as it will be in the tube t, where moved will stand for
// it.
func (sh *shard) recordMove(j, moved *job, t *tube, ch *change, keys journal.Keys, out *reply.Output) error {
	e := sh.shared
	if e.log.Journal == nil {
		return nil
	}
	r := &sh.journal.record
	*r = e.recordOf(j, ch, t.name, sh.body(j))
	r.Keys = keys
	r.Origin = out.Source().Origin()
	if err := t.shard.beforeFull(r, j); err != nil {
		return err
	}
	ticket, err := e.log.Journal.Replace(r, sh.former(j))
	if err != nil {
		return err
	}
	if moved == j {
		sh.unplace(j)
	}
	moved.onRecord(r, ticket.Segment)
	t.shard.placed(moved, ticket.Place(), ticket.Pos)
	sh.recordedEnd(ticket.Pos, out)
	t.shard.recorded(ticket.Pos)
	return nil
}
