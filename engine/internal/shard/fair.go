package shard

import (
	"math"
	"unsafe"

	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/pagedheap"
	"trellis/engine/internal/queue"
)

// Jobs with a fair key share their tube with those of other keys: among candidates of equal
// priority goes first the one whose key has the fewest jobs reserved, among equals of these that
// whose key is in the earliest lap, and then the oldest. Jobs without a fair key share as if
// they had one in common.
//
// A candidate is a ready job that its limited key lets go: of a group with several fair keys only
// the first job. Keys go in laps: one that has started a job waits for the next lap with the
// others, and one that comes joins the lap under way.
//
// A key stands in the tube's line, by its first candidate, while it has one. Candidates without a
// key stand in the tube's order of ready jobs, as in a tube without fair keys.

// A key whose jobs have gone is forgotten when another job of the tube becomes ready or reserved,
// and so are all laps when no job has a key then: who puts a job, works on it, deletes it and puts
// the next one does not come before those who wait. What commands over many jobs delete in no order
// of their own is forgotten at once.

// fairKeys are the fair keys of a tube. The shard's lock guards them.
type fairKeys struct {
	keys     hashtable.Table[fairKey, byFairKey]
	line     pagedheap.Heap[standing, *standing] // of the keys that have candidates
	lap      uint64                              // under way
	others   laps                                // of the jobs without a key
	jobs     int                                 // that have a key, in any state
	reserved int                                 // of them
	last     *fairKey                            // of those whose jobs have gone, the last one, unless it is forgotten
}

// laps are those of a key.
type laps struct {
	now  uint64 // in which it is, while it has a candidate
	next uint64 // the first one after that in which it has started a job
}

// join lets a key that gets a candidate take part in a lap.
func (l *laps) join(lap uint64) { l.now = max(l.next, lap) }

// start has a key start a job, and returns the lap that is under way then. The key has waited for
// that if it has a candidate.
func (l *laps) start(lap uint64, waited bool) uint64 {
	if waited {
		lap = max(lap, l.now)
	}
	l.next = lap + 1
	l.now = l.next
	return lap
}

// fairKey exists while a job of the tube has it.
type fairKey struct {
	key        string
	jobs       uint32 // that have it, in any state
	reserved   uint32 // of them
	candidates queue.ByPriority
	laps
	index int // in the tube's line, while it has candidates

	nextOfHash *fairKey // in a bucket of fairKeys.keys
}

// byFairKey finds fair keys of a tube.
type byFairKey struct{}

func (byFairKey) Hash(k *fairKey) uint64    { return hashOfKey(k.key) }
func (byFairKey) Next(k *fairKey) **fairKey { return &k.nextOfHash }

// fairKeyFootprint is the memory that a fair key is counted for: a record, not more than two
// buckets, an entry of the line, the room for one run, and the text.
func fairKeyFootprint(key string) int64 {
	record := unsafe.Sizeof(fairKey{}) + 2*unsafe.Sizeof((*fairKey)(nil)) + unsafe.Sizeof(standing{})
	return int64(record) + 16 + textFootprint(key)
}

// fairKeyOf returns a fair key, nil if no job of the tube has it.
func (t *tube) fairKeyOf(key string) *fairKey {
	if t.fair == nil {
		return nil
	}
	for k := t.fair.keys.First(hashOfKey(key)); k != nil; k = k.nextOfHash {
		if k.key == key {
			return k
		}
	}
	return nil
}

// joinFair adds a job of the tube t to those of a fair key, and returns the key.
func (sh *shard) joinFair(t *tube, key string) *fairKey {
	if t.fair == nil {
		t.fair = new(fairKeys)
		t.classify()
	}
	k := t.fairKeyOf(key)
	if k == nil {
		if k = t.fair.last; k != nil && k.key == key {
			t.fair.last = nil
		} else {
			k = &fairKey{key: key}
		}
		t.fair.keys.Insert(k)
		sh.by.countBytes(fairKeyFootprint(key))
		t.CountBytes(fairKeyFootprint(key))
		t.CountKeys(1)
		sh.totals.fair++
		sh.shared.usage.keys.Add(1)
	}
	k.jobs++
	t.fair.jobs++
	return k
}

// leaveFair takes a job of the tube t, which stands in no queue, off those of its fair key.
func (sh *shard) leaveFair(t *tube, k *fairKey) {
	f := t.fair
	f.jobs--
	if k.jobs--; k.jobs > 0 {
		return
	}
	f.keys.Remove(k)
	sh.by.refundBytes(fairKeyFootprint(k.key))
	t.CountBytes(-fairKeyFootprint(k.key))
	t.CountKeys(-1)
	sh.totals.fair--
	sh.shared.usage.keys.Add(-1)
	if k.next > f.lap { // otherwise there is nothing to remember
		f.last = k
	}
}

// fairKeyOfJob returns the fair key of a job that has one.
func (sh *shard) fairKeyOfJob(j *job) *fairKey { return sh.keyedOf(j).terms.fair }

// next is the job of the tube to be reserved next, 0 if none can be.
func (t *tube) next() ref {
	r := t.ready.First(t.shard.table)
	if t.fair == nil {
		return r
	}
	return t.fair.next(t, r)
}

