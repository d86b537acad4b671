package shard

import (
	"hash/maphash"
	"iter"
	"unsafe"

	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/queue"
)

// A job with a limited key may be reserved while fewer jobs of that key and tube are reserved
// than its limit says. While it may not, it is passed over: it is ready to all who look, and
// costs nothing when others are reserved.
//
// The ready jobs of one key and one limit are a group. Only the first of a group stands in
// the order of the tube's ready jobs, and only while the group is open. So a reservation,
// or the end of one, moves at most one job per group that it closes or opens, and closes
// or opens at most one group: that whose limit is the number of reserved jobs.

// limitedKeys are the limited keys of a tube. The shard's lock guards them.
type limitedKeys struct {
	keys    hashtable.Table[limitedKey, byLimitedKey]
	passed  queue.Heap // the first jobs of groups that are closed, by priority
	crowded *group     // the groups with more than one ready job, linked by next and prev
}

// limitedKey exists while a job of the tube has it.
type limitedKey struct {
	tube     *tube
	key      string
	jobs     int    // that have it
	reserved uint32 // of them

	// The groups by their limits. Most keys have one.
	only   *group
	others *hashtable.Table[group, byLimit] // nil while there is none

	next *limitedKey // in a bucket of limitedKeys.keys
}

// byLimitedKey finds limited keys of a tube.
type byLimitedKey struct{}

func (byLimitedKey) Hash(s *limitedKey) uint64       { return hashOfKey(s.key) }
func (byLimitedKey) Next(s *limitedKey) **limitedKey { return &s.next }

// limitedKeyFootprint is the memory that a limited key is counted for, beside its groups: a
// record, not more than two buckets, and the text.
func limitedKeyFootprint(key string) int64 {
	return int64(unsafe.Sizeof(limitedKey{})+2*unsafe.Sizeof((*limitedKey)(nil))) + textFootprint(key)
}

// groupMemory is what a group is counted for beside the entries of its jobs: a record, not
// more than two buckets, and the room for one run.
const groupMemory = int64(unsafe.Sizeof(group{})+2*unsafe.Sizeof((*group)(nil))) + 16

// group is the jobs of one key and one limit. All of its ready jobs are withheld from the
// tube's order of ready jobs, but for the first while it is open.
type group struct {
	key     *limitedKey
	limit   uint32
	jobs    int              // in any state
	first   ref              // of the ready ones; 0 if there is none
	firstID uint64           // its id
	rest    queue.ByPriority // the others

	next, prev *group // in limitedKeys.crowded, while rest has some
	nextOfKey  *group // in a bucket of limitedKey.others
}

// byLimit finds groups of a limited key.
type byLimit struct{}

func (byLimit) Hash(g *group) uint64  { return hashOfLimit(g.limit) }
func (byLimit) Next(g *group) **group { return &g.nextOfKey }

func hashOfLimit(limit uint32) uint64 { return maphash.Comparable(keySeed, limit) }

// open reports whether a job of the group may be reserved.
func (g *group) open() bool { return g.key.reserved < g.limit }

// limitedKeyOf returns a limited key, nil if no job of the tube has it.
func (t *tube) limitedKeyOf(key string) *limitedKey {
	if t.limited == nil {
		return nil
	}
	for s := t.limited.keys.First(hashOfKey(key)); s != nil; s = s.next {
		if s.key == key {
			return s
		}
	}
	return nil
}

// groupOf adds a job of the tube t to the group of that key and limit, and returns the group.
func (sh *shard) groupOf(t *tube, key string, limit uint32) *group {
	if t.limited == nil {
		t.limited = new(limitedKeys)
	}
	s := t.limitedKeyOf(key)
	if s == nil {
		s = &limitedKey{tube: t, key: key}
		t.limited.keys.Insert(s)
		sh.by.countBytes(limitedKeyFootprint(key))
		t.CountBytes(limitedKeyFootprint(key))
		t.CountKeys(1)
		sh.totals.limited++
		sh.shared.usage.keys.Add(1)
	}
	g := s.group(limit)
	if g == nil {
		g = &group{key: s, limit: limit}
		s.add(g)
		sh.by.countBytes(groupMemory)
		t.CountBytes(groupMemory)
	}
	s.jobs++
	g.jobs++
	return g
}

