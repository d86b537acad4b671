package engine

import "hash/maphash"

// defaultTube always exists.
const defaultTube = "default"

// tube is a named queue. The shard's lock guards all of it but listed.
type tube struct {
	name  string
	shard *shard
	index uint32 // in shard.tubes

	ready    readyQueue
	delayed  heap // by due time
	buried   list
	reserved int

	// The sessions that wait for one of its jobs, longest first.
	firstWaiting, lastWaiting *watch
	waiting                   int

	using    int // sessions
	watching int // sessions

	pausedUntil Time   // 0 when no pause is in force
	pause       uint32 // seconds, as last given, while a pause is in force
	timer       timer  // fires no later than the first delay or the pause ends

	puts, deletes, pauses uint64

	listed int // its place in the registry. Guarded by the registry's lock
}

// list is a tube's buried jobs, in the order of burying.
type list struct {
	head, tail ref
	count      int
}

func (l *list) insert(sh *shard, r ref, j *job) {
	j.state = buried
	l.count++
	sh.tally.in[buried]++
	after := l.tail
	for after != 0 && sh.job(after).at > j.at {
		after = sh.job(after).prev
	}
	j.prev = after
	if after != 0 {
		j.next = sh.job(after).next
		sh.job(after).next = r
	} else {
		j.next = l.head
		l.head = r
	}
	if j.next != 0 {
		sh.job(j.next).prev = r
	} else {
		l.tail = r
	}
}

func (l *list) remove(sh *shard, j *job) {
	l.count--
	if j.prev != 0 {
		sh.job(j.prev).next = j.next
	} else {
		l.head = j.next
	}
	if j.next != 0 {
		sh.job(j.next).prev = j.prev
	} else {
		l.tail = j.prev
	}
}

func (t *tube) paused(now Time) bool { return t.pausedUntil > now }

// jobs is the number of jobs in the tube, in any state.
func (t *tube) jobs() int {
	return t.ready.count + t.reserved + t.buried.count + len(t.delayed)
}

// expire moves what is due from the delayed jobs to the ready ones, and ends
// the pause when its time has come.
func (t *tube) expire(now Time) (done bool) {
	sh := t.shard
	for len(t.delayed) > 0 && t.delayed[0].key <= uint64(now) {
		if !sh.mayMove() {
			return false
		}
		r := t.delayed[0].ref
		sh.makeReady(r, sh.job(r))
	}
	if t.pausedUntil != 0 && !t.paused(now) {
		t.pausedUntil, t.pause = 0, 0
	}
	sh.dispatch(t)
	t.arm()
	return true
}

// arm sets the tube's timer to its next event, unless it fires before that
// anyway: then expire finds nothing and arms anew, which is cheaper than moving
// the timer whenever a delayed job comes or goes.
func (t *tube) arm() {
	at := MaxTime
	if len(t.delayed) > 0 {
		at = Time(t.delayed[0].key)
	}
	if t.pausedUntil != 0 {
		at = min(at, t.pausedUntil)
	}
	if at != MaxTime {
		t.shard.arm(&t.timer, at)
	}
}

// shardFor is the shard in which a tube of that name lives.
func (e *Engine) shardFor(name []byte) *shard {
	return e.shards[maphash.Bytes(e.seed, name)&uint64(len(e.shards)-1)]
}

// tube returns the tube of that name and makes it if there is none. It returns
// nil if there are limit tubes already; a limit of 0 is none.
func (sh *shard) tube(name []byte, limit int) *tube {
	if t := sh.byName[string(name)]; t != nil {
		return t
	}
	t := &tube{name: string(name), shard: sh}
	if !sh.engine.registry.add(t, limit) {
		sh.engine.usage.refusedTubes.Add(1)
		return nil
	}
	t.timer.owner = t
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

// dropIfUnused ends a tube that no session uses or watches and that has no job.
func (sh *shard) dropIfUnused(t *tube) {
	if t.using > 0 || t.watching > 0 || t.jobs() > 0 || t.name == defaultTube {
		return
	}
	sh.wheel.cancel(&t.timer)
	delete(sh.byName, t.name)
	sh.tubes[t.index] = nil
	sh.freeTubes = append(sh.freeTubes, t.index)
	sh.engine.registry.remove(t)
}
