package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/fifo"
	"trellis/engine/internal/groups"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
	"trellis/engine/stats"
)

// A job that was put with the tag grp is a member of a group from its put until its end, in
// whatever tube and state it is. A job that is put with the tag aft while the group is not
// complete is held until it is. What all shards count of groups is in package groups,
// and so are the lists of what a shard holds.
//
// A held job waits for its group to become complete. It stands in a queue of its tube, by id, and
// in a list of its shard, which has all that are held for the same group.
//
// Who makes a group complete has the lock of one shard or another, and does not know whether it
// may wait for those of the shards that hold jobs for the group. It notes the firing
// (Tx.firings), and fires them when it holds no lock any more. So what it does next, it does
// after that.

// join makes a new job a member of the group that its terms name, which may have to be made.
func (sh *shard) join(x *terms) (made bool) {
	g, made := sh.shared.groups.Join(x.Group)
	if made {
		sh.countGroup(g)
	}
	x.group = g
	x.Group = g.Name // one text for all members
	return made
}

// holdBack makes a job wait for the group that its terms name, unless the group is complete. A job
// that is held on record waits in any case.
func (sh *shard) holdBack(id uint64, x *terms, onRecord bool) (held bool) {
	h, made := sh.shared.groups.Hold(id, x.After, groups.ConditionOf(x.Settled), onRecord)
	if h == nil {
		return false
	}
	if made {
		sh.countGroup(h.Group)
	}
	sh.by.countBytes(groups.HeldFootprint)
	x.held = h
	return true
}

// countGroup counts a group that has come into being.
func (sh *shard) countGroup(g *groups.Group) {
	sh.by.countBytes(groups.Footprint(g.Name))
	sh.shared.usage.keys.Add(1)
}

// changeGroup changes the counts of a group. If it becomes complete by that, the goroutine that has
// the lock fires what is held for it when it has none.
func (sh *shard) changeGroup(g *groups.Group, by groups.Change) {
	f, ended := sh.shared.groups.Count(g, by, !sh.fed && !sh.shared.cfg.Stock)
	if ended {
		sh.by.refundBytes(groups.Footprint(g.Name))
		sh.shared.usage.keys.Add(-1)
	}
	if f.Group != nil {
		sh.by.firings = append(sh.by.firings, f)
	}
}

// regroup tells the groups of a job what it is now.
func (sh *shard) regroup(j *job) {
	x := sh.keyedOf(j).terms
	if is := j.state == buried; x.group != nil && is != x.buried {
		x.buried = is
		by := groups.Change{Buried: 1}
		if !is {
			by.Buried = -1
		}
		sh.changeGroup(x.group, by)
	}
	if x.held != nil && j.state != held {
		sh.letGo(x)
	}
}

// letGo counts a job off that its group has held.
func (sh *shard) letGo(x *terms) {
	var by groups.Change
	by.Held[x.held.Condition] = -1
	sh.changeGroup(x.held.Group, by)
	sh.by.refundBytes(groups.HeldFootprint)
	x.held = nil
}

// leave ends the part in groups of a job that has ended.
func (sh *shard) leave(x *terms) {
	if x.held != nil {
		sh.letGo(x)
	}
	if x.group == nil {
		return
	}
	by := groups.Change{Members: -1}
	if x.buried {
		by.Buried = -1
	}
	sh.changeGroup(x.group, by)
	x.group = nil
}

// pushHeld adds a job that becomes held to its tube and to its list.
func (sh *shard) pushHeld(t *tube, r ref, j *job) {
	x := sh.keyedOf(j).terms
	if x.held == nil {
		sh.holdBack(j.ID, x, true)
	}
	if t.held == nil {
		t.held = new(queue.Heap)
	}
	t.held.Push(sh.table, clock.MaxTime.Key(), r, &j.Links)
	made, f := sh.shared.groups.Enlist(&sh.held, x.held, sh.self)
	if made {
		sh.by.countBytes(groups.ListFootprint)
	}
	if f.Group != nil {
		sh.by.firings = append(sh.by.firings, f)
	}
}