// remove takes a job off its group.
func (g *group) remove() {
	s := g.key
	t := s.tube
	sh := t.shard
	s.jobs--
	g.jobs--
	if g.jobs == 0 {
		s.remove(g)
		sh.by.refundBytes(groupMemory)
		t.CountBytes(-groupMemory)
	}
	if s.jobs == 0 {
		t.limited.keys.Remove(s)
		sh.by.refundBytes(limitedKeyFootprint(s.key))
		t.CountBytes(-limitedKeyFootprint(s.key))
		t.CountKeys(-1)
		if t.limited.keys.Len() == 0 {
			t.limited = nil
		}
		sh.totals.limited--
		sh.shared.usage.keys.Add(-1)
	}
}

func (s *limitedKey) group(limit uint32) *group {
	if s.only != nil && s.only.limit == limit {
		return s.only
	}
	if s.others == nil {
		return nil
	}
	for g := s.others.First(hashOfLimit(limit)); g != nil; g = g.nextOfKey {
		if g.limit == limit {
			return g
		}
	}
	return nil
}

func (s *limitedKey) add(g *group) {
	if s.only == nil {
		s.only = g
		return
	}
	if s.others == nil {
		s.others = new(hashtable.Table[group, byLimit])
	}
	s.others.Insert(g)
}

func (s *limitedKey) remove(g *group) {
	if s.only == g {
		s.only = nil
		return
	}
	if s.others.Remove(g); s.others.Len() == 0 {
		s.others = nil
	}
}

// groupOfJob returns the group of a job that has one.
func (sh *shard) groupOfJob(j *job) *group { return sh.keyedOf(j).group }

// passedOver reports whether a job must not be reserved.
func (sh *shard) passedOver(j *job) bool { return j.flags&isLimited != 0 && !sh.groupOfJob(j).open() }

// pushLimited adds a limited job that becomes ready.
func (sh *shard) pushLimited(t *tube, r ref, j *job) {
	g := sh.groupOfJob(j)
	if g.first == 0 {
		sh.stand(t, g, r, j)
		return
	}
	if first := sh.job(g.first); j.sooner(first) {
		old := g.first
		sh.stand(t, g, r, j) // before the other steps back, so that their fair key keeps its turn if it has both
		sh.stepBack(t, g, first)
		sh.crowd(t, g, old, first)
		return
	}
	sh.crowd(t, g, r, j)
}

// removeLimited takes a limited job out that is ready.
func (sh *shard) removeLimited(t *tube, j *job) {
	g := sh.groupOfJob(j)
	if g.firstID != j.ID {
		sh.uncrowd(t, g, j)
	} else {
		g.first, g.firstID = 0, 0
		if r := g.rest.First(sh.table); r != 0 {
			next := sh.job(r)
			sh.uncrowd(t, g, next)
			sh.stand(t, g, r, next) // before j steps back: see pushLimited
		}
		sh.stepBack(t, g, j)
	}
}

// stand makes a job the first of its group.
func (sh *shard) stand(t *tube, g *group, r ref, j *job) {
	g.first, g.firstID = r, j.ID
	if g.open() {
		sh.offer(t, r, j)
	} else {
		t.limited.passed.Push(sh.table, uint64(j.pri), r, &j.Links)
	}
}

// stepBack takes the first job of a group out of where stand has put it.
func (sh *shard) stepBack(t *tube, g *group, j *job) {
	if g.open() {
		sh.withdraw(t, j)
	} else {
		t.limited.passed.Remove(sh.table, &j.Links)
	}
}

// crowd adds a job to the rest of its group.
func (sh *shard) crowd(t *tube, g *group, r ref, j *job) {
	if g.rest.Empty() {
		l := t.limited
		if g.next = l.crowded; g.next != nil {
			g.next.prev = g
		}
		l.crowded = g
	}
	sh.pushTo(&g.rest, r, j)
}

