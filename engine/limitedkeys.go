package engine

import (
	"iter"
	"unsafe"

	"trellis/engine/internal/queue"
)

// A job with a limited key may be reserved while fewer jobs of its key in its tube are than
// its limit says. While it may not, it is passed over: it is ready to all who look, and
// costs nothing when others are reserved.
//
// The ready jobs of one key and one limit are a group. Only the first of a group stands in
// the order of the tube's ready jobs, and only while the group is open. So a reservation,
// or the end of one, moves at most one job per group that it closes or opens, and closes
// or opens at most one group: that whose limit is the number of reserved jobs.

// limitedKeys are the limited keys of a tube. The shard's lock guards them.
type limitedKeys struct {
	keys    hashTable[limitedKey, byLimitedKey]
	passed  queue.Heap // the first jobs of groups that are closed, by priority
	crowded []*group   // those with further jobs
}

// limitedKey exists while a job of the tube has it.
type limitedKey struct {
	tube     *tube
	key      string
	jobs     int    // that have it
	reserved uint32 // of them

	// The groups by their limits. Most keys have one.
	only   *group
	others map[uint32]*group

	next *limitedKey // in a bucket of limitedKeys.keys
}

// byLimitedKey finds limited keys of a tube.
type byLimitedKey struct{}

func (byLimitedKey) hash(s *limitedKey) uint64       { return hashOfKey(s.key) }
func (byLimitedKey) next(s *limitedKey) **limitedKey { return &s.next }

// limitedKeyFootprint is the memory that a limited key is counted for, beside its groups: a
// record, not more than two buckets, and the text.
func limitedKeyFootprint(key string) int64 {
	return int64(unsafe.Sizeof(limitedKey{})+2*unsafe.Sizeof((*limitedKey)(nil))) + textFootprint(key)
}

// groupMemory is what a group is counted for.
const groupMemory = int64(unsafe.Sizeof(group{}))

// group is the jobs of one key and one limit. All of its ready jobs are withheld from the
// tube's order of ready jobs, but for the first while it is open.
type group struct {
	key     *limitedKey
	limit   uint32
	jobs    int        // in any state
	first   ref        // of the ready ones; 0 if there is none
	firstID uint64     // its id
	rest    queue.Heap // the others, by priority
	place   int        // in limitedKeys.crowded, while rest has some
}

// open tells whether a job of the group may be reserved.
func (g *group) open() bool { return g.key.reserved < g.limit }

// limitedKeyOf returns a limited key, nil if no job of the tube has it.
func (t *tube) limitedKeyOf(key string) *limitedKey {
	if t.limited == nil {
		return nil
	}
	for s := t.limited.keys.first(hashOfKey(key)); s != nil; s = s.next {
		if s.key == key {
			return s
		}
	}
	return nil
}

// groupOf adds a job of the tube t to a group.
func (sh *shard) groupOf(t *tube, key string, limit uint32) *group {
	if t.limited == nil {
		t.limited = new(limitedKeys)
	}
	s := t.limitedKeyOf(key)
	if s == nil {
		s = &limitedKey{tube: t, key: key}
		t.limited.keys.insert(s)
		sh.engine.countBytes(sh.by, limitedKeyFootprint(key))
		sh.totals.limited++
		sh.engine.usage.keys.Add(1)
	}
	g := s.group(limit)
	if g == nil {
		g = &group{key: s, limit: limit}
		s.add(g)
		sh.engine.countBytes(sh.by, groupMemory)
	}
	s.jobs++
	g.jobs++
	return g
}

// leave takes a job off its group.
func (g *group) leave() {
	s := g.key
	t := s.tube
	sh := t.shard
	s.jobs--
	g.jobs--
	if g.jobs == 0 {
		s.remove(g)
		sh.engine.refundBytes(sh.by, groupMemory)
	}
	if s.jobs == 0 {
		t.limited.keys.remove(s)
		sh.engine.refundBytes(sh.by, limitedKeyFootprint(s.key))
		if t.limited.keys.count == 0 {
			t.limited = nil
		}
		sh.totals.limited--
		sh.engine.usage.keys.Add(-1)
	}
}

func (s *limitedKey) group(limit uint32) *group {
	if s.only != nil && s.only.limit == limit {
		return s.only
	}
	return s.others[limit]
}

