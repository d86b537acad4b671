package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/groups"
)

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
		if j.at() != clock.MaxTime {
			c.failf("held job %d has a time, %d", j.ID, j.at())
		}
		want.in[held]++
	}
}

// groups counts all groups, and the jobs that are held for them, by looking at all jobs.
func (c *census) groups() {
	e := c.engine
	want := map[string]*groups.Counts{}
	of := func(name string) *groups.Counts {
		if want[name] == nil {
			want[name] = new(groups.Counts)
		}
		return want[name]
	}
	type listed struct {
		shard     *shard
		group     string
		condition groups.Condition
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
				n.Members++
				if j.state == buried {
					n.Buried++
				}
				if x.group == nil || x.group.Name != x.Group || x.buried != (j.state == buried) {
					c.failf("job %d is %v and has terms %+v", j.ID, j.state, x)
				}
			}
			if (j.state == held) != (x.held != nil) {
				c.failf("job %d is %v and has terms %+v", j.ID, j.state, x)
			}
			if h := x.held; h != nil {
				n := of(x.After)
				n.Held[h.Condition]++
				n.In[h.Condition] |= sh.self
				lists[listed{sh, x.After, h.Condition}]++
				if h.ID != j.ID || h.Group.Name != x.After || h.Condition != groups.ConditionOf(x.Settled) ||
					!sh.held.Has(h) {
					c.failf("job %d is held as %+v", j.ID, h)
				}
			}
		}
	}
	n, waits := 0, 0
	for _, err := range e.groups.Check(func(name string, got groups.Counts) {
		n++
		if w := want[name]; w == nil {
			c.failf("group %s counts %+v, and has nothing", name, got)
		} else if got != *w {
			c.failf("group %s counts %+v, has %+v", name, got, *w)
		}
	}) {
		c.check(err, "groups")
	}
	if n != len(want) {
		c.failf("there are %d groups, should be %d", n, len(want))
	}
	for _, sh := range e.shards {
		for _, err := range sh.held.Check(func(group string, condition groups.Condition, jobs int) {
			waits++
			if m := lists[listed{sh, group, condition}]; m != jobs || m == 0 {
				c.failf("shard %d lists %d jobs that are held for %s, has %d", sh.number, jobs, group, m)
			}
		}) {
			c.check(err, "lists of held jobs")
		}
	}
	if waits != len(lists) {
		c.failf("%d lists of held jobs, should be %d", waits, len(lists))
	}
}
