package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
)

// A session that finds no job waits: it stands in the queue of every tube that
// it watches, and whoever makes a job ready in one of them claims it.

type verdict uint8

const (
	noVerdict verdict = iota
	timedOut
	deadlineSoon
)

// startWaiting queues the session. The locks of all watched shards are held.
func (s *Session) startWaiting(until, soon, now Time) {
	w := s.waiter()
	w.until, w.soon, w.verdict = until, soon, noVerdict
	if s.flags&(isAged|isWaiting) == 0 {
		w.since = now // otherwise it is the same wait as before
	}
	for i := range s.watched {
		if s.flags&isAged != 0 {
			s.watched[i].enqueueAged()
		} else {
			s.watched[i].enqueue()
		}
	}
	s.loop.counts.waiting.Add(1)
	s.claimed.Store(claimWaiting)
	w.schedule(now)
}

// schedule sets the timer to when the wait ends without a job, if it does.
func (w *wait) schedule(now Time) {
	if at := min(w.until, w.soon); at != MaxTime {
		w.session.loop.schedule(&w.timer, at, now)
	}
}

// hasLasted counts what the client has waited before as a part of a wait that has just begun.
func (w *wait) hasLasted(now Time) {
	if w.until != MaxTime {
		w.until = max(w.until-(now-w.since), now+1)
		w.session.loop.wheel.Cancel(&w.timer)
		w.schedule(now)
	}
}

// WaitingSince is when the session's last wait for a job has begun, or its last reserve-batch
// that found jobs at once and was not answered at once, because they were many.
func (s *Session) WaitingSince() Time { return s.wait.since }

// waitsSince implements waiter.
func (s *Session) waitsSince() Time { return s.wait.since }

// claim implements waiter.
func (s *Session) claim() *reservationSet {
	if !s.claimed.CompareAndSwap(claimWaiting, claimTaken) {
		return nil
	}
	s.loop.counts.waiting.Add(-1)
	return s.reservationSet()
}

// deliver implements waiter.
func (s *Session) deliver(sh *shard, id uint64, pos journal.Pos) {
	s.wait.shard, s.wait.id, s.wait.pos = sh, id, pos
	s.loop.post(s, sh.by)
}

// stopWaiting ends the session's wait for a job. It reports false if there is none, or
// if somebody has claimed the session to hand a job over: then it turns up in the
// mailbox.
func (s *Session) stopWaiting(now Time) bool {
	if !s.claimed.CompareAndSwap(claimWaiting, claimTaken) {
		return false
	}
	s.loop.counts.waiting.Add(-1)
	s.dequeueAll(now)
	s.claimed.Store(claimFree)
	return true
}

// dequeueAll takes a session whose claim was taken out of all queues that it
// still stands in.
func (s *Session) dequeueAll(now Time) {
	s.loop.wheel.Cancel(&s.wait.timer)
	s.lockAll(s.watchedShards, now)
	for i := range s.watched {
		s.watched[i].dequeue()
	}
	s.unlockAll(s.watchedShards)
	s.loop.budget -= len(s.watched) / watchesPerCost
}

// watchesPerCost is how many tubes of a watch list can be looked at for a unit of cost.
const watchesPerCost = 4

// handed finds the session in the mailbox: it was claimed for a job.
func (s *Session) handed(now Time) {
	if len(s.watched) > 1 {
		s.dequeueAll(now)
	} else {
		s.loop.wheel.Cancel(&s.wait.timer) // its only entry was taken by the claimer
	}
	s.claimed.Store(claimFree)
}

// Expire ends the wait at its time-out. What is due in the watched tubes comes
// first: a job that becomes ready at the same moment is delivered.
func (w *wait) Expire(at int64) (done bool) {
	s, now := w.session, Time(at)
	s.loop.budget -= expireCost
	s.lockAll(s.watchedShards, now)
	waits := s.claimed.Load() == claimWaiting
	held := s.reserved.list() // who claims the session may add one, with one of these locks
	s.unlockAll(s.watchedShards)
	if waits {
		w.soon = s.marginBegins(held, now)
		if min(w.until, w.soon) > now {
			w.schedule(now)
			return true
		}
	}
	if !s.stopWaiting(now) {
		return true
	}
	w.verdict = timedOut
	if w.soon <= now {
		w.verdict = deadlineSoon
	}
	s.loop.turns.push(s)
	return true
}

// marginBegins is when the safety margin of the first of some reservations begins, which
// may be later than when the session began to wait: somebody else may have deleted a job.
func (s *Session) marginBegins(h *reservations, now Time) Time {
	c, soon := &s.loop.locks, MaxTime
	for ; h != nil; h = h.next {
		h.shard.lock(c, now)
		soon = min(soon, h.marginBegins())
		h.shard.unlock(c)
	}
	return soon
}

// endWait answers a reserve whose wait has ended, or has it wait again when the job
// that ended it has gone.
func (s *Session) endWait(now Time, out *Output) Outcome {
	w := s.wait
	if v := w.verdict; v != noVerdict {
		w.verdict = noVerdict
		s.timedOut(out, v, int(w.batch))
		return Done
	}
	if w.shard != nil {
		sh, id := w.shard, w.id
		w.shard = nil
		sh.lock(&s.loop.locks, now)
		if _, j := sh.find(id); j != nil && sh.reservedBy(s.reserved, j) {
			if w.batch > 0 {
				size := j.size
				sh.unlock(&s.loop.locks)
				return s.handedBatch(sh, id, size, int(w.batch), now, out)
			}
			out.dependOn(w.pos)
			s.appendReserved(out, sh, j)
			sh.unlock(&s.loop.locks)
			return Done
		}
		sh.unlock(&s.loop.locks)
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
	s.flags &^= isAged
	if w.task != nil {
		w.since = since
	}
	return outcome
}

// timedOut appends the reply to a reserve that has found no job in the watched tubes. Batch
// is not 0 for a reserve-batch.
func (s *Session) timedOut(out *Output, v verdict, batch int) {
	if e := s.loop.engine; e.cfg.Journal != nil {
		for set, i := s.watchedShards, 0; set != 0; set, i = set>>1, i+1 {
			if set&1 != 0 {
				out.dependOn(e.shards[i].dependsOnEnds())
			}
		}
	}
	switch {
	case v == deadlineSoon:
		out.reply(codec.ReplyDeadlineSoon)
	case batch > 0:
		out.Buf = codec.AppendCount(out.Buf, "RESERVED_BATCH", 0)
	default:
		out.reply(codec.ReplyTimedOut)
	}
}
