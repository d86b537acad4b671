package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
)

// A tombstone is what is left of a deleted job that keeps its unique key for some time: the
// job's record, in a state of its own, in no tube, and not to be found by commands. Its end
// goes by the wall clock over restarts, and is recorded as that of a job is.

// tombstones has those of a shard. The shard's lock guards it.
type tombstones struct {
	shard *shard
	heap  queue.Heap  // by when they end
	timer queue.Timer // fires no later than the first ends
}

// tombstoneFootprint is the memory that a tombstone is counted for.
func tombstoneFootprint(keys *journal.Keys) int64 { return jobFootprint(0, keys) }

// lasting is for how long a tombstone keeps these keys.
func (e *Shards) lasting(keys *journal.Keys) clock.Time {
	if most := e.cfg.Limits.KeySeconds; most != 0 {
		return clock.Seconds(min(keys.Seconds, most))
	}
	return clock.Seconds(keys.Seconds)
}

// noTube is the tube of a tombstone.
const noTube = ^uint32(0)

// leavesTombstone reports whether a job with keys keeps its unique key when it is deleted.
func (sh *shard) leavesTombstone(j *job) bool {
	k := sh.keyedOf(j)
	return !k.lost && k.unique != "" && k.seconds > 0
}

// makeTombstone records that a job is deleted and leaves a tombstone, and makes it one.
func (sh *shard) makeTombstone(r ref, j *job, out *reply.Output) error {
	t, k := sh.tubes[j.tube], sh.keyedOf(j)
	keys := k.keys()
	left := keys.Tombstone()
	end, segment := sh.now+sh.shared.lasting(&left), j.segment
	if sh.journaled() {
		x := &sh.journal.record
		*x = journal.Record{
			ID: j.ID, State: journal.Deleted, Due: sh.shared.wall(end), Tube: t.name, Keys: left, Origin: out.Source().Origin(),
		}
		ticket, err := sh.shared.log.Journal.Replace(x, sh.former(j))
		if err != nil {
			return err
		}
		segment = ticket.Segment
		sh.recordedEnd(ticket.Pos, out)
	}
	sh.takeOut(j)
	sh.dropBody(j)
	if j.counters != 0 {
		sh.counters.Free(j.counters)
	}
	sh.leaveGroups(j, k)
	sh.forgetExpiry(k)
	k.setKeys(&left)
	if k.terms != nil {
		sh.leave(k.terms)
		k.terms = nil
	}
	sh.by.refundJob(jobFootprint(0, &keys)-tombstoneFootprint(&left), arena.Footprint(j.size))
	t.CountJob(-1, jobFootprint(j.size, &keys))
	k.space.CountBytes(tombstoneFootprint(&left))
	*j = job{Links: queue.Links{ID: j.ID}, segment: segment}
	sh.lay(r, j, k, end)
	sh.tidier.wanted()
	sh.dispatch(t)
	sh.removeIfUnused(t)
	return nil
}

// lay makes the record of a job, which stands in no queue and has the keys k, a tombstone
// until end.
func (sh *shard) lay(r ref, j *job, k *keyed, end clock.Time) {
	j.state, j.tube, j.flags, j.At = tombstone, noTube, hasKeys, int64(end)
	sh.totals.in[tombstone]++
	if !k.lost {
		k.space.list(k)
		sh.totals.unique--
		sh.totals.tombstones++
	} else {
		end = min(end, sh.now)
	}
	sh.tombstones.heap.Push(sh.table, end.Key(), r, &j.Links)
	sh.arm(&sh.tombstones.timer, end)
}

// endNow ends a tombstone whose key another job has taken: its end is recorded as soon as
// may be.
func (d *tombstones) endNow(r ref, j *job) {
	sh := d.shard
	d.heap.Remove(sh.table, &j.Links)
	j.At = min(j.At, int64(sh.now))
	d.heap.Push(sh.table, j.at().Key(), r, &j.Links)
	sh.arm(&d.timer, j.at())
}

// recordTombstone is what the journal is told of a tombstone.
func (sh *shard) recordTombstone(j *job) journal.Record {
	k := sh.keyedOf(j)
	return journal.Record{
		ID: j.ID, State: journal.Deleted, Due: sh.shared.wall(j.at()), Tube: k.space.name, Keys: k.keys(),
	}
}

// deleteTombstone records the end of a tombstone and frees it.
func (sh *shard) deleteTombstone(r ref, j *job, out *reply.Output) error {
	if err := sh.recordDelete(j, out); err != nil {
		return err
	}
	sh.takeOut(j)
	sh.free(r, j)
	return nil
}

// tombstoneRetry is how long tombstones wait that have ended when their ends cannot be
// recorded at once.
const tombstoneRetry = clock.Second / 100

// Expire ends the tombstones whose time has come.
func (d *tombstones) Expire(now int64) (done bool) {
	sh := d.shard
	for d.heap.Len() > 0 && clock.TimeOf(d.heap.First().Key) <= clock.Time(now) {
		if !sh.mayMove() {
			return false
		}
		r := d.heap.First().Ref
		var nobody reply.Output
		switch err := sh.deleteTombstone(r, sh.job(r), &nobody); {
		case err == nil:
		case errors.Is(err, journal.ErrRoom):
			sh.arm(&d.timer, clock.Time(now)+tombstoneRetry)
			return true
		default:
			return true // the journal has failed for good
		}
	}
	if d.heap.Len() > 0 {
		sh.arm(&d.timer, clock.TimeOf(d.heap.First().Key))
	}
	return true
}

// list adds a tombstone to those of the keyspace.
func (s *keyspace) list(k *keyed) {
	k.next, k.prev = nil, s.last
	if s.last != nil {
		s.last.next = k
	} else {
		s.first = k
	}
	s.last = k
	s.tombstones++
}

func (s *keyspace) unlist(k *keyed) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		s.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		s.last = k.prev
	}
	k.next, k.prev = nil, nil
	s.tombstones--
}

// deleteTombstones looks at up to budget tombstones of a tube's name, deletes those whose ids
// are not greater than newest, and returns how many it has looked at.
func (sh *shard) deleteTombstones(name string, newest uint64, budget int, out *reply.Output) (seen int, err error) {
	for ; seen < budget; seen++ {
		s := sh.keyspaceOf(name)
		if s == nil || s.first == nil {
			break
		}
		k := s.first
		if k.id > newest {
			s.unlist(k)
			s.list(k)
			continue
		}
		r, j := sh.find(k.id)
		if err := sh.deleteTombstone(r, j, out); err != nil {
			return seen, err
		}
	}
	return seen, nil
}
