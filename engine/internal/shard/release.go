package shard

import (
	"errors"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// Release releases a job that a client works on. If it goes to the dead tube, it is looked at anew when there are the
// locks of both shards: while there is none, the job or the setting may change.
func (c *Tx) Release(now clock.Time, id uint64, by *Client, pri, delay uint32, out *reply.Output) error {
	var dead shardSet
	for {
		sh, r, j, locked := c.lockJobWith(dead, now, id, out)
		if sh == nil {
			return reply.ErrNotFound
		}
		if !sh.worksOn(by, j) {
			return c.refuse(sh, out)
		}
		t := sh.tubes[j.tube]
		var ch change
		ch.pri, ch.counters = pri, *sh.counters.At(j.counters)
		ch.counters.delay = delay
		what := sh.failed(t, j, &ch, byRelease)
		var err error
		switch {
		case t.buries(what):
			to := c.shared.shardFor([]byte(t.deadTube()))
			if locked&to.self == 0 {
				c.unlockAll(locked)
				dead = to.self
				continue
			}
			c.spend(j.moveCost())
			if err = sh.buryDead(r, j, ch, what, to, out); errors.Is(err, errCold) {
				err = c.missing(by, j)
			}
		case what == expired:
			c.spend(j.cost() - 1) // any command costs one
			err = sh.deleteExpired(r, j, out)
		default:
			c.spend(j.cost() - 1)
			err = sh.change(r, j, &ch, out)
			sh.dispatch(t)
		}
		if err == nil {
			t.countFailure(byRelease, what)
		}
		c.unlockAll(locked)
		return err
	}
}
