package shard

import (
	"hash/maphash"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/throttle"
)

// DefaultTube always exists.
const DefaultTube = "default"

// tube is a named queue. The shard's lock guards all of it but listed.
type tube struct {
	name  string
	shard *shard
	index uint32 // in shard.tubes
	account.Holding

	ready    queue.Ready
	delayed  queue.Heap  // by due time
	held     *queue.Heap // by id; nil while there is none
	buried   queue.Ordered
	reserved int
	limited  *limitedKeys // nil while no job has a limited key
	fair     *fairKeys    // nil if no job has a fair key, but for a while after the last one has gone

	// The sessions that wait for one of its jobs, longest first.
	firstWaiting, lastWaiting *subscription
	waiting                   int

	using    int // sessions
	watching int // sessions

	shut        clock.Time  // until when it hands out no jobs: see gate
	pausedUntil clock.Time  // 0 when no pause is in force
	pause       uint32      // seconds, as last given, while a pause is in force
	plain       bool        // see classify
	timer       queue.Timer // fires no later than the first delay or the pause ends, or the tube opens for those who wait

	puts, deletes, pauses uint64
	total                 *tubeTotals // nil while there is nothing to count there

	policy  *journal.Policy  // what its setting says, nil if it has none
	orphans []*orphans       // of the reserved jobs, those without a client, by whose they were
	limits  *throttle.Limits // of those, when it hands out jobs; nil if always
	ahead   *readAhead       // nil while no ready job is cold or wanted

	listed int // its place in the roster, whose lock guards it
}

// candidate is the job of the tube that a reserve may take, 0 if there is none.
func (t *tube) candidate() ref {
	if t.isShut() {
		return 0
	}
	return t.next()
}

// jobs is the number of jobs in the tube, in any state.
func (t *tube) jobs() int {
	return t.ready.Len() + t.reserved + t.buried.Len() + t.delayed.Len() + t.count(held)
}

// firstDelay is when the first of the delayed jobs becomes ready, MaxTime if there is
// none.
func (t *tube) firstDelay() clock.Time {
	if t.delayed.Len() == 0 {
		return clock.MaxTime
	}
	return clock.TimeOf(t.delayed.First().Key)
}

// Expire moves what is due from the delayed jobs to the ready ones, and ends
// the pause when its time has come.
func (t *tube) Expire(now int64) (done bool) {
	sh := t.shard
	for t.firstDelay() <= clock.Time(now) {
		if !sh.mayMove() {
			return false
		}
		r := t.delayed.First().Ref
		sh.makeReady(r, sh.job(r))
		sh.dispatch(t)
	}
	if t.pausedUntil != 0 && t.pausedUntil <= clock.Time(now) {
		t.pausedUntil, t.pause = 0, 0
		t.gate()
	}
	sh.dispatch(t)
	t.arm()
	return true
}

// arm sets the tube's timer to its next event, unless it fires before that
// anyway: then Expire finds nothing and arms anew, which is cheaper than moving
// the timer whenever a delayed job comes or goes.
func (t *tube) arm() {
	at := t.firstDelay()
	if t.pausedUntil != 0 {
		at = min(at, t.pausedUntil)
	}
	t.shard.arm(&t.timer, at)
	t.awaitOpening()
}

// Name implements [roster.Entry].
func (t *tube) Name() string { return t.name }

// Place implements [roster.Entry].
func (t *tube) Place() *int { return &t.listed }

// TubeNames returns the names of the tubes as they are now, their number, and the bytes of all of them.
func (e *Shards) TubeNames() (name func(i int) string, count, bytes int) {
	at, count, bytes := e.roster.Snapshot()
	return func(i int) string { return at(i).name }, count, bytes
}

// shardFor is the shard in which a tube of that name lives.
func (e *Shards) shardFor(name []byte) *shard {
	return e.shards[maphash.Bytes(e.seed, name)&uint64(len(e.shards)-1)]
}

// tube returns the tube of that name and makes it if there is none. If a client asks for it,
// the result is nil where there are as many tubes already as there may be.
func (sh *shard) tube(name []byte, asked bool) *tube {
	if t := sh.byName[string(name)]; t != nil {
		return t
	}
	t := &tube{name: string(name), shard: sh}
	account, limit := sh.shared.accounts.Of(t.name), 0
	if asked {
		limit = sh.shared.cfg.Limits.Tubes
	}
	if !account.AddTube(asked) {
		return nil
	}
	if !sh.shared.roster.Add(t, limit) {
		account.RemoveTube()
		sh.shared.usage.refusedTubes.Add(1)
		return nil
	}
	t.Begin(account)
	t.timer.Owner = t
	t.policy = sh.policy(t.name)
	t.limits = sh.limitsOf(t.name)
	t.classify()
	t.gate()
	if n := len(sh.freeTubes); n > 0 {
		t.index = sh.freeTubes[n-1]
		sh.freeTubes = sh.freeTubes[:n-1]
		sh.tubes[t.index] = t
	} else {
		t.index = uint32(len(sh.tubes))
		sh.tubes = append(sh.tubes, t)
	}
	sh.byName[t.name] = t
	return t
}

// removeIfUnused removes a tube that no session uses or watches and that has no job.
func (sh *shard) removeIfUnused(t *tube) {
	if t.using+t.watching == 0 {
		sh.removeIfEmpty(t)
	}
}

// removeIfEmpty is removeIfUnused for a tube that no session uses or watches.
func (sh *shard) removeIfEmpty(t *tube) {
	if t.jobs() > 0 || t.name == DefaultTube {
		return
	}
	for len(t.orphans) > 0 {
		t.orphans[0].forget()
	}
	sh.wheel.Cancel(&t.timer)
	delete(sh.byName, t.name)
	sh.tubes[t.index] = nil
	sh.freeTubes = append(sh.freeTubes, t.index)
	sh.shared.roster.Remove(t)
	t.Account().RemoveTube()
}
