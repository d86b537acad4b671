package engine

import "reflect"

// held checks the held jobs of a tube.
func (c *census) held(sh *shard, t *tube, want *jobCounts) {
	if t.held == nil {
		return
	}
	in := "held jobs of " + t.name
	c.check(t.held.Check(sh.table), in)
	if t.held.Len() == 0 {
		c.failf("%s has room for held jobs and none", t.name)
	}
	for r := range t.held.All() {
		j := c.visit(sh, r, held, in)
		c.inTube(j, t)
		if j.at() != MaxTime {
			c.failf("held job %d has a time, %d", j.ID, j.at())
		}
		want.in[held]++
	}
}

// groups counts all groups, and the jobs that are held for them, by looking at all jobs.
func (c *census) groups() {
	e := c.engine
	type counts struct {
		members, buried int
		held            [conditions]uint32
		in              [conditions]shardSet
	}
	want := map[string]*counts{}
	of := func(name string) *counts {
		if want[name] == nil {
			want[name] = new(counts)
		}
		return want[name]
	}
	type listed struct {
		shard     *shard
		group     string
		condition condition
	}
	lists := map[listed]int{}
	for _, sh := range e.shards {
		for k := range sh.keyed.All() {
			_, j := sh.find(k.id)
			x := k.terms
			if grouped := x != nil && (x.Group != "" || x.After != ""); grouped != (j.flags&hasGroups != 0) {
				c.failf("job %d has flags %b and terms %+v", j.ID, j.flags, x)
				continue
			} else if !grouped {
				continue
			}
			if x.Group != "" {
				n := of(x.Group)
				n.members++
				if j.state == buried {
					n.buried++
				}
				if x.group == nil || x.group.name != x.Group || x.buried != (j.state == buried) {
					c.failf("job %d is %v and has terms %+v", j.ID, j.state, x)
				}
			}
			if (j.state == held) != (x.held != nil) {
				c.failf("job %d is %v and has terms %+v", j.ID, j.state, x)
			}
			if h := x.held; h != nil {
				n := of(x.After)
				n.held[h.condition]++
				n.in[h.condition] |= sh.self
				lists[listed{sh, x.After, h.condition}]++
				if h.id != j.ID || h.group.name != x.After || h.condition != conditionOf(x.Settled) || h.list == nil ||
					h.list != sh.heldFor(h.group, h.condition) || h.list.jobs[h.index] != h {
					c.failf("job %d is held as %+v", j.ID, h)
				}
			}
		}
	}
	n, waits := 0, 0
	for i := range e.groups.stripes {
		s := &e.groups.stripes[i]
		c.check(s.table.Check(), "groups")
		blocked := 0
		for g := range s.table.All() {
			n++
			got := counts{g.members, g.buried, g.held, g.in}
			w := want[g.name]
			if w == nil || g != s.find(g.name, g.hash) {
				c.failf("group %s counts %+v, and has nothing", g.name, got)
				continue
			}
			if !reflect.DeepEqual(got, *w) {
				c.failf("group %s counts %+v, has %+v", g.name, got, *w)
			}
			if w.members > 0 && w.members == w.buried {
				blocked += int(w.held[noMember])
			}
		}
		if blocked != s.blocked {
			c.failf("%d jobs wait for buried members, %d are counted", blocked, s.blocked)
		}
	}
	if n != len(want) {
		c.failf("there are %d groups, should be %d", n, len(want))
	}
	for _, sh := range e.shards {
		c.check(sh.held.Check(), "lists of held jobs")
		for l := range sh.held.All() {
			waits++
			if m := lists[listed{sh, l.group.name, l.condition}]; m != len(l.jobs) || m == 0 {
				c.failf("shard %d lists %d jobs that are held for %s, has %d", sh.number, len(l.jobs), l.group.name, m)
			}
			for i, h := range l.jobs {
				if i > 0 && l.Less(i, (i-1)/2) {
					c.failf("the jobs that are held for %s are in no order", l.group.name)
				}
				if h.index != i {
					c.failf("job %d stands at %d, knows %d", h.id, i, h.index)
				}
			}
			if l.due() && !l.firing {
				c.failf("jobs that are held for %s are to be fired, and nobody does", l.group.name)
			}
		}
	}
	if waits != len(lists) {
		c.failf("%d lists of held jobs, should be %d", waits, len(lists))
	}
}
