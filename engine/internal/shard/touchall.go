package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// touches start the times to run of all of a session's reservations anew, shard by shard.
type touches struct {
	reservationScan
	at      clock.Time // when they began
	touched int
	changes reply.Output // what the touches depend on
}

// TouchAll begins to touch all that a client has reserved now, by the command for whose reply out is.
func (c *Tx) TouchAll(now clock.Time, cl *Client, out *reply.Output) Work {
	return &touches{reservationScan: reservationScan{reservations: cl.reserved.list()}, at: now, changes: out.Aside()}
}

// Turn implements Work.
func (ts *touches) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	for ts.reservations != nil {
		sh := ts.reservations.shard
		sh.lock(c, now)
		before, short := ts.touched, ts.isShort()
		if !short && ts.cursor == 0 {
			// No time to run that began before ends as late as those that begin now, which
			// tells the jobs that were touched from the others.
			ts.at = sh.now + 1
		}
		ts.slice(func(r ref, j *job) {
			if ts.touch(sh, r, j) || short {
				ts.touched++
			}
		})
		sh.unlock(c)
		c.spend(ts.touched - before + scanCost)
		if !c.left() && ts.reservations != nil {
			return ts.touched, true, nil
		}
	}
	out.DependOn(ts.changes.Pos)
	return ts.touched, false, nil
}

// touch starts the time to run of a job anew. It returns false if the job has as much time
// already.
func (ts *touches) touch(sh *shard, r ref, j *job) bool {
	end := ts.at + clock.Seconds(j.ttr)
	if end <= j.at() {
		return false
	}
	// It fails only if another server has taken over: then nobody is answered.
	return sh.touch(r, j, end, &ts.changes) == nil
}
