package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/shard"
)

// A session that finds no job waits: it stands in the queue of every tube that
// it watches, and whoever makes a job ready in one of them claims it.

// A waitEnd is what ends a wait.
type waitEnd uint8

const (
	byJob waitEnd = iota
	byTimeout
	byMargin // of one of the client's jobs, which is about to time out
)

// A claimant is a session in the sight of shards.
type claimant Session

// Wait implements the waiter of package shard.
func (x *claimant) Wait(until, soon, now Time) (aged bool) {
	s := (*Session)(x)
	w := s.waiter()
	w.until, w.soon, w.end = until, soon, byJob
	if s.client.Flags&(isAged|isWaiting) == 0 {
		w.since = now // otherwise it is the same wait as before
	}
	s.loop.counts.waiting.Add(1)
	w.schedule(now)
	return s.client.Flags&isAged != 0
}

// Client implements the waiter of package shard.
func (x *claimant) Client() *shard.Client { return &x.client }

// Deliver implements the waiter of package shard.
func (x *claimant) Deliver(by *shard.Tx, id uint64, pos journal.Pos) {
	x.loop.counts.waiting.Add(-1)
	x.wait.id, x.wait.pos = id, pos
	x.loop.post((*Session)(x), by)
}

// Loaded implements the waiter of package shard.
func (x *claimant) Loaded(w *loads.Wait) { x.loop.postLoaded((*Session)(x), w) }

// Left implements the waiter of package shard.
func (x *claimant) Left() (account string, untold uint64) {
	if x.wait != nil {
		untold = x.wait.id
	}
	if x.client.Flags&restricted != 0 {
		account = x.wait.grant.of
	}
	return account, untold
}

// Adopts implements the waiter of package shard.
func (x *claimant) Adopts(tube, account string) bool {
	if x.client.Flags&restricted == 0 {
		return true
	}
	g := x.wait.grant
	return g.rights&RightWork != 0 && g.permits(tube) && (account == "" || g.of == "" || g.of == account)
}

// Since implements the waiter of package shard.
func (x *claimant) Since() Time { return x.wait.since }

// schedule sets the timer to when the wait ends without a job, if it does.
func (w *wait) schedule(now Time) {
	if at := min(w.until, w.soon); at != MaxTime {
		w.session.loop.schedule(&w.timer, at, now)
	}
}

// hasLasted counts what the client has waited before as a part of a wait that has just begun.
func (w *wait) hasLasted(now Time) {
	if w.until == MaxTime {
		return
	}
	if w.until = max(w.until-(now-w.since), now+1); w.load == nil {
		w.session.loop.wheel.Cancel(&w.timer)
		w.schedule(now)
	}
}

// WaitingSince is when the session's last wait for a job has begun, or its last reserve-batch
// that found jobs at once and was not answered at once, because they were many.
func (s *Session) WaitingSince() Time { return s.wait.since }

// stopWaiting ends the session's wait for a job. It reports false if there is none, or
// if somebody has claimed the session to hand a job over: then it turns up in the
// mailbox.
func (s *Session) stopWaiting(now Time) bool {
	pos, ok := s.loop.tx.StopWaiting(now, &s.client)
	if !ok {
		return false
	}
	s.wait.pos = pos
	s.loop.counts.waiting.Add(-1)
	s.loop.wheel.Cancel(&s.wait.timer)
	return true
}

// handed finds the session in the mailbox: it was claimed for a job.
func (s *Session) handed(now Time) {
	s.loop.wheel.Cancel(&s.wait.timer)
	s.loop.tx.EndClaim(now, &s.client)
}

// Expire ends the wait at its time-out. What is due in the watched tubes comes
// first: a job that becomes ready at the same moment is delivered.
func (w *wait) Expire(at int64) (done bool) {
	s, now := w.session, Time(at)
	s.loop.budget -= expireCost
	if w.load != nil {
		w.overdue(now)
		return true
	}
	if soon, waits := s.loop.tx.Margin(now, &s.client); waits {
		w.soon = soon
		if min(w.until, w.soon) > now {
			w.schedule(now)
			return true
		}
	}
	if !s.stopWaiting(now) {
		return true
	}
	w.end = byTimeout
	if w.soon <= now {
		w.end = byMargin
	}
	s.loop.turns.Push(s)
	return true
}

// endWait answers a reserve whose wait has ended, or has it wait again when the job
// that ended it has gone.
func (s *Session) endWait(now Time, out *Output) Outcome {
	w := s.wait
	if end := w.end; end != byJob {
		w.end = byJob
		out.DependOn(w.pos)
		err := reply.ErrTimedOut
		if end == byMargin {
			err = reply.ErrDeadlineSoon
		}
		s.answerNone(out, err, int(w.batch))
		return Done
	}
	if id := w.id; id != 0 {
		w.id = 0
		if w.batch > 0 {
			if outcome, ok := s.handedBatch(id, w.pos, int(w.batch), now, out); ok {
				return outcome
			}
		} else if has, err := s.loop.tx.Handed(now, id, &s.client, w.pos, s.informed(), out); has {
			if err != nil {
				return s.notTold(now, id, err, out)
			}
			return Done
		}
	}
	// Its time to run ended before this loop came to say so, or somebody deleted it. If it
	// waits on, that is the same wait, but now at the end of the queues, unless it has begun in another engine.
	since := w.since
	var outcome Outcome
	if w.batch > 0 {
		outcome = s.reserveUpTo(int(w.batch), now, w.until, out)
	} else {
		outcome = s.reserve(now, w.until, out)
	}
	s.client.Flags &^= isAged
	if w.task != nil {
		w.since = since
	}
	return outcome
}

// notTold ends the turn of a reserve which has the job with the id: its client is not told of that before the body is
// in memory, or the reply is another one.
func (s *Session) notTold(now Time, id uint64, err error, out *Output) Outcome {
	if load := awaited(err); load != nil {
		s.wait.id = id
		return s.park(now, nil, load)
	}
	out.Answer(err, "")
	return Done
}

// answerNone appends the reply to a reserve that has found no job in the watched tubes, which the error says. Batch
// is not 0 for a reserve-batch.
func (s *Session) answerNone(out *Output, err error, batch int) {
	if batch > 0 && errors.Is(err, reply.ErrTimedOut) {
		out.Buf = codec.AppendCount(out.Buf, "RESERVED_BATCH", 0)
		return
	}
	out.Answer(err, "")
}