func (s *limitedKey) add(g *group) {
	if s.only == nil {
		s.only = g
		return
	}
	if s.others == nil {
		s.others = make(map[uint32]*group)
	}
	s.others[g.limit] = g
}

func (s *limitedKey) remove(g *group) {
	if s.only == g {
		s.only = nil
		return
	}
	delete(s.others, g.limit)
}

// groupOfJob returns the group of a job that has one.
func (sh *shard) groupOfJob(j *job) *group { return sh.keyedOf(j).group }

// passedOver tells whether a job must not be reserved.
func (sh *shard) passedOver(j *job) bool { return j.flags&isLimited != 0 && !sh.groupOfJob(j).open() }

// pushLimited adds a limited job that becomes ready.
func (sh *shard) pushLimited(t *tube, r ref, j *job) {
	t.ready.PushWithheld(j.pri, &j.Links)
	g := sh.groupOfJob(j)
	if g.first == 0 {
		sh.stand(t, g, r, j)
		return
	}
	if first := sh.job(g.first); j.sooner(first) {
		sh.stepBack(t, g, first)
		sh.crowd(t, g, g.first, first)
		sh.stand(t, g, r, j)
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
		sh.stepBack(t, g, j)
		g.first, g.firstID = 0, 0
		if g.rest.Len() > 0 {
			r := g.rest.First().Ref
			next := sh.job(r)
			sh.uncrowd(t, g, next)
			sh.stand(t, g, r, next)
		}
	}
	t.ready.RemoveWithheld(j.pri, &j.Links)
}

// stand makes a job the first of its group.
func (sh *shard) stand(t *tube, g *group, r ref, j *job) {
	g.first, g.firstID = r, j.ID
	if g.open() {
		t.ready.Restore(sh.table, j.pri, r, &j.Links)
	} else {
		t.limited.passed.Push(sh.table, uint64(j.pri), r, &j.Links)
	}
}

// stepBack takes the first job of a group out of where stand has put it.
func (sh *shard) stepBack(t *tube, g *group, j *job) {
	if g.open() {
		t.ready.Withhold(sh.table, j.pri, &j.Links)
	} else {
		t.limited.passed.Remove(sh.table, &j.Links)
	}
}

// crowd adds a job to the rest of its group.
func (sh *shard) crowd(t *tube, g *group, r ref, j *job) {
	if g.rest.Len() == 0 {
		g.place = len(t.limited.crowded)
		t.limited.crowded = append(t.limited.crowded, g)
	}
	if l := sh.by.loop; l != nil && g.rest.Full() {
		l.budget -= g.rest.Len() / 8 // where jobs come in turn, many groups grow at the same time
	}
	g.rest.Push(sh.table, uint64(j.pri), r, &j.Links)
}

func (sh *shard) uncrowd(t *tube, g *group, j *job) {
	g.rest.Remove(sh.table, &j.Links)
	if g.rest.Len() > 0 {
		return
	}
	c := t.limited.crowded
	last := len(c) - 1
	c[g.place] = c[last]
	c[g.place].place = g.place
	c[last] = nil
	t.limited.crowded = c[:last]
}

// occupy counts a limited job that becomes reserved.
func (sh *shard) occupy(t *tube, j *job) {
	s := sh.groupOfJob(j).key
	sh.count(t, s, s.reserved+1, s.reserved+1)
}

// vacate counts a limited job off that was reserved. The caller has the jobs that may go now
// dispatched.
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
		g.rest.Moved(r, &j.Links)
		return
	case g.open():
		t.ready.Moved(sh.table, j.pri, r, &j.Links)
	default:
		t.limited.passed.Moved(r, &j.Links)
	}
	g.first = r
}

// firstReady is the first of all ready jobs, those that are passed over included, 0 if
// there is none.
func (t *tube) firstReady() ref {
	r := t.ready.First(t.shard.table)
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
		if t.limited == nil {
			return
		}
		for r := range t.limited.withheld() {
			if !yield(r) {
				return
			}
		}
	}
}

// withheld yields the ready jobs that do not stand in the tube's order.
func (l *limitedKeys) withheld() iter.Seq[ref] {
	return func(yield func(ref) bool) {
		for r := range l.passed.All() {
			if !yield(r) {
				return
			}
		}
		for _, g := range l.crowded {
			for r := range g.rest.All() {
				if !yield(r) {
					return
				}
			}
		}
	}
}
