package engine

import (
	"trellis/codec"
)

// reserve takes the first ready job of all watched tubes, or waits until the
// given time for one.
func (s *Session) reserve(now, until Time, out *Output) Outcome {
	s.becomeWorker()
	// The shards in which it has reserved jobs matter only for the safety
	// margin, but they must be looked at in the same moment.
	set := s.watches | s.holds
	s.lockAll(set, now)
	var first *job
	var r ref
	var from *tube
	for i := range s.watched {
		t := s.watched[i].tube
		if t.ready.count == 0 || t.paused(now) {
			continue
		}
		if tr, tj := t.ready.first(t.shard); first == nil || tj.sooner(first) {
			from, r, first = t, tr, tj
		}
	}
	if first != nil {
		sh := from.shard
		if _, err := sh.tallyOf(first); err != nil {
			out.reply(codec.ReplyOutOfMemory)
		} else {
			out.dependOn(sh.unsettled(first.at))
			from.ready.remove(sh, first)
			sh.reserve(s, r, first, now)
			out.appendReserved(sh, first)
		}
		s.unlockAll(set)
		return Done
	}
	soon := MaxTime
	for _, h := range s.holdings {
		if len(h.jobs) > 0 {
			soon = min(soon, Time(h.jobs[0].key)-safetyMargin)
		}
	}
	switch {
	case soon <= now:
		out.reply(codec.ReplyDeadlineSoon)
	case until <= now || s.flags&halfClosed != 0:
		out.reply(codec.ReplyTimedOut)
	default:
		s.startWaiting(until, soon, now)
		s.unlockAll(set)
		return Wait
	}
	s.unlockAll(set)
	return Done
}

func (s *Session) reserveJob(now Time, id uint64, out *Output) {
	c := &s.loop.caller
	sh, r, j := s.loop.engine.lockJob(c, id, now)
	if sh == nil {
		out.reply(codec.ReplyNotFound)
		return
	}
	if j.state == reserved {
		out.reply(codec.ReplyNotFound)
		sh.unlock(c)
		return
	}
	if _, err := sh.tallyOf(j); err != nil {
		out.reply(codec.ReplyOutOfMemory)
		sh.unlock(c)
		return
	}
	s.becomeWorker()
	since := sh.now // a delayed or buried job does not know since when it is so
	if j.state == ready {
		since = j.at
	}
	out.dependOn(sh.unsettled(since))
	if j.state != ready && sh.journaled() {
		// After a restart it is ready, as every reserved job is. If there is no
		// room to record that, it is where it was.
		rec := sh.describeReady(j)
		rec.Reserves++
		_ = sh.recordUpdate(rec, out)
	}
	sh.takeOut(j)
	sh.reserve(s, r, j, now)
	out.appendReserved(sh, j)
	sh.unlock(c)
}

func (s *Session) becomeWorker() {
	if s.flags&isWorker == 0 {
		s.flags |= isWorker
		s.loop.counts.workers.Add(1)
	}
}
