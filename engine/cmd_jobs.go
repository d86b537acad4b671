package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
)

// listingJobs is a list-jobs: a survey, then the list in parts.
type listingJobs struct {
	*survey
	surveyed bool
	now      Time // when the survey was finished
	pos      journal.Pos
}

// listEnd remembers where the last list-jobs of a session ended, so that the next one
// can go on there although the job may have gone.
type listEnd struct {
	tube  string
	state state
	sortKey
}

// listJobs lists the first jobs of a tube in one state, or those behind the job with the
// command's id.
func (s *Session) listJobs(now Time, cmd *codec.Command, out *Output) Outcome {
	of := stateOf(cmd.State)
	after, known := s.whereToGoOn(now, of, cmd)
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	v := newSurvey(sh, t.name, of, int(cmd.Bound))
	v.after = after
	if !known {
		s.notFound(sh, out, codec.ReplyNotFound)
	}
	sh.unlock(&s.loop.locks)
	if !known {
		return Done
	}
	return (&listingJobs{survey: v}).turn(s, now, out)
}

// whereToGoOn finds the sort key of the job behind which a list is to begin.
func (s *Session) whereToGoOn(now Time, of state, cmd *codec.Command) (p sortKey, known bool) {
	if cmd.ID == 0 || of == reserved {
		return sortKey{id: cmd.ID}, true
	}
	if l := s.loop.listed[s]; l.id == cmd.ID && l.tube == string(cmd.Tube) && l.state == of {
		return l.sortKey, true
	}
	c := &s.loop.locks
	sh, _, j := s.loop.engine.lockJob(c, cmd.ID, now)
	if sh == nil {
		return p, false
	}
	defer sh.unlock(c)
	if s.flags&restricted != 0 && !s.wait.grant.permits(sh.tubes[j.tube].name) {
		return p, false // that there is such a job, and its priority, are none of the client's business
	}
	if of == ready {
		return sortKey{key: uint64(j.pri), id: j.ID}, true
	}
	return j.sortKey(), j.state.shown() == of && sh.tubes[j.tube].name == string(cmd.Tube)
}

const sortSlice = 256 // jobs that are put into order in one go

func (li *listingJobs) turn(s *Session, now Time, out *Output) Outcome {
	l, sh := s.loop, li.shard
	if !li.surveyed {
		if !li.run(s, now) {
			return s.yield(li)
		}
		li.surveyed, li.now, li.pos = true, sh.now, sh.dependsOn(sh.now)
		sh.unlock(&l.locks)
	}
	for li.sort(sortSlice) {
		if !l.Spend(sortSlice) {
			return s.yield(li)
		}
	}
	return li.write(s, now, out)
}

// write begins the list.
func (li *listingJobs) write(s *Session, now Time, out *Output) Outcome {
	if n := len(li.found); n > 0 {
		if s.loop.listed == nil {
			s.loop.listed = make(map[*Session]listEnd)
		}
		s.loop.listed[s] = listEnd{li.tube, li.state, li.found[n-1].sortKey}
	}
	all := jobItems{li.found, li.now, li.state == delayed || li.state == reserved}
	again := all
	return (&listing{items: &all, counted: &again, pos: li.pos}).turn(s, now, out)
}

// jobItems are the jobs in a list.
type jobItems struct {
	left  []listed
	now   Time // when the survey was finished
	timed bool // they have a time that is left
}

func (ji *jobItems) next(b []byte) (_ []byte, ok bool) {
	if len(ji.left) == 0 {
		return b, false
	}
	e := &ji.left[0]
	ji.left = ji.left[1:]
	y := yaml(b)
	y.number("- id", e.id)
	y.number("  pri", uint64(e.pri))
	y.number("  age", uint64(max(0, ji.now-e.created).whole()))
	y.number("  size", uint64(e.size))
	if ji.timed {
		y.number("  time-left", uint64(max(0, e.at-ji.now).whole()))
	}
	return y, true
}

// peekTube shows the first job of a tube in one state, of the reserved ones that with
// the smallest id.
func (s *Session) peekTube(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	of := stateOf(cmd.State)
	if of == reserved {
		p := &peekingReserved{survey: newSurvey(sh, t.name, of, peekCandidates), again: peekAgain}
		sh.unlock(&s.loop.locks)
		return p.turn(s, now, out)
	}
	defer sh.unlock(&s.loop.locks)
	if r := t.firstShown(of); r != 0 {
		out.dependOn(sh.dependsOn(sh.now))
		out.appendFound(sh, sh.job(r))
	} else {
		s.notFound(sh, out, codec.ReplyNotFound)
	}
	return Done
}

// peekingReserved is a peek-tube of a tube's reserved jobs, for which there is no queue. By
// the time when all were looked at, the first of them may not be reserved any more.
type peekingReserved struct {
	*survey
	again int // how often it may still look again when none of the first ones is
}

const (
	peekCandidates = 64
	peekAgain      = 3
)

func (p *peekingReserved) turn(s *Session, now Time, out *Output) Outcome {
	if !p.run(s, now) {
		return s.yield(p)
	}
	sh := p.shard
	defer sh.unlock(&s.loop.locks)
	p.sort(len(p.found))
	for i := range p.found {
		if _, j := sh.find(p.found[i].id); j != nil && j.state == reserved && sh.tubes[j.tube].name == p.tube {
			out.dependOn(sh.dependsOn(sh.now))
			out.appendFound(sh, j)
			return Done
		}
	}
	if len(p.found) > 0 && p.again > 0 {
		return s.yield(&peekingReserved{newSurvey(sh, p.tube, reserved, peekCandidates), p.again - 1})
	}
	// Reservations here are so short that the first ones are over before all are known.
	s.notFound(sh, out, codec.ReplyNotFound)
	return Done
}

// run looks at slices of jobs until all were looked at, and then holds the lock. It returns
// false when the round's budget is spent before.
func (v *survey) run(s *Session, now Time) (done bool) {
	for {
		v.shard.lock(&s.loop.locks, now)
		done = v.look(v.shard.byName[v.tube])
		left := s.loop.Spend(v.takeCost() + scanCost)
		if done {
			return true
		}
		v.shard.unlock(&s.loop.locks)
		if !left {
			return false
		}
	}
}
