package engine

import (
	"strconv"

	"trellis/binlog/journal"
	"trellis/codec"
)

// listingJobs is a list-jobs: a survey, then the list in parts.
type listingJobs struct {
	*survey
	surveyed bool
	now      Time // when the survey was finished
	pos      journal.Pos
	begun    bool // the reply
}

// listPlace remembers where the last list-jobs of a session ended, so that the next one
// can go on there although the job may have gone.
type listPlace struct {
	tube  string
	state state
	orderPlace
}

// listJobs lists the first jobs of a tube in one state, or those behind the job with the
// command's id.
func (s *Session) listJobs(now Time, cmd *codec.Command, out *Output) Outcome {
	of := stateOf(cmd.State)
	after, known := s.placeToGoOn(now, of, cmd)
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

// placeToGoOn finds the place of the job behind which a list is to begin.
func (s *Session) placeToGoOn(now Time, of state, cmd *codec.Command) (p orderPlace, known bool) {
	if cmd.ID == 0 || of == reserved {
		return orderPlace{id: cmd.ID}, true
	}
	if l := s.loop.listed[s]; l.id == cmd.ID && l.tube == string(cmd.Tube) && l.state == of {
		return l.orderPlace, true
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
		return orderPlace{key: uint64(j.pri), id: j.ID}, true
	}
	return j.place(), j.state == of && sh.tubes[j.tube].name == string(cmd.Tube)
}

const sortSlice = 256 // jobs that are put into order in one go

func (li *listingJobs) turn(s *Session, now Time, out *Output) Outcome {
	l := s.loop
	for !li.surveyed {
		sh := li.shard
		sh.lock(&l.locks, now)
		if li.step(sh.byName[li.tube]) {
			li.surveyed, li.now, li.pos = true, sh.now, sh.uncommitted(sh.now)
		}
		sh.unlock(&l.locks)
		if !l.Spend(li.takeSteps()+scanSteps) && !li.surveyed {
			return s.yield(li)
		}
	}
	for li.sort(sortSlice) {
		if !l.Spend(sortSlice) {
			return s.yield(li)
		}
	}
	return li.write(s, out)
}

// write appends a part of the list.
func (li *listingJobs) write(s *Session, out *Output) Outcome {
	out.dependOn(li.pos)
	if !li.begun {
		li.begun = true
		size := len(listHead)
		for i := range li.found {
			size += li.itemSize(&li.found[i])
		}
		out.Buf = codec.AppendOKLine(out.Buf, size)
		out.Buf = append(out.Buf, listHead...)
		s.rememberList(li)
		s.loop.Spend(len(li.found) / 4)
	}
	full := len(out.Buf) + listPart
	for n := 0; len(li.found) > 0; n++ {
		if !s.loop.Spend(1) && n > 0 || len(out.Buf) >= full {
			return s.yield(li)
		}
		out.Buf = li.appendItem(out.Buf, &li.found[0])
		li.found = li.found[1:]
	}
	out.Buf = append(out.Buf, "\r\n"...)
	return Done
}

func (s *Session) rememberList(li *listingJobs) {
	n := len(li.found)
	if n == 0 {
		return
	}
	if s.loop.listed == nil {
		s.loop.listed = make(map[*Session]listPlace)
	}
	s.loop.listed[s] = listPlace{li.tube, li.state, li.found[n-1].orderPlace}
}

func (li *listingJobs) appendItem(b []byte, e *listed) []byte {
	field := func(k string, n uint64) {
		b = append(b, k...)
		b = append(strconv.AppendUint(b, n, 10), '\n')
	}
	field("- id: ", e.id)
	field("  pri: ", uint64(e.pri))
	field("  age: ", li.age(e))
	field("  size: ", uint64(e.size))
	if li.timed() {
		field("  time-left: ", li.left(e))
	}
	return b
}

// itemSize is the length of what appendItem appends.
func (li *listingJobs) itemSize(e *listed) int {
	n := len("- id: \n  pri: \n  age: \n  size: \n") + digits(e.id) + digits(uint64(e.pri)) + digits(li.age(e)) + digits(uint64(e.size))
	if li.timed() {
		n += len("  time-left: \n") + digits(li.left(e))
	}
	return n
}

func (li *listingJobs) timed() bool           { return li.state == delayed || li.state == reserved }
func (li *listingJobs) age(e *listed) uint64  { return uint64(max(0, li.now-e.created).whole()) }
func (li *listingJobs) left(e *listed) uint64 { return uint64(max(0, e.at-li.now).whole()) }

// digits is how many digits a number has.
func digits(n uint64) int {
	count := 1
	for ; n > 9; n /= 10 {
		count++
	}
	return count
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
	if r := t.first(of); r != 0 {
		out.dependOn(sh.uncommitted(sh.now))
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
	l, sh := s.loop, p.shard
	for {
		sh.lock(&l.locks, now)
		t := sh.byName[p.tube]
		done := p.step(t)
		left := l.Spend(p.takeSteps() + scanSteps)
		if done {
			break
		}
		sh.unlock(&l.locks)
		if !left {
			return s.yield(p)
		}
	}
	defer sh.unlock(&l.locks)
	p.sort(len(p.found))
	for i := range p.found {
		if _, j := sh.find(p.found[i].id); j != nil && j.state == reserved && sh.tubes[j.tube].name == p.tube {
			out.dependOn(sh.uncommitted(sh.now))
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
