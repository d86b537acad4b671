package shard

import (
	"errors"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// Release releases a job that a client works on.
func (c *Tx) Release(now clock.Time, id uint64, by *Client, pri, delay uint32, out *reply.Output) error {
	sh, r, j := c.lockReserved(now, id, by, out)
	if sh == nil {
		return reply.ErrNotFound
	}
	t := sh.tubes[j.tube]
	var ch change
	ch.pri, ch.counters = pri, *sh.counters.At(j.counters)
	ch.counters.delay = delay
	what := sh.failed(t, j, &ch, byRelease)
	if t.buries(what) {
		sh.unlock(c)
		return c.releaseDead(now, id, by, pri, delay, out)
	}
	c.spend(j.cost() - 1) // any command costs one
	err := sh.changeReleased(t, r, j, &ch, what, out)
	sh.unlock(c)
	return err
}

// changeReleased records and makes what failed has decided of a job of t that is released and not buried.
func (sh *shard) changeReleased(t *tube, r ref, j *job, ch *change, what fate, out *reply.Output) (err error) {
	if what == expired {
		err = sh.deleteExpired(r, j, out)
	} else {
		err = sh.change(r, j, ch, out)
		sh.dispatch(t)
	}
	if err == nil {
		t.countFailure(byRelease, what)
	}
	return err
}

// releaseDead is Release for a job that goes to the dead tube. While it has no lock, the
// job or the setting may change: it looks anew when it has those of both shards.
func (c *Tx) releaseDead(now clock.Time, id uint64, by *Client, pri, delay uint32, out *reply.Output) error {
	var dead shardSet
	for {
		sh, r, j, locked := c.lockJobWith(dead, now, id, out)
		if sh == nil {
			return reply.ErrNotFound
		}
		if !sh.worksOn(by, j) {
			out.DependOn(sh.dependsOnEnds())
			c.unlockAll(locked)
			return reply.ErrNotFound
		}
		t := sh.tubes[j.tube]
		var ch change
		ch.pri, ch.counters = pri, *sh.counters.At(j.counters)
		ch.counters.delay = delay
		what := sh.failed(t, j, &ch, byRelease)
		var err error
		if !t.buries(what) {
			err = sh.changeReleased(t, r, j, &ch, what, out)
		} else {
			to := c.shared.shardFor([]byte(t.deadTube()))
			if locked&to.self == 0 {
				c.unlockAll(locked)
				dead = to.self
				continue
			}
			c.spend(j.moveCost())
			if err = sh.buryDead(r, j, ch, what, to, out); err == nil {
				t.countFailure(byRelease, what)
			} else if errors.Is(err, errCold) {
				err = c.missing(by, j)
			}
		}
		c.unlockAll(locked)
		return err
	}
}
