package engine

import (
	"errors"

	"trellis/binlog/journal"
)

// A request is what a client asks for that reserves.
type request struct {
	Waiter   waiter
	Watched  []subscription
	Shards   shardSet         // of the watched tubes
	Weights  *weights         // by which tubes are chosen; nil if by priority
	Reserved **reservationSet // of the client; made with its first reservation
	Until    Time             // when the wait for a job is to end; there is none before it begins if that has come
	Informed bool             // the client is told more of each job
	Aged     bool             // it stands before those in the queues who began to wait later
}

// set returns the client's reservations, which it makes if need be.
func (q *request) set() *reservationSet { return made(q.Reserved) }

// made returns a client's reservations, which it makes if need be.
func made(hs **reservationSet) *reservationSet {
	if *hs == nil {
		*hs = new(reservationSet)
	}
	return *hs
}

// A verdict is how a reserve goes on.
type verdict uint8

const (
	gotJob       verdict = iota // a job was reserved, and the reply is in the Output
	mustWait                    // the client stands in the queues of its tubes
	timedOut                    // there is no job
	deadlineSoon                // nor that, and the safety margin of one of the client's jobs has begun
)

// Reserve reserves the first ready job of the watched tubes, or that of the tube which the weights choose, and
// appends the reply; or it queues the client for one.
func (c *tx) Reserve(now Time, q *request, out *Output) (verdict, error) {
	c.spend(len(q.Watched) / watchesPerCost)
	// The shards in which it has reserved jobs matter only for the safety
	// margin, but they must be looked at in the same moment.
	set := q.Shards | (*q.Reserved).set()
	c.lockAll(set, now)
	v, err := c.reserveFirst(now, q, out)
	c.unlockAll(set)
	return v, err
}

// reserveFirst is Reserve with all locks held.
func (c *tx) reserveFirst(now Time, q *request, out *Output) (verdict, error) {
	var first *job
	var r ref
	var from *tube
	if q.Weights != nil {
		if from, r = q.Weights.pick(q.Watched); from != nil {
			first = from.shard.job(r)
		}
	} else {
		for i := range q.Watched {
			t := q.Watched[i].tube
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
	held, err := sh.reserve(q.set(), r, first)
	if err != nil {
		return gotJob, err
	}
	out.dependOn(max(pos, held))
	out.appendReserved(sh, first, q.Informed)
	return gotJob, nil
}

// waitOr queues the client for a job, unless there is a reason not to. All locks are held.
func (c *tx) waitOr(now Time, q *request, out *Output) verdict {
	soon := MaxTime
	for h := (*q.Reserved).list(); h != nil; h = h.next {
		soon = min(soon, h.marginBegins())
	}
	switch {
	case soon <= now:
		c.DependOnEnds(q.Shards, out)
		return deadlineSoon
	case q.Until <= now:
		c.DependOnEnds(q.Shards, out)
		return timedOut
	}
	q.Waiter.Wait(q.Until, soon, now)
	for i := range q.Watched {
		if q.Aged {
			q.Watched[i].enqueueAged()
		} else {
			q.Watched[i].enqueue()
		}
	}
	return mustWait
}

// Handed appends the reply that hands out the job of that id, for which a client has waited and which the reply
// depends on pos. It returns false if the client does not have the job any more.
func (c *tx) Handed(now Time, id uint64, of *reservationSet, pos journal.Pos, informed bool, out *Output) bool {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false
	}
	has := sh.reservedBy(of, j)
	if has {
		out.dependOn(pos)
		out.appendReserved(sh, j, informed)
	}
	sh.unlock(c)
	return has
}

// ReserveJob reserves the job of that id, whatever state it is in, and appends the reply. works: the
// client has begun to work, even if there is no memory for the reservation.
func (c *tx) ReserveJob(now Time, id uint64, hs **reservationSet, informed bool, out *Output) (works bool, err error) {
	sh, r, j := c.lockJob(now, id, out)
	if sh == nil {
		return false, errNotFound
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
	if *hs == nil || (*hs).holder == nil {
		if err := sh.recordTaken(j, out); errors.Is(err, journal.ErrRoom) || err != nil && sh.shared.barrier != nil {
			sh.unlock(c)
			return false, err
		}
	}
	held, err := sh.reserve(made(hs), r, j)
	if err == nil {
		out.dependOn(max(pos, held))
		out.appendReserved(sh, j, informed)
	}
	sh.unlock(c)
	return true, err
}

// HasReserved reports whether a job is among these reservations.
func (c *tx) HasReserved(now Time, id uint64, of *reservationSet) bool {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return false
	}
	defer sh.unlock(c)
	return sh.reservedBy(of, j)
}
