package engine

import "trellis/engine/internal/reply"

// Release releases a job that a client has reserved.
func (c *tx) Release(now Time, id uint64, by *client, pri, delay uint32, out *reply.Output) error {
	sh, r, j := c.lockReserved(now, id, by, out)
	if sh == nil {
		return reply.ErrNotFound
	}
	var ch change
	what := sh.released(j, pri, delay, &ch)
	if sh.tubes[j.tube].buries(what) {
		sh.unlock(c)
		return c.releaseDead(now, id, by, pri, delay, out)
	}
	c.spend(j.cost() - 1) // any command costs one
	err := sh.changeReleased(r, j, &ch, what, out)
	sh.unlock(c)
	return err
}

// released sets ch to what a release makes of a job.
func (sh *shard) released(j *job, pri, delay uint32, ch *change) fate {
	ch.pri, ch.counters = pri, *sh.counters.At(j.counters)
	ch.counters.delay = delay
	return sh.failed(j, ch, byRelease)
}

// changeReleased records and makes what released has told of a job that is not buried.
func (sh *shard) changeReleased(r ref, j *job, ch *change, what fate, out *reply.Output) error {
	t := sh.tubes[j.tube]
	if what == expired {
		err := sh.deleteExpired(r, j, out)
		if err == nil {
			t.countFailure(byRelease, what)
		}
		return err
	}
	err := sh.change(r, j, ch, out)
	if err == nil {
		t.countFailure(byRelease, what)
	}
	sh.dispatch(t)
	return err
}

// releaseDead is Release for a job that goes to the dead tube. While it has no lock, the
// job or the setting may change: it looks anew when it has those of both shards.
func (c *tx) releaseDead(now Time, id uint64, by *client, pri, delay uint32, out *reply.Output) error {
	var dead shardSet
	for {
		sh, r, j, locked := c.lockJobWith(dead, now, id, out)
		if sh == nil {
			return reply.ErrNotFound
		}
		if !sh.reservedBy(by.reserved, j) {
			out.DependOn(sh.dependsOnEnds())
			c.unlockAll(locked)
			return reply.ErrNotFound
		}
		var ch change
		what := sh.released(j, pri, delay, &ch)
		var err error
		if !sh.tubes[j.tube].buries(what) {
			err = sh.changeReleased(r, j, &ch, what, out)
		} else {
			t := sh.tubes[j.tube]
			to := c.shared.shardFor([]byte(t.deadTube()))
			if locked&to.self == 0 {
				c.unlockAll(locked)
				dead = to.self
				continue
			}
			c.spend(j.moveCost())
			if err = sh.buryDead(r, j, ch, what, to, out); err == nil {
				t.countFailure(byRelease, what)
			}
		}
		c.unlockAll(locked)
		return err
	}
}
