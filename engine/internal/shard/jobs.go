package shard

import (
	"errors"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/stats"
)

// What clients do with one job, by its id. Each operation finds the job, does all that belongs to it, and
// returns reply.ErrNotFound if there is no such job, or why the change could not be recorded. Then nothing has
// changed.

// Delete deletes a job that a client works on, or that nobody has reserved unless it has to be.
func (c *Tx) Delete(now clock.Time, id uint64, by *Client, mustHave bool, out *reply.Output) error {
	sh, r, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return c.shared.notFound(out)
	}
	if !sh.worksOn(by, j) && (j.state == reserved || mustHave) {
		return c.refuse(sh, out)
	}
	c.spend(j.cost() - 1) // any command costs one
	t := sh.tubes[j.tube]
	err := sh.delete(r, j, out)
	if err == nil {
		t.deletes++
	}
	sh.unlock(c)
	return err
}

// Bury buries a job that a client works on.
func (c *Tx) Bury(now clock.Time, id uint64, by *Client, pri uint32, out *reply.Output) error {
	sh, r, j := c.lockReserved(now, id, by, out)
	if sh == nil {
		return reply.ErrNotFound
	}
	ch := sh.present(j)
	ch.to, ch.pri, ch.at = buried, pri, clock.Time(sh.buries+1)
	ch.counters.buries++
	t := sh.tubes[j.tube]
	err := sh.change(r, j, &ch, out)
	if err == nil {
		t.totals().buries++
	}
	sh.dispatch(t)
	sh.unlock(c)
	return err
}

// Touch starts the time to run of a job anew that a client works on, and has now. It is on record if the
// reservation is.
func (c *Tx) Touch(now clock.Time, id uint64, by *Client, out *reply.Output) error {
	sh, r, j := c.lockReserved(now, id, by, out)
	if sh == nil {
		return reply.ErrNotFound
	}
	var err error
	if sh.reservedBy(by.reserved, j) {
		err = sh.touch(r, j, now+clock.Seconds(j.ttr), out)
	} else {
		err = sh.adopt(by, r, j, 0, out)
	}
	sh.unlock(c)
	return err
}

// KickJob makes a buried or delayed job ready.
func (c *Tx) KickJob(now clock.Time, id uint64, out *reply.Output) error {
	sh, r, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return c.shared.notFound(out)
	}
	if j.state != buried && j.state.shown() != delayed {
		return c.refuse(sh, out)
	}
	err := sh.kick(r, j, out)
	sh.unlock(c)
	return err
}

// MoveJob moves a job to another tube. One that a client has reserved is ready there; one that others
// have reserved is not found.
func (c *Tx) MoveJob(now clock.Time, id uint64, by *Client, tube string, out *reply.Output) error {
	to := c.shared.shardFor([]byte(tube))
	from, r, j, locked := c.lockJobWith(to.self, now, id, out)
	if from == nil {
		return reply.ErrNotFound
	}
	if j.state == reserved && !from.reservedBy(by.reserved, j) || j.state == tombstone {
		return c.refuse(from, out)
	}
	c.spend(j.moveCost())
	err := from.move(r, j, to, tube, out)
	if errors.Is(err, errCold) {
		err = c.missing(by, j)
	}
	c.unlockAll(locked)
	return err
}

// Peek appends a job, as clients are shown it.
func (c *Tx) Peek(now clock.Time, cl *Client, id uint64, out *reply.Output) error {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return c.shared.notFound(out)
	}
	err := c.show(cl, sh, j, out)
	sh.unlock(c)
	return err
}

// show appends a job, whose shard is locked, as the client is shown it.
func (c *Tx) show(cl *Client, sh *shard, j *job, out *reply.Output) error {
	if j.cold() {
		return c.missing(cl, j)
	}
	sh.appendFound(out, j)
	return nil
}

// PeekTube is Peek for the first job in a state of the tube of that name, nil for the one that the client uses. Of
// reserved jobs, rest has to find the one with the smallest id; otherwise it is nil. The operation was executed
// before, and then the job with the id was the first, if that is not 0: it goes first if it is still there.
func (c *Tx) PeekTube(
	now clock.Time, cl *Client, name []byte, of codec.State, id *uint64, out *reply.Output,
) (rest Work, err error) {
	sh, t := c.lockTubeOr(now, name, cl, out)
	switch {
	case t == nil:
		return nil, reply.ErrNotFound
	case of != codec.Reserved:
		return nil, c.peekFirst(cl, sh, t, stateOf(of), id, out)
	}
	rest = &reservedPeek{Survey: newSurvey(sh, t.name, reserved, peekCandidates), of: cl, again: peekAgain}
	sh.unlock(c)
	return rest, nil
}

func (c *Tx) peekFirst(cl *Client, sh *shard, t *tube, of state, id *uint64, out *reply.Output) error {
	_, j := sh.find(*id)
	if j == nil || j.state.shown() != of || j.tube != t.index {
		r := t.firstShown(of)
		if r == 0 {
			return c.refuse(sh, out)
		}
		j = sh.job(r)
	}
	*id = j.ID
	err := c.show(cl, sh, j, out)
	sh.unlock(c)
	return err
}

// Job returns what clients are told of a job.
func (c *Tx) Job(now clock.Time, id uint64, out *reply.Output) (x stats.Job, err error) {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return x, c.shared.notFound(out)
	}
	defer sh.unlock(c)
	out.DependOn(sh.dependsOn(sh.now))
	var n counters
	if j.counters != 0 {
		n = *sh.counters.At(j.counters)
	}
	x = stats.Job{
		Tube: sh.tubes[j.tube].name, State: j.state.String(), Pri: j.pri, TTR: j.ttr, Delay: n.delay,
		Age: max(0, now-j.created), Segment: sh.logSegment(j),
		Reserves: n.reserves, Timeouts: n.timeouts, Releases: n.releases, Buries: n.buries, Kicks: n.kicks,
	}
	if j.state == reserved || j.state == delayed {
		x.Left = max(0, j.at()-now)
	}
	if j.storage&isUntold != 0 {
		x.Left = clock.Seconds(j.ttr)
	}
	return x, nil
}
