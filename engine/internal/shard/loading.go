package shard

import (
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/reply"
)

// An operation that needs the body of a cold job has it loaded. It returns the wait for that, which is a *loads.Wait
// and not nil, and has changed nothing but that a reserve has reserved its job. The session parks with it, and
// executes the operation again when the load has ended, whatever has become of it; if it could not be loaded, that
// returns why.

// errCold: a job cannot be moved before its body is loaded.
var errCold = errors.New("the body of a job that is to be moved is not in memory")

// fetch asks for the body of a cold job.
func (j *job) fetch() journal.Fetch { return journal.Fetch{ID: j.ID, Place: j.place(), Size: j.size} }

// missing is why an operation for a client cannot be done on a cold job, whose shard is locked: it has to wait for the
// body, or that could not be read.
func (c *Tx) missing(cl *Client, j *job) error {
	if err := c.shared.loads.Failed(j.ID); err != nil {
		return err
	}
	return c.await(cl, j.fetch())
}

// waits reports whether an operation has returned a wait.
func waits(err error) bool {
	_, ok := err.(*loads.Wait)
	return ok
}

// await has bodies of cold jobs, whose shard is locked, loaded for a client.
func (c *Tx) await(cl *Client, list ...journal.Fetch) *loads.Wait {
	w := c.shared.loads.Wait(cl.watched[0].waiter)
	w.Add(list...)
	c.asks()
	return w
}

// asks has what was asked for sent to the journal, after the last lock is released.
func (c *Tx) asks() { c.wakeOnce((*sender)(c.shared)) }

// A sender is the shards in the sight of a Tx that has asked for bodies.
type sender Shards

// Wake implements rouser.
func (s *sender) Wake() { (*Shards)(s).sendLoads() }

// sendLoads asks the journal for bodies. No lock is held.
func (e *Shards) sendLoads() {
	if list := e.loads.Asked(nil); len(list) > 0 {
		e.log.Bodies.Load(list)
	}
}

// Loaded takes what the journal was asked for. Any goroutine may call it, with no lock held. The bodies need not stay
// where they are afterwards.
func (e *Shards) Loaded(list []journal.Fetched) {
	defer e.sendLoads() // of what lies elsewhere by now, and of those that are admitted
	e.life.RLock()
	defer e.life.RUnlock()
	if e.discarded.Load() {
		return
	}
	tx := Tx{shared: e}
	for i := range list {
		x := &list[i]
		if err, ended := e.takeBody(&tx, x); ended {
			e.loads.End(x.Fetch, err)
		}
	}
}

// quickCopy is the size in bytes up to which a body is copied with its shard locked.
const quickCopy = 4096

// takeBody gives a job its body. It returns why that is lost, if it is; or false if it lies elsewhere by now.
func (e *Shards) takeBody(tx *Tx, x *journal.Fetched) (err error, ended bool) {
	sh, j, ended := e.lockFetched(tx, x)
	if sh == nil {
		return nil, ended
	}
	if err = damage(x); err != nil {
		if x.Lane == journal.Ahead && sh.ending(j) {
			j.storage |= isLost
		}
		sh.unlock(tx)
		return err, true
	}
	body, err := sh.allocBody(x.Size)
	if err != nil {
		sh.unlock(tx)
		return err, true
	}
	to, now := sh.bodies.Bytes(body, x.Size), sh
	if x.Size <= quickCopy {
		copy(to, x.Body)
	} else {
		sh.unlock(tx)
		copy(to, x.Body) // others need not wait for that
		if now, j, ended = e.lockFetched(tx, x); now != sh {
			if now != nil {
				now.unlock(tx)
			}
			sh.lock(tx, clock.Always)
		}
	}
	if now == sh {
		err = sh.placeRoom()
	}
	if now == sh && err == nil {
		sh.warm(j, body, x)
	} else {
		sh.freeBlock(body, x.Size)
	}
	sh.unlock(tx)
	return err, ended
}

// warm gives a cold job its body.
func (sh *shard) warm(j *job, body ref, x *journal.Fetched) {
	if j.state == ready {
		sh.tubes[j.tube].countCold(-1)
	}
	j.body, j.storage = body, j.storage&^isCold
	sh.residents.countCold(-1, j.size)
	if x.Lane == journal.Ahead {
		j.storage |= isAhead
	}
	sh.placed(j, x.Place, 0)
}

// lockFetched locks the shard of a job whose body was fetched, if it is still cold at that place. Otherwise sh is nil,
// no lock is held, and ended is false if the body is asked for again, because it lies elsewhere.
func (e *Shards) lockFetched(tx *Tx, x *journal.Fetched) (sh *shard, j *job, ended bool) {
	sh, _, j = e.lockJob(tx, x.ID, clock.Always)
	if sh == nil {
		return nil, nil, true
	}
	if j.cold() && j.place() == x.Place {
		return sh, j, true
	}
	if ended = !j.cold(); !ended {
		e.loads.Again(x.Fetch, j.place())
	}
	sh.unlock(tx)
	return nil, nil, ended
}

