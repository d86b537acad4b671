package shard

import (
	"slices"

	"trellis/engine/internal/clock"
)

// limits checks the limited keys of a tube.
func (c *census) limits(sh *shard, t *tube) {
	l := t.limited
	if l.keys.Len() == 0 {
		c.failf("%s has room for limited keys and none", t.name)
	}
	passed, crowded := map[ref]bool{}, 0
	listed := map[*group]bool{}
	var last *group
	for g := l.crowded; g != nil; last, g = g, g.next {
		listed[g] = true
		if g.prev != last {
			c.failf("the groups of %s with further jobs are linked wrongly", t.name)
		}
	}
	for r := range l.passed.All() {
		passed[r] = true
	}
	c.check(l.passed.Check(sh.table), "passed over jobs of "+t.name)
	first := map[*group]ref{} // as found by looking at all jobs
	jobs := map[*group]int{}
	held := map[*limitedKey]uint32{}
	ofKey := map[*limitedKey]int{}
	for k := range sh.keyed.All() {
		r, j := sh.find(k.id)
		if j == nil || k.group == nil || k.group.key.tube != t {
			continue
		}
		g := k.group
		jobs[g]++
		ofKey[g.key]++
		switch j.state {
		case ready:
			if f := first[g]; f == 0 || j.sooner(sh.job(f)) {
				first[g] = r
			}
		case reserved:
			held[g.key]++
		}
	}
	n := 0
	c.check(l.keys.Check(), "limited keys of "+t.name)
	for s := range l.keys.All() {
		key := s.key
		if t.limitedKeyOf(key) != s || s.tube != t || s.reserved != held[s] || s.jobs != ofKey[s] {
			c.failf("key %s of %s: %d of %d jobs are reserved, counts %d of %d", key, t.name, held[s], ofKey[s], s.reserved, s.jobs)
		}
		for _, g := range s.allGroups() {
			if g.limit == 0 || g.jobs != jobs[g] || g.jobs == 0 || g.key != s {
				c.failf("key %s of %s: %d jobs have limit %d, counts %d", key, t.name, jobs[g], g.limit, g.jobs)
			}
			if g.first != first[g] {
				c.failf("key %s of %s: the first job with limit %d is %d, should be %d", key, t.name, g.limit, g.first, first[g])
				continue
			}
			c.check(g.rest.Check(sh.table, func(r ref) uint32 { return sh.job(r).pri }), "jobs of key "+key)
			if g.rest.Empty() == listed[g] || listed[g] && g.first == 0 {
				c.failf("key %s of %s: further jobs with limit %d are listed: %v, and the first is %d", key, t.name, g.limit, listed[g], g.first)
			}
			if listed[g] {
				crowded++
			}
			if g.first == 0 {
				continue
			}
			if g.firstID != sh.job(g.first).ID {
				c.failf("key %s of %s: job %d is first as %d", key, t.name, sh.job(g.first).ID, g.firstID)
			}
			if passed[g.first] != (s.reserved >= g.limit) {
				c.failf("key %s of %s: %d reserved; the first job with limit %d is passed over: %v", key, t.name, s.reserved, g.limit, passed[g.first])
			}
			if passed[g.first] {
				n++
			}
		}
	}
	if n != len(passed) || crowded != len(listed) {
		c.failf("%s: %d passed over, want %d; %d crowded, want %d", t.name, len(passed), n, len(listed), crowded)
	}
}

func (s *limitedKey) allGroups() (list []*group) {
	if s.only != nil {
		list = append(list, s.only)
	}
	if s.others != nil {
		list = slices.AppendSeq(list, s.others.All())
	}
	return list
}