// next is the next of the jobs with a fair key and r, the first of those without one, which is
// 0 if there is none.
func (f *fairKeys) next(t *tube, r ref) ref {
	if f.line.Len() == 0 {
		return r
	}
	first := f.line.At(0)
	if r != 0 {
		j := t.shard.job(r)
		if other := (standing{rankOf(j.pri, t.reserved-f.reserved), f.others.now, j.ID, nil}); other.Before(first) {
			return r
		}
	}
	return first.key.candidates.First(t.shard.table)
}

// offer makes a ready job, which is withheld, a candidate.
func (sh *shard) offer(t *tube, r ref, j *job) {
	f := t.fair
	if j.flags&isFair == 0 {
		if f != nil && t.ready.Empty() {
			f.others.join(f.lap)
		}
		t.ready.Restore(sh.table, j.pri, r, &j.Links)
		return
	}
	k := sh.fairKeyOfJob(j)
	if k.candidates.Empty() {
		k.join(f.lap)
		f.line.Push(standing{rank: math.MaxUint64, lap: math.MaxUint64, key: k}) // the last, for now
	}
	sh.pushTo(&k.candidates, r, j)
	sh.rank(f, k)
}

// withdraw undoes offer.
func (sh *shard) withdraw(t *tube, j *job) {
	if j.flags&isFair == 0 {
		t.ready.Withhold(sh.table, j.pri, &j.Links)
		return
	}
	k := sh.fairKeyOfJob(j)
	sh.removeFrom(&k.candidates, j)
	if k.candidates.Empty() {
		t.fair.line.Remove(k.index)
	}
	sh.rank(t.fair, k)
}

// movedCandidate tells where the record of a candidate is now.
func (sh *shard) movedCandidate(t *tube, r ref, j *job) {
	if j.flags&isFair == 0 {
		t.ready.Moved(sh.table, j.pri, r, &j.Links)
		return
	}
	sh.fairKeyOfJob(j).candidates.Moved(sh.table, j.pri, r, &j.Links)
}

// rank puts a key where it belongs in the line by what it has now, if it has a candidate.
func (sh *shard) rank(f *fairKeys, k *fairKey) {
	if k.candidates.Empty() {
		return
	}
	j := sh.job(k.candidates.First(sh.table))
	f.line.Put(k.index, standing{rankOf(j.pri, int(k.reserved)), k.now, j.ID, k})
}

// prepareFair counts in a tube with fair keys that a job is about to come to a state. A standby
// counts no laps, so that they begin anew when it serves.
func (sh *shard) prepareFair(t *tube, j *job, to state) {
	if to != ready && to != reserved {
		return
	}
	f := t.fair
	f.last = nil
	if f.jobs == 0 {
		t.fair = nil
		t.classify()
		return
	}
	if j.flags&isFair != 0 {
		others := t.jobs() - f.jobs
		if j.state == unqueued {
			others++ // the tube does not count this one yet
		}
		if others == 0 {
			f.others = laps{}
		}
	}
	if to == ready {
		return
	}
	k, l, waited := sh.lapsOf(t, j)
	if !sh.still {
		f.lap = l.start(f.lap, waited)
	}
	if k != nil {
		k.reserved++
		f.reserved++
		sh.rank(f, k)
	}
}

// lapsOf returns a job's key, nil if it has none, the laps of that, and whether it has a candidate.
func (sh *shard) lapsOf(t *tube, j *job) (k *fairKey, l *laps, waits bool) {
	if j.flags&isFair == 0 {
		return nil, &t.fair.others, !t.ready.Empty()
	}
	k = sh.fairKeyOfJob(j)
	return k, &k.laps, !k.candidates.Empty()
}

// reorder makes a change of nothing but the priority of a ready job, by which its key stays in
// the lap in which it is.
func (sh *shard) reorder(r ref, j *job, ch *change) {
	t := sh.tubes[j.tube]
	if t.fair == nil {
		sh.apply(r, j, ch)
		return
	}
	k, l, waited := sh.lapsOf(t, j)
	lap := l.now
	sh.apply(r, j, ch)
	if waited {
		l.now = lap
		if k != nil {
			sh.rank(t.fair, k)
		}
	}
}

// vacateFair counts off a job with a fair key that was reserved.
func (sh *shard) vacateFair(t *tube, j *job) {
	k := sh.fairKeyOfJob(j)
	k.reserved--
	t.fair.reserved--
	sh.rank(t.fair, k)
}

// A standing is a key in the line, and what it stands there by.
type standing struct {
	rank uint64 // see rankOf
	lap  uint64
	id   uint64 // of its first candidate
	key  *fairKey
}

// rankOf orders by priority, and then by how many jobs are reserved.
func rankOf(pri uint32, reserved int) uint64 { return uint64(pri)<<32 | uint64(reserved) }

// Before implements pagedheap.Entry.
func (s *standing) Before(o *standing) bool {
	if s.rank != o.rank {
		return s.rank < o.rank
	}
	if s.lap != o.lap {
		return s.lap < o.lap
	}
	return s.id < o.id
}

// Stand implements pagedheap.Entry.
func (s *standing) Stand(i int) { s.key.index = i }
