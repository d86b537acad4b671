package shard

import (
	"cmp"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A tube's setting may say that a job whose reservations have failed so many times since it was
// put or last kicked, by release or time-out, is buried in another tube.

// deadTube is where the tube's dead letters go. It has a setting.
func (t *tube) deadTube() string { return cmp.Or(t.policy.Dead, t.name) }

// buryDead records that a job whose fate that is, and of which ch tells, is buried at the
// tail of its tube's dead tube, and moves it. Its own shard and the dead tube's are locked.
// If that cannot be, nothing changes.
func (sh *shard) buryDead(r ref, j *job, ch change, what fate, to *shard, out *reply.Output) error {
	t := sh.tubes[j.tube]
	dead := t.deadTube()
	ch.to, ch.at = buried, clock.Time(to.buries+1)
	ch.counters.buries++
	if dead != t.name {
		if err := sh.moveTo(r, j, &ch, to, dead, out); err != nil {
			return err
		}
	} else {
		if err := sh.change(r, j, &ch, out); err != nil {
			return err
		}
		sh.dispatch(t)
	}
	if what == expired {
		to.totals.expiredLetters++
		t.totals().expired++
	} else {
		to.totals.deadLetters++
		t.totals().deadLetters++
	}
	to.byName[dead].totals().buries++
	return nil
}

// enter takes the lock of another shard while this one does what is due in it. What is due
// in the other is left alone. ok is false if the lock is taken by somebody who may be waiting
// for one that is held: locks are waited for in the order of the shards' numbers only. entered:
// the lock is to be released.
func (sh *shard) enter(to *shard) (entered, ok bool) {
	c := sh.by
	switch {
	case to == sh || c.held&to.self != 0:
		return false, true
	case to.self > c.held:
		to.mu.Lock()
	case !to.mu.TryLock():
		return false, false
	}
	to.by = c
	c.held |= to.self
	return true, true
}
