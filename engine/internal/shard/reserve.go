package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A Request is what a client asks for that reserves.
type Request struct {
	Client   *Client
	Weights  *Weights   // by which tubes are chosen; nil if by priority
	Until    clock.Time // when the wait for a job is to end; there is none before it begins if that has come
	Informed bool       // the client is told more of each job
	Aged     bool       // it stands before those in the queues who began to wait later
}

// A Verdict is how a reserve goes on.
type Verdict uint8

const (
	GotJob       Verdict = iota // a job was reserved, and the reply is in the Output
	MustWait                    // the client stands in the queues of its tubes
	TimedOut                    // there is no job
	DeadlineSoon                // nor that, and the safety margin of one of the client's jobs has begun
)

// Reserve reserves the first ready job of the watched tubes, or that of the tube which the weights choose, and
// appends the reply; or it queues the client for one.
func (c *Tx) Reserve(now clock.Time, q *Request, out *reply.Output) (Verdict, error) {
	c.spend(len(q.Client.watched) / watchesPerCost)
	// The shards in which it has reserved jobs matter only for the safety
	// margin, but they must be looked at in the same moment.
	set := q.Client.watchedShards | q.Client.reserved.set()
	c.lockAll(set, now)
	v, err := c.reserveFirst(now, q, out)
	c.unlockAll(set)
	return v, err
}

// reserveFirst is Reserve with all locks held.
func (c *Tx) reserveFirst(now clock.Time, q *Request, out *reply.Output) (Verdict, error) {
	var first *job
	var r ref
	var from *tube
	if q.Weights != nil {
		if from, r = q.Weights.pick(q.Client.watched); from != nil {
			first = from.shard.job(r)
		}
	} else {
		for i := range q.Client.watched {
			t := q.Client.watched[i].tube
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
		return c.waitOr(now, q, out), nil
	}
	sh := from.shard
	pos := sh.dependsOn(first.at())
	held, err := sh.reserve(q.Client.set(), r, first)
	if err != nil {
		return GotJob, err
	}
	out.DependOn(max(pos, held))
	sh.appendReserved(out, first, q.Informed)
	return GotJob, nil
}

// waitOr queues the client for a job, unless there is a reason not to. All locks are held.
func (c *Tx) waitOr(now clock.Time, q *Request, out *reply.Output) Verdict {
	soon := clock.MaxTime
	for h := q.Client.reserved.list(); h != nil; h = h.next {
		soon = min(soon, h.marginBegins())
	}
	switch {
	case soon <= now:
		c.DependOnNone(q.Client, out)
		return DeadlineSoon
	case q.Until <= now:
		c.DependOnNone(q.Client, out)
		return TimedOut
	}
	watched := q.Client.watched
	watched[0].waiter.Wait(q.Until, soon, now)
	q.Client.claimed.Store(claimWaiting)
	for i := range watched {
		if q.Aged {
			watched[i].enqueueAged()
		} else {
			watched[i].enqueue()
		}
	}
	return MustWait
}

// Handed appends the reply that hands out the job of that id, for which a client has waited and which the reply
// depends on pos. It returns false if the client does not have the job any more.
func (c *Tx) Handed(now clock.Time, id uint64, cl *Client, pos journal.Pos, informed bool, out *reply.Output) bool {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false
	}
	has := sh.reservedBy(cl.reserved, j)
	if has {
		out.DependOn(pos)
		sh.appendReserved(out, j, informed)
	}
	sh.unlock(c)
	return has
}

// ReserveJob reserves the job of that id, whatever state it is in, or adopts it, and appends the reply. works: the
// client has begun to work, even if there is no memory for the reservation.
func (c *Tx) ReserveJob(
	now clock.Time, id uint64, cl *Client, informed bool, out *reply.Output,
) (works bool, err error) {
	sh, r, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false, c.shared.NotFound(out)
	}
	if j.state == reserved && sh.mayAdopt(cl, j) {
		pos := sh.dependsOn(sh.now)
		if err := sh.adopt(cl, r, j, sh.counters.At(j.counters).reserves+1, out); err != nil {
			sh.unlock(c)
			return false, err
		}
		out.DependOn(pos)
		sh.appendReserved(out, j, informed)
		sh.unlock(c)
		return true, nil
	}
	if j.state == reserved || sh.passedOver(j) || j.state == held && !sh.shared.cfg.Stock || !sh.tubes[j.tube].mayStart() {
		return false, c.refuse(sh, out)
	}
	since := sh.now // a delayed or buried job does not tell when it became so
	if j.state == ready {
		since = j.at()
	}
	pos := sh.dependsOn(since)
	// If the reservation is on record, that alone takes the job from where it is.
	if cl.reserved == nil || cl.reserved.holder == nil {
		if err := sh.recordTaken(j, out); errors.Is(err, journal.ErrRoom) || err != nil && sh.shared.barrier != nil {
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