// keys checks all keys of a shard, and its tombstones.
func (c *census) keys(sh *shard, want *jobCounts) {
	d := &sh.tombstones
	c.check(d.heap.Check(sh.table), "tombstones")
	next := clock.MaxTime
	for i := range d.heap.Len() {
		e := d.heap.At(i)
		j := c.visit(sh, e.Ref, tombstone, "tombstones")
		if j.tube != noTube || j.size != 0 || j.counters != 0 || j.flags != hasKeys {
			c.failf("tombstone %d is %+v", j.ID, j)
		}
		next = min(next, clock.TimeOf(e.Key))
		want.in[tombstone]++
	}
	if next != clock.MaxTime {
		c.covered(&d.timer, next, "tombstones")
	} else if d.timer.Scheduled() {
		c.timers[&d.timer] = "tombstones"
	}

	c.expiries(sh)
	keyed, unique, tombstones, limited, fair := 0, 0, 0, 0, 0
	for p := range c.visited {
		if p.Shard() != sh.number {
			continue
		}
		j := sh.job(p.Ref())
		if j.flags == 0 {
			continue
		}
		keyed++
		k := sh.keyedOf(j)
		if k == nil || k.id != j.ID || j.flags&hasKeys == 0 || (j.flags&isLimited != 0) != (k.group != nil) || (j.flags&isFair != 0) != (k.terms != nil && k.terms.fair != nil) {
			c.failf("job %d has flags %b and keys %+v", j.ID, j.flags, k)
			continue
		}
		if k.unique == "" {
			if k.space != nil {
				c.failf("job %d has no unique key, but %+v", j.ID, k)
			}
			continue
		}
		if holds := sh.holder(k.space.name, k.unique) == k; holds == k.lost {
			c.failf("job %d holds its key: %v, has lost it: %v", j.ID, holds, k.lost)
		}
		switch {
		case k.lost:
		case j.state == tombstone:
			tombstones++
		default:
			unique++
			if k.space.name != sh.tubes[j.tube].name {
				c.failf("job %d of %s has a key of %s", j.ID, sh.tubes[j.tube].name, k.space.name)
			}
		}
	}
	for _, t := range sh.byName {
		if t.limited != nil {
			limited += t.limited.keys.Len()
		}
		if t.fair != nil {
			fair += t.fair.keys.Len()
		}
	}
	c.check(sh.keyed.Check(), "jobs with keys")
	c.check(sh.holders.Check(), "holders of unique keys")
	holders := map[*keyspace]int{}
	for k := range sh.holders.All() {
		holders[k.space]++
	}
	held, listed := 0, 0
	for s := range sh.keyspaces.All() {
		name := s.name
		held += s.holders
		n := 0
		var last *keyedJob
		for k := s.first; k != nil; last, k = k, k.next {
			n++
			if k.prev != last {
				c.failf("the tombstones of %s are linked wrongly", name)
			}
		}
		if n != s.tombstones || s.last != last || s.name != name || s.holders == 0 || s.holders != holders[s] {
			c.failf("%s counts %d tombstones, has %d", name, s.tombstones, n)
		}
		listed += n
	}
	n := &sh.totals
	if keyed != sh.keyed.Len() || held != unique+tombstones || held != sh.holders.Len() || listed != tombstones ||
		n.unique != unique || n.tombstones != tombstones || n.limited != limited || n.fair != fair {
		c.failf("shard %d counts %d unique keys, %d tombstones, %d limited and %d fair keys and %d jobs with keys; has %d, %d, %d, %d and %d; %d keys are held, %d tombstones listed",
			sh.number, n.unique, n.tombstones, n.limited, n.fair, sh.keyed.Len(), unique, tombstones, limited, fair, keyed, held, listed)
	}
}

