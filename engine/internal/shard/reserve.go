package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/weights"
)

// Reserve reserves the first ready job of the watched tubes, or that of the tube which the weights choose unless they
// are nil, and appends the reply. Otherwise it queues the client for one and returns true; or says why it does not:
// reply.ErrTimedOut if until has come. informed: the client is told more of the job.
func (c *Tx) Reserve(
	now clock.Time, cl *Client, until clock.Time, by *weights.Weights, informed bool, out *reply.Output,
) (waits bool, err error) {
	c.spend(len(cl.watched) / watchesPerCost)
	// The shards in which it has reserved jobs matter only for the safety
	// margin, but they must be looked at in the same moment.
	set := cl.watchedShards | cl.reserved.set()
	c.lockAll(set, now)
	waits, err = c.reserveFirst(now, cl, until, by, informed, out)
	c.unlockAll(set)
	return waits, err
}

// reserveFirst is Reserve with all locks held.
func (c *Tx) reserveFirst(
	now clock.Time, cl *Client, until clock.Time, by *weights.Weights, informed bool, out *reply.Output,
) (waits bool, err error) {
	var first *job
	var r ref
	var from *tube
	if by != nil {
		if i := by.Pick((*watchList)(cl)); i >= 0 {
			from = cl.watched[i].tube
			r = from.candidate()
			first = from.shard.job(r)
		}
	} else {
		for i := range cl.watched {
			t := cl.watched[i].tube
			tr := t.candidate()
			if tr == 0 {
				continue
			}
			if tj := t.shard.job(tr); first == nil || tj.sooner(first) {
				from, r, first = t, tr, tj
			}
		}
	}
	if first == nil {
		return c.waitOr(now, cl, until, out)
	}
	sh := from.shard
	pos := sh.dependsOn(first.at())
	held, err := sh.reserve(cl.set(), r, first)
	if err != nil {
		return false, err
	}
	if pos = max(pos, held); first.cold() {
		w := c.await(cl, first.fetch())
		w.ID, w.Pos = first.ID, pos
		return false, w
	}
	out.DependOn(pos)
	sh.appendReserved(out, first, informed)
	return false, nil
}

// waitOr queues the client for a job, unless there is a reason not to. All locks are held.
func (c *Tx) waitOr(now clock.Time, cl *Client, until clock.Time, out *reply.Output) (waits bool, err error) {
	soon := clock.MaxTime
	for h := cl.reserved.list(); h != nil; h = h.next {
		soon = min(soon, h.marginBegins())
	}
	switch {
	case soon <= now:
		out.DependOn(c.endsWatched(cl))
		return false, reply.ErrDeadlineSoon
	case until <= now:
		out.DependOn(c.endsWatched(cl))
		return false, reply.ErrTimedOut
	}
	watched := cl.watched
	aged := watched[0].waiter.Wait(until, soon, now)
	cl.claimed.Store(claimWaiting)
	for i := range watched {
		if aged {
			watched[i].enqueueAged()
		} else {
			watched[i].enqueue()
		}
	}
	return true, nil
}

// Handed appends the reply that hands out the job of that id, for which a client has waited and which the reply
// depends on pos. It returns false if the client does not have the job any more, or the job's body cannot be read.
func (c *Tx) Handed(
	now clock.Time, id uint64, cl *Client, pos journal.Pos, informed bool, out *reply.Output,
) (has bool, err error) {
	sh, r, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false, nil
	}
	switch has = sh.reservedBy(cl.reserved, j); {
	case !has:
	case j.cold():
		if err = c.missing(cl, j); !waits(err) && sh.endUnread(r, j, err, out) {
			has, err = false, nil
		}
	default:
		if j.storage&isUntold != 0 {
			sh.beginRun(r, j, out)
		}
		out.DependOn(pos)
		sh.appendReserved(out, j, informed)
	}
	sh.unlock(c)
	return has, err
}

// ReserveJob reserves the job of that id, whatever state it is in, or adopts it, and appends the reply. works: the
// client has begun to work, even if there is no memory for the reservation.
func (c *Tx) ReserveJob(
	now clock.Time, id uint64, cl *Client, informed bool, out *reply.Output,
) (works bool, err error) {
	sh, r, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false, c.shared.notFound(out)
	}
	adopts := j.state == reserved && sh.mayAdopt(cl, j)
	if !adopts && (j.state == reserved || !sh.mayReserve(j)) {
		return false, c.refuse(sh, out)
	}
	if j.cold() {
		err = c.missing(cl, j)
		sh.unlock(c)
		return false, err
	}
	if adopts {
		pos := sh.dependsOn(sh.now)
		if err := sh.adopt(cl, r, j, 1, out); err != nil {
			sh.unlock(c)
			return false, err
		}
		out.DependOn(pos)
		sh.appendReserved(out, j, informed)
		sh.unlock(c)
		return true, nil
	}
	since := sh.now // a delayed or buried job does not tell when it became so
	if j.state == ready {
		since = j.at()
	}
	pos := sh.dependsOn(since)
	// If the reservation is on record, that alone takes the job from where it is.
	if cl.reserved == nil || cl.reserved.holder == nil {
		if err := sh.recordTaken(j, out); errors.Is(err, journal.ErrRoom) || err != nil && sh.shared.log.Lead != nil {
			sh.unlock(c)
			return false, err
		}
	}
	held, err := sh.reserve(cl.set(), r, j)
	if err == nil {
		out.DependOn(max(pos, held))
		sh.appendReserved(out, j, informed)
	}
	sh.unlock(c)
	return true, err
}

// HasReserved reports whether a client has reserved a job.
func (c *Tx) HasReserved(now clock.Time, cl *Client, id uint64) bool {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false
	}
	defer sh.unlock(c)
	return sh.reservedBy(cl.reserved, j)
}

// mayReserve reports whether a job that is not reserved may be, whatever state it is in.
func (sh *shard) mayReserve(j *job) bool {
	return !sh.passedOver(j) && (j.state != held || sh.shared.cfg.Stock) && sh.tubes[j.tube].mayStart()
}
