package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// reserve takes the first ready job of all watched tubes, or that of the tube which the
// session's weights choose, or waits until the given time for one.
func (s *Session) reserve(now, until Time, out *Output) Outcome {
	s.becomeWorker()
	s.loop.budget -= len(s.watched) / watchesPerCost
	// The shards in which it has reserved jobs matter only for the safety
	// margin, but they must be looked at in the same moment.
	set := s.watchedShards | s.reserved.set()
	s.lockAll(set, now)
	outcome := s.reserveFirst(now, until, out)
	s.unlockAll(set)
	return outcome
}

// reserveFirst is reserve with all locks held.
func (s *Session) reserveFirst(now, until Time, out *Output) Outcome {
	var first *job
	var r ref
	var from *tube
	if s.flags&isWeighted != 0 {
		if from, r = s.loop.weights[s].pick(s.watched); from != nil {
			first = from.shard.job(r)
		}
	} else {
		for i := range s.watched {
			t := s.watched[i].tube
			tr := t.candidate()
			if tr == 0 {
				continue
			}
			if tj := t.shard.job(tr); first == nil || tj.sooner(first) {
				from, r, first = t, tr, tj
			}
		}
	}
	if first != nil {
		sh := from.shard
		pos := sh.dependsOn(first.at())
		held, err := sh.reserve(s.reservationSet(), r, first)
		if err != nil {
			out.refuse(err)
			return Done
		}
		out.dependOn(max(pos, held))
		s.appendReserved(out, sh, first)
		return Done
	}
	return s.waitOr(0, now, until, out)
}

// waitOr has the session wait for a job, unless there is a reason not to, which it
// appends. Batch is how many jobs a reserve-batch asks for, 0 for another command. All
// locks are held.
func (s *Session) waitOr(batch int, now, until Time, out *Output) Outcome {
	soon := MaxTime
	for h := s.reserved.list(); h != nil; h = h.next {
		soon = min(soon, h.marginBegins())
	}
	switch {
	case soon <= now:
		s.timedOut(out, deadlineSoon, batch)
	case until <= now || s.flags&halfClosed != 0:
		s.timedOut(out, timedOut, batch)
	default:
		s.startWaiting(until, soon, now)
		s.wait.batch = uint16(batch)
		return Wait
	}
	return Done
}

func (s *Session) reserveJob(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockJob(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	if j.state == reserved || sh.passedOver(j) || j.state == held && !sh.shared.cfg.Stock || !sh.tubes[j.tube].mayStart() {
		return s.refuseJob(sh, out)
	}
	since := sh.now // a delayed or buried job does not tell when it became so
	if j.state == ready {
		since = j.at()
	}
	pos := sh.dependsOn(since)
	if s.flags&onRecord != 0 {
		// The hold alone takes the job from where it is.
	} else if err := sh.recordTaken(j, out); errors.Is(err, journal.ErrRoom) || err != nil && sh.shared.barrier != nil {
		return s.changed(sh, err, cmd, out, "")
	}
	s.becomeWorker()
	held, err := sh.reserve(s.reservationSet(), r, j)
	if err != nil {
		return s.changed(sh, err, cmd, out, "")
	}
	out.dependOn(max(pos, held))
	s.appendReserved(out, sh, j)
	sh.unlock(&s.loop.locks)
	return Done
}

// appendReserved appends the reply that hands out a job.
func (s *Session) appendReserved(out *Output, sh *shard, j *job) {
	if s.flags&isInformed == 0 {
		out.Buf = codec.AppendReservedLine(out.Buf, j.ID, int(j.size))
	} else {
		out.Buf = s.appendReservedLine(out.Buf, sh, j)
	}
	out.appendBody(sh, j)
}

func (s *Session) appendReservedLine(b []byte, sh *shard, j *job) []byte {
	if s.flags&isInformed == 0 {
		return codec.AppendReservedLine(b, j.ID, int(j.size))
	}
	info := sh.info(j)
	return codec.AppendReservedInfoLine(b, j.ID, int(j.size), &info)
}

func (s *Session) becomeWorker() {
	if s.flags&isWorker == 0 {
		s.flags |= isWorker
		s.loop.counts.workers.Add(1)
	}
}