// expiries checks the heap of expiries of a shard, and that those stand there who have to.
func (c *census) expiries(sh *shard) {
	x := &sh.expiries
	for i := range x.heap.Len() {
		e := x.heap.At(i)
		j := sh.job(sh.shared.ids.Get(e.k.id).Ref())
		if e.k != sh.keyedOf(j) || int(e.k.place) != i+1 {
			c.failf("entry %d of the expiries is job %d at %d", i, e.k.id, e.k.place)
		}
	}
	if err := x.heap.Check(); err != nil {
		c.failf("expiries: %w", err)
	}
	if x.heap.Len() > 0 {
		c.covered(&x.timer, x.heap.At(0).at, "expiries")
	} else if x.timer.Scheduled() {
		c.timers[&x.timer] = "expiries"
	}
	standing := 0
	for k := range sh.keyed.All() {
		_, j := sh.find(k.id)
		if j == nil {
			continue // found elsewhere
		}
		if has := k.terms != nil && k.terms.Expires > 0 && !sh.shared.cfg.Stock; has != (j.flags&expires != 0) {
			c.failf("job %d has flags %b and terms %+v", j.ID, j.flags, k.terms)
		}
		if k.place != 0 {
			standing++
		}
		switch {
		case j.flags&expires == 0 || sh.kicked(j):
			if k.place != 0 {
				c.failf("job %d is to expire", j.ID)
			}
		case k.place == 0 && j.state != reserved && j.state != buried:
			c.failf("job %d, which is %v, is not to expire", j.ID, j.state)
		}
	}
	if standing != x.heap.Len() {
		c.failf("%d jobs stand among %d expiries", standing, x.heap.Len())
	}
}

// keyedJob is keyed, where a variable has that name.
type keyedJob = keyed

// countKeys checks the number of all keys.
func (c *census) countKeys() {
	n := 0
	for _, sh := range c.engine.shards {
		n += sh.totals.unique + sh.totals.tombstones + sh.totals.limited + sh.totals.fair
	}
	groups, _ := c.engine.groups.Size()
	n += groups
	if got := c.engine.usage.keys.Load(); got != int64(n) {
		c.failf("%d keys are counted, there are %d", got, n)
	}
}

// fair checks the fair keys of a tube.
func (c *census) fair(sh *shard, t *tube) {
	f := t.fair
	c.check(f.keys.Check(), "fair keys of "+t.name)
	jobs, held := map[*fairKey]uint32{}, map[*fairKey]uint32{}
	for k := range sh.keyed.All() {
		if _, j := sh.find(k.id); j != nil && j.flags&isFair != 0 && j.tube == t.index {
			jobs[k.terms.fair]++
			if j.state == reserved {
				held[k.terms.fair]++
			}
		}
	}
	if k := f.last; k != nil && (t.fairKeyOf(k.key) != nil || k.jobs > 0 || k.next <= f.lap) {
		c.failf("%s remembers the key %s", t.name, k.key)
	}
	all, reserved, waiting := 0, 0, 0
	for k := range f.keys.All() {
		all += int(k.jobs)
		reserved += int(k.reserved)
		if t.fairKeyOf(k.key) != k || k.jobs == 0 || k.jobs != jobs[k] || k.reserved != held[k] {
			c.failf("key %s of %s: %d of %d jobs are reserved, counts %d of %d", k.key, t.name, held[k], jobs[k], k.reserved, k.jobs)
		}
		c.check(k.candidates.Check(sh.table, func(r ref) uint32 { return sh.job(r).pri }), "candidates of "+k.key)
		for r := range k.candidates.All(sh.table) {
			if j := sh.job(r); j.state != ready || sh.fairKeyOfJob(j) != k || sh.passedOver(j) {
				c.failf("job %d is no candidate of %s", j.ID, k.key)
			}
		}
		if k.candidates.Empty() {
			continue
		}
		waiting++
		j := sh.job(k.candidates.First(sh.table))
		if want, got := (standing{rankOf(j.pri, int(k.reserved)), k.now, j.ID, k}), *f.line.At(k.index); got != want {
			c.failf("%s stands in line as %+v, should as %+v", k.key, got, want)
		}
	}
	if all != f.jobs || reserved != f.reserved || waiting != f.line.Len() {
		c.failf("%s: %d jobs have fair keys, %d reserved, counts %d and %d; %d keys wait, %d stand in line", t.name, all, reserved, f.jobs, f.reserved, waiting, f.line.Len())
	}
	if err := f.line.Check(); err != nil {
		c.failf("the line of %s: %w", t.name, err)
	}
}
