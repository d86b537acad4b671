package shard

import (
	"slices"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// touches start the times to run of all of a session's reservations anew, shard by shard.
type touches struct {
	at           clock.Time    // when they began
	reservations *reservations // of the session, which is next
	cursor       ref           // of a scan of their shard; 0 if there is none
	touched      int
	changes      reply.Output // what the touches depend on
}

// TouchAll begins to touch all that a client has reserved now, by the command for whose reply out is.
func (c *Tx) TouchAll(now clock.Time, cl *Client, out *reply.Output) Work {
	return &touches{at: now, reservations: cl.reserved.list(), changes: out.Aside()}
}

// Turn implements Work.
func (ts *touches) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	for ts.reservations != nil {
		h := ts.reservations
		sh := h.shard
		sh.lock(c, now)
		before := ts.touched
		if ts.cursor == 0 && h.jobs.Len() <= scanSlice {
			ts.few(h)
		} else {
			ts.scan(h)
		}
		sh.unlock(c)
		c.spend(ts.touched - before + scanCost)
		if !c.left() && ts.reservations != nil {
			return ts.touched, true, nil
		}
	}
	out.DependOn(ts.changes.Pos)
	return ts.touched, false, nil
}

// few touches all of a few reservations.
func (ts *touches) few(h *reservations) {
	for _, r := range slices.AppendSeq(make([]ref, 0, scanSlice), h.jobs.All()) {
		ts.touch(h, r, h.shard.job(r))
		ts.touched++
	}
	ts.reservations = h.next
}

// scan touches the session's jobs among the next slice of the shard's jobs. In their
// heap, which changes meanwhile, some could be missed. A job whose record moves is met twice.
func (ts *touches) scan(h *reservations) {
	if ts.cursor == 0 {
		// No time to run that began before ends as late as those that begin now, which
		// tells the jobs that were touched from the others.
		ts.at, ts.cursor = h.shard.now+1, ^ref(0)
	}
	ts.cursor = h.shard.jobs.Walk(ts.cursor, scanSlice, func(r ref) {
		if j := h.shard.job(r); j.state == reserved && j.Next == h.index && ts.touch(h, r, j) {
			ts.touched++
		}
	})
	if ts.cursor == 0 {
		ts.reservations = h.next
	}
}

// touch starts the time to run of a job anew. It returns false if the job has as much time
// already.
func (ts *touches) touch(h *reservations, r ref, j *job) bool {
	end := ts.at + clock.Seconds(j.ttr)
	if end <= j.at() {
		return false
	}
	// It fails only if another server has taken over: then nobody is answered.
	return h.shard.touch(h, r, j, end, &ts.changes) == nil
}