// uncrowd takes a job out of the rest of its group.
func (sh *shard) uncrowd(t *tube, g *group, j *job) {
	sh.removeFrom(&g.rest, j)
	if !g.rest.Empty() {
		return
	}
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		t.limited.crowded = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	}
	g.next, g.prev = nil, nil
}

// pushTo adds a job to a queue of one of many keys.
func (sh *shard) pushTo(q *queue.ByPriority, r ref, j *job) {
	room := q.Room()
	q.Push(sh.table, j.pri, r, &j.Links)
	sh.resized(q, room)
}

// removeFrom undoes pushTo.
func (sh *shard) removeFrom(q *queue.ByPriority, j *job) {
	room := q.Room()
	q.Remove(sh.table, j.pri, &j.Links)
	q.Trim()
	sh.resized(q, room)
}

// resized takes off the round's budget what it takes to change the room of a key's heap.
// Where jobs come and go in turn, many keys do so at the same time; and while the garbage
// collector runs, who allocates much works for it.
func (sh *shard) resized(q *queue.ByPriority, room int) {
	if now := q.Room(); now != room {
		sh.by.spend(now)
	}
}

// occupy counts a limited job that becomes reserved.
func (sh *shard) occupy(t *tube, j *job) {
	s := sh.groupOfJob(j).key
	sh.count(t, s, s.reserved+1, s.reserved+1)
}

// vacate counts off a limited job that was reserved. More of the tube's jobs may be reserved
// then.
func (sh *shard) vacate(t *tube, j *job) {
	s := sh.groupOfJob(j).key
	sh.count(t, s, s.reserved-1, s.reserved)
}

// count sets how many jobs of a key are reserved, which closes or opens the group with that
// limit.
func (sh *shard) count(t *tube, s *limitedKey, reserved, limit uint32) {
	g := s.group(limit)
	if g == nil || g.first == 0 {
		s.reserved = reserved
		return
	}
	r, j := g.first, sh.job(g.first)
	sh.stepBack(t, g, j)
	s.reserved = reserved
	sh.stand(t, g, r, j)
}

// movedLimited tells the queue of a limited ready job that its record is at r now.
func (sh *shard) movedLimited(t *tube, r ref, j *job) {
	g := sh.groupOfJob(j)
	switch {
	case g.firstID != j.ID:
		g.rest.Moved(sh.table, j.pri, r, &j.Links)
		return
	case g.open():
		sh.movedCandidate(t, r, j)
	default:
		t.limited.passed.Moved(r, &j.Links)
	}
	g.first = r
}

// firstReady is the first of all ready jobs, those that are passed over included, 0 if
// there is none.
func (t *tube) firstReady() ref {
	r := t.next()
	if t.limited == nil || t.limited.passed.Len() == 0 {
		return r
	}
	p := t.limited.passed.First().Ref
	if r == 0 || t.shard.job(p).sooner(t.shard.job(r)) {
		return p
	}
	return r
}

// allReady yields all ready jobs, those that are passed over included, in no order.
func (t *tube) allReady() iter.Seq[ref] {
	return func(yield func(ref) bool) {
		for r := range t.ready.All(t.shard.table) {
			if !yield(r) {
				return
			}
		}
		for r := range t.withheld() {
			if !yield(r) {
				return
			}
		}
	}
}

// withheld yields the ready jobs that do not stand in the tube's order, in no order.
func (t *tube) withheld() iter.Seq[ref] {
	return func(yield func(ref) bool) {
		table, all := t.shard.table, true
		each := func(some iter.Seq[ref]) {
			some(func(r ref) bool {
				all = all && yield(r)
				return all
			})
		}
		if l := t.limited; l != nil {
			each(l.passed.All())
			for g := l.crowded; g != nil && all; g = g.next {
				each(g.rest.All(table))
			}
		}
		if f := t.fair; f != nil {
			for i := 0; i < f.line.Len() && all; i++ {
				each(f.line.At(i).key.candidates.All(table))
			}
		}
	}
}
