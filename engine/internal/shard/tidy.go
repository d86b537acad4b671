package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
)

// tidier gives memory back that a shard does not need any more. When jobs are
// deleted it looks, a while later, whether what is left lies scattered over much
// more memory than it takes, and then moves it together, a few jobs at a time.
// Bodies that are being sent or received stay where they are: a walk that could move
// nothing is not repeated before another job is deleted. The shard's lock guards it.
type tidier struct {
	shard  *shard
	timer  queue.Timer
	cursor ref  // where the walk over the job records is, 0 when there is none
	copied int  // bytes of bodies that this step has moved
	again  bool // another look may find more: jobs were deleted, or moved
}

const (
	tidyInterval = clock.Second        // between looking and looking again
	tidyPause    = clock.Second / 2000 // between two steps of a walk
	tidyStep     = 256                 // jobs in a step
	tidyBytes    = 128 << 10           // of bodies, after which a step moves at most tidyLook more
	tidyLook     = 8                   // jobs between two looks at that
)

// wanted makes the tidier look soon.
func (d *tidier) wanted() {
	d.again = true
	if !d.timer.Scheduled() {
		d.shard.arm(&d.timer, d.shard.now+tidyInterval)
	}
}

// step does what the timer would do if the wheel of a standby turned. Nobody waits for the
// shard's lock there, so that a walk goes on without pauses. It returns false if there is
// nothing to do.
func (d *tidier) step(now clock.Time) bool {
	if !d.timer.Scheduled() || d.cursor == 0 && clock.Time(d.timer.At()) > now {
		return false
	}
	d.shard.wheel.Cancel(&d.timer)
	d.Expire(int64(now))
	return true
}

func (d *tidier) Expire(now int64) (done bool) {
	sh := d.shard
	if d.cursor == 0 {
		j, jShrunk := sh.jobs.Plan()
		t, tShrunk := sh.counters.Plan()
		b, bShrunk := sh.bodies.Plan()
		d.again = jShrunk || tShrunk || bShrunk
		if j || t || b {
			d.cursor = ^ref(0)
		}
	}
	d.copied = 0
	for n := 0; n < tidyStep && d.copied < tidyBytes && d.cursor != 0; n += tidyLook {
		d.cursor = sh.jobs.Walk(d.cursor, tidyLook, sh.tidy)
	}
	if d.cursor != 0 {
		sh.arm(&d.timer, clock.Time(now)+tidyPause)
	} else if d.again {
		sh.arm(&d.timer, clock.Time(now)+tidyInterval)
	}
	return true
}

// tidy moves a job, and what belongs to it, to where the pools want it.
func (sh *shard) tidy(r ref) {
	j := sh.job(r)
	if !j.cold() && sh.pinOf(j.body, j.size) == nil {
		if to := sh.bodies.Tidy(j.body, j.size); to != j.body {
			j.body = to
			sh.tidier.copied += int(j.size)
			sh.tidier.again = true
		}
	}
	if j.counters != 0 && sh.counters.Misplaced(j.counters) {
		if to := sh.counters.Move(j.counters); to != j.counters {
			j.counters = to
			sh.tidier.again = true
		}
	}
	if sh.jobs.Misplaced(r) {
		if to := sh.jobs.Move(r); to != r {
			sh.moved(to, sh.job(to))
			sh.tidier.again = true
		}
	}
}

// moved tells all that refer to a job's record where it is now.
func (sh *shard) moved(r ref, j *job) {
	sh.shared.ids.Put(j.ID, ids.PlaceOf(sh.number, r))
	if j.state == tombstone {
		sh.tombstones.heap.Moved(r, &j.Links)
		return
	}
	t := sh.tubes[j.tube]
	switch j.state {
	case ready:
		if j.flags&isLimited != 0 {
			sh.movedLimited(t, r, j)
			return
		}
		sh.movedCandidate(t, r, j)
	case delayed:
		t.delayed.Moved(r, &j.Links)
	case held:
		t.held.Moved(r, &j.Links)
	case buried:
		t.buried.Moved(sh.table, r, &j.Links)
	case reserved:
		sh.reservations[j.Next].jobs.Moved(r, &j.Links)
	}
}
