package shard

import (
	"time"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/stats"
)

// AddTo adds to s what the shards count, and returns s. It takes one lock at a time, each for a moment.
func (c *Tx) AddTo(s *stats.Server, now clock.Time) *stats.Server {
	e := c.shared
	s.Tubes, s.Settings = e.roster.Len(), e.settings.Size()
	s.RefusedMemory = e.memory.Refused()
	s.RefusedBodies = e.usage.refusedBodies.Load()
	s.RefusedTubes = e.usage.refusedTubes.Load()
	s.RefusedWatching = e.usage.refusedWatching.Load()
	s.RefusedKeys = e.usage.refusedKeys.Load()
	s.Groups, s.Blocked = e.groups.Size()
	for _, sh := range e.shards {
		sh.lock(c, now)
		n := &sh.totals
		s.Ready += n.in[ready]
		s.Reserved += n.in[reserved]
		s.Delayed += n.in[delayed] + n.in[held]
		s.Held += n.in[held]
		s.Fired += n.fired
		s.Buried += n.in[buried]
		s.Urgent += n.urgent
		s.Puts += n.puts
		s.Timeouts += n.timeouts
		s.RetriesReleased += n.retries[byRelease]
		s.RetriesTimedOut += n.retries[byTimeOut]
		s.RetriesDisconnected += n.retries[byDisconnect]
		s.DeadLetters += n.deadLetters
		s.ExpiredDeleted += n.expired
		s.ExpiredBuried += n.expiredLetters
		s.UniqueKeys += n.unique
		s.LimitedKeys += n.limited
		s.FairKeys += n.fair
		s.Tombstones += n.tombstones
		s.Duplicates += n.duplicates
		s.ReadyTimes.Add(&n.ready)
		s.Bodies += sh.bodies.Mapped()
		s.Memory += sh.jobs.Mapped() + sh.counters.Mapped() + sh.bodies.Mapped()
		sh.unlock(c)
	}
	return s
}

// Tube returns the numbers of the tube of that name, with the rest of a pause as of now.
func (c *Tx) Tube(now clock.Time, name []byte, out *reply.Output) (n stats.Tube, err error) {
	sh, t := c.lockTube(now, name, out)
	if t == nil {
		return n, reply.ErrNotFound
	}
	out.DependOn(sh.dependsOn(sh.now))
	n = t.snapshot()
	n.PauseLeft = time.Duration(max(0, t.pausedUntil-now))
	sh.unlock(c)
	return n, nil
}

// Blocks returns the group that a job keeps others waiting for because it is buried, and how many
// they are; none if it does not. Any goroutine may call it. It takes the lock of the job's shard for
// a moment.
func (e *Shards) Blocks(now clock.Time, id uint64) (group string, waiting int) {
	c := Tx{shared: e}
	sh, _, j := e.lockJob(&c, id, now)
	if sh == nil {
		return "", 0
	}
	defer sh.unlock(&c)
	if j.state != buried || j.flags == 0 || e.cfg.Stock {
		return "", 0
	}
	x := sh.keyedOf(j).terms
	if x == nil || x.group == nil {
		return "", 0
	}
	if waiting = e.groups.Waiting(x.group); waiting > 0 {
		group = x.group.Name
	}
	return group, waiting
}

// tubeSlice is how many tubes EachTube looks at before it lets others have the shard.
const tubeSlice = 512

// EachTube calls f with a snapshot of every tube, in no order. A tube that is there all the
// while is met exactly once; one that goes and comes back under the same name may be met
// twice. The snapshot is valid during the call of f, which holds no lock and may take its
// time. Any goroutine may call EachTube. It holds one shard's lock at a time, for as long as it
// takes to copy the numbers of some hundred tubes, and needs memory for as many.
func (e *Shards) EachTube(now clock.Time, f func(*stats.Tube)) {
	c := Tx{shared: e}
	slice := make([]stats.Tube, 0, tubeSlice)
	for _, sh := range e.shards {
		for at, more := 0, true; more; at += tubeSlice {
			slice = slice[:0]
			sh.lock(&c, now)
			// Tubes keep their places.
			for _, t := range sh.tubes[min(at, len(sh.tubes)):min(at+tubeSlice, len(sh.tubes))] {
				if t != nil {
					slice = append(slice, t.snapshot())
				}
			}
			more = at+tubeSlice < len(sh.tubes)
			sh.unlock(&c)
			for i := range slice {
				f(&slice[i])
			}
		}
	}
}

func (t *tube) snapshot() stats.Tube {
	now := t.shard.now // no earlier than the starts that are summed up
	var n tubeTotals
	if t.total != nil {
		n = *t.total
	}
	by, left := t.limit()
	return stats.Tube{
		Name:  t.name,
		Ready: t.ready.Len(), Reserved: t.reserved, Delayed: t.countShown(delayed), Held: t.count(held),
		Buried: t.buried.Len(), Orphaned: t.orphaned(),
		Urgent:      t.ready.Urgent(),
		OldestReady: time.Duration(t.ready.Oldest(int64(now))),
		Using:       t.using, Watching: t.watching, Waiting: t.waiting,
		Puts: t.puts, Deletes: t.deletes, Pauses: t.pauses,
		Pause:     time.Duration(clock.Seconds(t.pause)),
		PauseLeft: time.Duration(max(0, t.pausedUntil-now)),
		Keys:      t.keys(),
		LimitedBy: by, LimitedFor: time.Duration(left),
		Reserves: n.reserves, Releases: n.releases, Timeouts: n.timeouts, Buries: n.buries,
		DeadLetters: n.deadLetters, Expired: n.expired, Flushed: n.flushed,
		WaitMicros: n.wait, BusyMicros: n.busy + uint64(t.reserved)*now.Micros(),
	}
}

// keys is the number of keys that jobs and tombstones of the tube's name have.
func (t *tube) keys() int {
	n := int(t.sharedKeys())
	if t.shard.spaces == nil { // nobody uses them
		return n
	}
	if s := t.shard.keyspaceOf(t.name); s != nil {
		n += s.holders
	}
	return n
}
