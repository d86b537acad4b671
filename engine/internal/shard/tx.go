package shard

import (
	"math/bits"
	"sync/atomic"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/groups"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/quota"
	"trellis/engine/internal/reply"
)

// A Tx is how a goroutine works with shards: each operation locks those that it needs, does all that
// belongs to it, and unlocks them, which hands over jobs, wakes loops and fires groups. One Tx serves
// for one operation after the other. A Tx without a purse is that of a goroutine which only looks, and
// pays nothing.
type Tx struct {
	shared *Shards
	held   shardSet // the shards that are locked
	wakers []rouser // to be called when the last lock is released
	budget *int     // what is left of the loop's round, in units of cost; nil for who only looks
	*purse          // of the loop; nil for who only looks

	firings []groups.Firing // of groups that it has made complete, to be fired when the last lock is released
	firing  bool            // it does so now

	stopping bool // the server ends: clients that leave have not failed at their jobs
}

// A purse is what a loop has in hand for what its sessions do in shards. The loop's goroutine owns it,
// but for what says otherwise.
type purse struct {
	quota quota.Quota
	ids   ids.Block

	// ahead counts, for each of two eras, the puts that are on record and not jobs yet: see Walk.
	// The loop changes it, anybody may read it.
	ahead [2]atomic.Int32

	keys putKeys     // of the put that is executed
	puts []*Incoming // memory for puts that are not finished

	loop     rouser               // wakes the loop
	closings map[*Client]*closing // of closed clients that have something left to give back
	listEnds map[*Client]listEnd  // where the last list-jobs of each client that sent one ended
}

// A rouser wakes a loop that sleeps in its poll.
type rouser interface{ Wake() }

// Begin makes c, which is zero, the Tx of a loop whose operations take their cost off the budget. Without a budget it
// is that of a goroutine which only looks.
func (c *Tx) Begin(e *Shards, budget *int, loop rouser) {
	if c.shared = e; budget == nil {
		return
	}
	c.budget, c.purse = budget, &purse{loop: loop}
	e.memory.Open(&c.quota)
	c.ids.Index = &e.ids
	e.pursesMu.Lock()
	defer e.pursesMu.Unlock()
	e.purses = append(e.purses, c.purse)
}

// allPurses are those of the loops that there are.
func (e *Shards) allPurses() []*purse {
	e.pursesMu.Lock()
	defer e.pursesMu.Unlock()
	return e.purses[:len(e.purses):len(e.purses)]
}

// Open reports whether the goroutine is inside an operation.
func (c *Tx) Open() bool { return c.held != 0 }

// wakeOnce has w woken when the operation ends, unless that is what it has had woken last.
func (c *Tx) wakeOnce(w rouser) {
	if n := len(c.wakers); n == 0 || c.wakers[n-1] != w {
		c.wakers = append(c.wakers, w)
	}
}

// WakeAtEnd wakes the loop of another Tx when the operation ends.
func (c *Tx) WakeAtEnd(of *Tx) { c.wakers = append(c.wakers, of.loop) }

// EndRound gives back ids that no job got in a round.
func (c *Tx) EndRound() { c.ids.GiveBack() }

// lockCost is what it costs to take a lock and look.
const lockCost = 1

// spend takes a cost off the budget.
func (c *Tx) spend(cost int) {
	if c.budget != nil {
		*c.budget -= cost
	}
}

// left reports whether there is something left of the budget.
func (c *Tx) left() bool { return *c.budget > 0 }

// released fires groups and wakes loops, after the last lock was released.
func (c *Tx) released(e *Shards, now clock.Time) {
	if len(c.firings) > 0 {
		c.fireGroups(e, now)
	}
	for i, w := range c.wakers {
		c.wakers[i] = nil
		w.Wake()
	}
	c.wakers = c.wakers[:0]
}

// lockAll takes the locks of a set of shards, in order.
func (c *Tx) lockAll(set shardSet, now clock.Time) {
	for ; set != 0; set &= set - 1 {
		c.shared.shards[bits.TrailingZeros16(uint16(set))].lock(c, now)
	}
}

func (c *Tx) unlockAll(set shardSet) {
	for ; set != 0; set &= set - 1 {
		c.shared.shards[bits.TrailingZeros16(uint16(set))].unlock(c)
	}
}

// lockTube locks the shard of the tube of that name and returns the tube. If there is none, it holds no
// lock, t is nil, and out depends on the last end in the shard.
func (c *Tx) lockTube(now clock.Time, name []byte, out *reply.Output) (sh *shard, t *tube) {
	sh = c.shared.shardFor(name)
	sh.lock(c, now)
	if t = sh.byName[string(name)]; t == nil {
		out.DependOn(sh.dependsOnEnds())
		sh.unlock(c)
	}
	return sh, t
}

// lockTubeOr is lockTube, and for nil locks the shard of the tube that the client uses.
func (c *Tx) lockTubeOr(now clock.Time, name []byte, cl *Client, out *reply.Output) (sh *shard, t *tube) {
	if name != nil {
		return c.lockTube(now, name, out)
	}
	t = cl.used
	t.shard.lock(c, now)
	return t.shard, t
}