// removeHeld takes a held job out of its tube's queue and its list.
func (sh *shard) removeHeld(t *tube, j *job) {
	if t.held.Remove(sh.table, &j.Links); t.held.Len() == 0 {
		t.held = nil
	}
	if sh.shared.groups.Delist(&sh.held, sh.keyedOf(j).terms.held, sh.self) {
		sh.by.refundBytes(groups.ListFootprint)
	}
}

// fireGroups fires what is held for the groups that a goroutine has made complete. It holds no lock.
func (c *Tx) fireGroups(e *Shards, now clock.Time) {
	if c.firing {
		return
	}
	c.firing = true
	for len(c.firings) > 0 {
		f := c.firings[0]
		c.firings = c.firings[1:]
		for cond, in := range f.In {
			for _, sh := range e.shards {
				if in&sh.self == 0 {
					continue
				}
				sh.lock(c, now)
				if sh.fireHeld(f.Group, groups.Condition(cond)) && !sh.still {
					sh.fire()
				}
				sh.unlock(c)
			}
		}
	}
	c.firings, c.firing = nil, false
}

// firings are the lists of a shard of which jobs are to be fired. The shard's lock guards it.
type firings struct {
	shard *shard
	timer queue.Timer
	lists fifo.Queue[*groups.List]
}

// fireHeld queues the jobs to be fired that the shard has held for a group since before its present epoch, as
// soon as it does what is due. It returns false if it holds none.
func (sh *shard) fireHeld(g *groups.Group, c groups.Condition) bool {
	l := sh.held.Find(g, c)
	if l == nil {
		return false
	}
	sh.shared.groups.Fire(l)
	sh.fireList(l)
	return true
}

// fireAllHeld is fireHeld for all groups.
func (sh *shard) fireAllHeld() {
	for l := range sh.held.All() {
		if sh.shared.groups.Fire(l) {
			sh.fireList(l)
		}
	}
}

// fireList queues the jobs of a list that are to be fired.
func (sh *shard) fireList(l *groups.List) {
	if l.Begin() {
		sh.firings.lists.Push(l)
	}
	sh.arm(&sh.firings.timer, sh.now)
}

// firingMoves is what a job that is fired takes of shard.moves: it is recorded.
const firingMoves = 2

// firingRetry is how long jobs wait that are to be fired when that cannot be recorded.
const firingRetry = clock.Second / 100

// Expire fires jobs. If that cannot be recorded they stay held, which is the safe side.
func (f *firings) Expire(now int64) (done bool) {
	sh := f.shard
	for !f.lists.Empty() {
		l := f.lists.First()
		for id, due := l.First(); due; id, due = l.First() {
			if sh.moves -= firingMoves - 1; !sh.mayMove() {
				return false
			}
			switch err := sh.fireJob(id); {
			case err == nil:
			case errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrClosed):
				return true
			default:
				sh.arm(&f.timer, clock.Time(now)+firingRetry)
				return true
			}
		}
		l.End()
		f.lists.Pop()
	}
	return true
}

// fireJob records that a held job begins its delay, or is ready, and makes it so.
func (sh *shard) fireJob(id uint64) error {
	r, j := sh.find(id)
	ch := sh.present(j)
	if ch.to = ready; ch.counters.delay > 0 {
		ch.to, ch.at = delayed, sh.now+clock.Seconds(ch.counters.delay)
	}
	var nobody reply.Output
	if err := sh.change(r, j, &ch, &nobody); err != nil {
		return err
	}
	sh.totals.fired++
	sh.dispatch(sh.tubes[j.tube])
	return nil
}

// GroupNamed returns the counts of the group of that name, which are 0 if there is none.
func (e *Shards) GroupNamed(name string, out *reply.Output) stats.Group {
	n := e.groups.Look(name)
	e.notFound(out) // members and held jobs have come and gone in any shard
	return n
}