// damage is why a body is not what was fetched, nil if it is.
func damage(x *journal.Fetched) error {
	switch {
	case x.Err == nil && len(x.Body) == int(x.Size):
		return nil
	case x.Err == nil:
		return fmt.Errorf("%w: it has %d bytes, not %d", journal.ErrUnreadable, len(x.Body), x.Size)
	case errors.Is(x.Err, journal.ErrMoved): // and the job has not
		return fmt.Errorf("%w: %w", journal.ErrUnreadable, x.Err)
	}
	return x.Err
}

// endUnread ends the reservation of a job whose body could not be loaded. It buries the job if the body cannot be read
// and that can be recorded, and otherwise gives it back and returns false.
func (sh *shard) endUnread(r ref, j *job, why error, out *reply.Output) (buried bool) {
	if errors.Is(why, journal.ErrUnreadable) && sh.buryUnreadable(r, j, out) == nil {
		return true
	}
	if sh.lapse(r, j, byUnread) != nil {
		sh.makeReady(r, j)
		sh.dispatch(sh.tubes[j.tube])
	}
	return false
}

// buryUnreadable buries a reserved job whose body cannot be read, and records that.
func (sh *shard) buryUnreadable(r ref, j *job, out *reply.Output) error {
	t, ch := sh.tubes[j.tube], sh.present(j)
	ch.to, ch.at = buried, clock.Time(sh.buries+1)
	ch.counters.buries++
	ch.counters.reserves--
	if err := sh.change(r, j, &ch, out); err != nil {
		return err
	}
	t.totals().buries++
	t.totals().reserves--
	sh.dispatch(t)
	return nil
}

// loadPatience is how long a job stays reserved whose body is loaded. It is more than any load takes.
const loadPatience = 60 * clock.Second

// postpone has the time to run of a reserved job begin when its client is told of it.
func (sh *shard) postpone(r ref, j *job) {
	j.storage |= isUntold
	sh.endAt(r, j, sh.now+loadPatience)
}

// endOnRecord is when the time to run of a reserved job ends by its last record. While its client waits for the body,
// that is not when the reservation ends.
func (j *job) endOnRecord() clock.Time {
	if j.storage&isUntold != 0 {
		return j.at() - loadPatience + clock.Seconds(j.ttr)
	}
	return j.at()
}

// endAt has a reservation end at a time.
func (sh *shard) endAt(r ref, j *job, end clock.Time) {
	j.At = int64(end)
	sh.hand(r, j, sh.reservations[j.Next], end)
}

// beginRun begins the time to run of a job that is untold: its client is told of it now.
func (sh *shard) beginRun(r ref, j *job, out *reply.Output) {
	j.storage &^= isUntold
	end := sh.now + clock.Seconds(j.ttr)
	// If it cannot be recorded, what is on record is a little less.
	if sh.touch(r, j, end, out) != nil {
		sh.endAt(r, j, end)
	}
}

// How long a time-out is put off that waits for the body of a dead letter: at first, and at most. It doubles.
const (
	deadPause   = clock.Second / 100
	deadPatient = clock.Second
)

// maxAhead is how many bodies may be on their way for which nobody waits.
const maxAhead = 8192

// loadAhead has the body of a cold job loaded for what nobody waits for. It returns false if that is to do without.
func (sh *shard) loadAhead(j *job) bool {
	if j.storage&isLost != 0 {
		j.storage &^= isLost
		return false
	}
	if sh.shared.loads.Ahead(j.fetch(), maxAhead) {
		sh.by.asks()
	}
	return true
}

// putOff puts off the end of the reservation of a job that is to become a dead letter, and waits for its body. If its
// session has left, the job is nobody's until then.
func (sh *shard) putOff(r ref, j *job, by cause) {
	h, t := sh.reservations[j.Next], sh.tubes[j.tube]
	if o := h.of.nobody; o.linger() || o == nil && by != byTimeOut {
		j.At = int64(sh.now)
		if t.outlasts() { // where it was a session's on record, it is ready by the end of that, for all who read it
			sh.recordReserved(j, j.at(), sh.counters.At(j.counters).reserves)
		}
		sh.hand(r, j, &t.orphansOf("", isCutOff, by).oldest, sh.now+deadPause)
		return
	}
	sh.hand(r, j, h, sh.now+min(max(deadPause, sh.now-j.at()), deadPatient))
}

// ending reports whether a job is about to time out or to expire.
func (sh *shard) ending(j *job) bool { return j.state == reserved && j.at() <= sh.now || sh.overdue(j) }