// lockReserved is Shards.lockJob for a job that a client works on. Others are not found: out depends then on what says
// so.
func (c *Tx) lockReserved(now clock.Time, id uint64, by *Client, out *reply.Output) (sh *shard, r ref, j *job) {
	sh, r, j = c.shared.lockJob(c, id, now)
	switch {
	case sh == nil:
		_ = c.shared.notFound(out)
	case !sh.worksOn(by, j):
		_ = c.refuse(sh, out)
		return nil, 0, nil
	}
	return sh, r, j
}

// refuse releases all locks when the operation may not be done to a job of a shard.
func (c *Tx) refuse(sh *shard, out *reply.Output) error {
	c.unlockAll(c.held)
	out.DependOn(sh.dependsOnEnds())
	return reply.ErrNotFound
}

// lockJobWith locks the shard of a job, and all that are in set, and returns the job and what it has
// locked. If there is no such job, it holds no lock, sh is nil, and out depends on the last ends in all shards.
func (c *Tx) lockJobWith(
	set shardSet, now clock.Time, id uint64, out *reply.Output,
) (sh *shard, r ref, j *job, locked shardSet) {
	for {
		p := c.shared.ids.Get(id)
		if p == 0 {
			_ = c.shared.notFound(out)
			return nil, 0, nil, 0
		}
		sh = c.shared.shards[p.Shard()]
		locked = set | sh.self
		c.lockAll(locked, now)
		if r, j = sh.find(id); j != nil {
			return sh, r, j, locked
		}
		c.unlockAll(locked) // it has gone, or moved
	}
}

// notFound ends an operation on a job that is in no shard: out depends on the last ends in all of them.
func (e *Shards) notFound(out *reply.Output) error {
	if e.log.Journal != nil {
		for _, sh := range e.shards {
			out.DependOn(sh.dependsOnEnds())
		}
	}
	return reply.ErrNotFound
}

// lockJob takes the lock of the shard in which a job lives and returns the job.
// Without such a job it takes no lock and sh is nil.
func (e *Shards) lockJob(c *Tx, id uint64, now clock.Time) (sh *shard, r ref, j *job) {
	return e.lockRecord(c, id, now, false)
}

// lockRecord is lockJob, which finds tombstones as well if it is to.
func (e *Shards) lockRecord(c *Tx, id uint64, now clock.Time, tombstones bool) (sh *shard, r ref, j *job) {
	entry := e.ids.Entry(id)
	if entry == nil {
		return nil, 0, nil
	}
	for {
		p := ids.Place(entry.Load())
		if p == 0 {
			return nil, 0, nil
		}
		sh = e.shards[p.Shard()]
		sh.lock(c, now)
		if ids.Place(entry.Load()) != p {
			sh.unlock(c) // the job has gone, or its record has moved
			continue
		}
		if j = sh.job(p.Ref()); j.state != tombstone || tombstones {
			return sh, p.Ref(), j
		}
		sh.unlock(c)
		return nil, 0, nil
	}
}

// Hides returns the name of the tube of a job that is not permitted, which ends the operation as one on a job that is
// in no shard. It returns "" if the job is permitted, or there is none.
func (c *Tx) Hides(now clock.Time, id uint64, permits func(tube string) bool, out *reply.Output) (tube string) {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return ""
	}
	tube = sh.tubes[j.tube].name
	sh.unlock(c)
	if permits(tube) {
		return ""
	}
	_ = c.shared.notFound(out)
	return tube
}

// Hold stops time, or lets it go on. While it stands still no deadline is met, whoever looks, so that
// nothing is recorded but by commands. What is due is done when it goes on. Any goroutine may call it,
// not two at a time.
func (e *Shards) Hold(on bool) {
	for _, sh := range e.shards {
		sh.mu.Lock()
		sh.still = on
		sh.setAlarm()
		sh.mu.Unlock()
	}
}

// Probe takes the lock of each shard once. It returns when it has had all of them, so
// that one which never comes free keeps it for ever. Any goroutine may call it; it
// changes nothing.
func (e *Shards) Probe() {
	for _, sh := range e.shards {
		sh.mu.Lock()
		//lint:ignore SA2001 to have had the lock is all that is wanted
		sh.mu.Unlock()
	}
}

// AlarmBy sets what asks a loop for MeetDeadlines of the shard of that number, when something is due there.
func (e *Shards) AlarmBy(number int, alarm func(clock.Time)) {
	sh := e.shards[number]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.alarm, sh.armed = alarm, clock.MaxTime
	sh.setAlarm()
}

// MeetDeadlines does what is due in a shard, for which its loop was asked.
func (c *Tx) MeetDeadlines(number int, now clock.Time) {
	sh := c.shared.shards[number]
	sh.lock(c, now)
	c.spend(lockCost)
	sh.armed = clock.MaxTime
	sh.setAlarm()
	sh.unlock(c)
}
