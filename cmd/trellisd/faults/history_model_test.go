package faults

import (
	"slices"
	"strings"
	"time"
)

// phase is where a job is in its life.
type phase uint8

const (
	unborn phase = iota // not yet put
	ready
	reserved
	delayed
	buried
	gone // deleted
	held // until its group is complete
)

func (p phase) String() string {
	return [...]string{"unborn", "ready", "reserved", "delayed", "buried", "gone", "delayed"}[p]
}

// state is a job's state in the model.
type state struct {
	phase                   phase
	holder                  int // the session, of a reserved job; nobody of an orphan
	pri, delay              uint32
	releases, buries, kicks uint32
	home, tube              string // the tube that it was put into, and the one that it is in
	limit, attempts         uint32 // attempts that make it a dead letter at home, 0 for none, and those so far
	most                    uint32 // jobs of its limited key in its tube that are reserved at a time; 0 is without
	member                  bool   // of the family's group
	fires                   bool   // of a held job: its group was complete since it is
	bounded                 bool   // its tube has bounds

	ttr    time.Duration // to run; 0 if it does not end during a test
	linger time.Duration // how long it stays reserved whose worker has lost its connection; 0 if it does not
	untold bool          // its holder may not have been told of it
	due    int64         // when its time to run, or an orphan's time, ends, at the earliest
	expiry int64         // when it expires, at the earliest; 0 is never
	now    int64         // the end of the last time that has ended: no earlier command follows
}

// others are what the other jobs of a family let one do.
type others struct {
	open     bool // its limited key lets it be reserved
	complete bool // its group is complete
}

// states are those of the jobs of a family, in its order, as their clients see them. Two things are open: what a command
// without a reply has done, and when the server has ended a session.
type states []state

// input is a command, and the job that it is about.
type input struct {
	*Op
	job int // its index in states, or anyJob: the command may be about each of them
}

const (
	anyJob = -1
	nobody = -1 // has an orphan
)

// DeadTube is where the dead letters of a tube go.
func DeadTube(tube string) string { return tube + ".dead" }

func (ss states) hash() (h uint64) {
	for _, x := range ss {
		h = h*31 + (uint64(x.phase) | uint64(x.holder)<<3 | uint64(x.pri)<<32 | uint64(x.releases+x.buries+x.kicks)<<48)
	}
	return h
}

// step returns the states in which the jobs may be after a command was executed. There are none if the command does
// nothing that has no reply, or cannot have had its reply. What happens by itself has happened before, or not.
func (ss states) step(in input) (next []states) {
	for _, s := range ss {
		if in.Return < s.now {
			return nil
		}
	}
	all := []states{ss}
	for i := 0; i < len(all); i++ {
		for job, s := range all[i] {
			if n, ok := s.alone(in.Op); ok {
				all = append(all, all[i].with(job, n))
			}
		}
	}
	for _, before := range all {
		if in.Late && before.isUnsettled() {
			continue
		}
		for _, after := range before.stepNow(in) {
			next = append(next, after.marked())
		}
	}
	return next
}

// alone returns what becomes of a job by itself, before a command is executed at the latest; ok is false if that is
// nothing.
func (s state) alone(o *Op) (next state, ok bool) {
	switch {
	case s.phase == reserved && s.due > 0 && o.Return >= s.due:
		s.phase, s.holder, s.due, s.now = ready, 0, 0, s.due
	case s.expires() && o.Return >= s.expiry:
		s = state{phase: gone, now: s.expiry}
	case s.phase == held && s.fires:
		s = s.queued(s.pri, s.delay)
	default:
		return s, false
	}
	return s, true
}

// expires reports whether a job expires that is as it is. One that was kicked never does.
func (s state) expires() bool {
	return s.expiry > 0 && s.kicks == 0 && (s.phase == ready || s.phase == delayed)
}

// isUnsettled reports whether something happens by itself, if there is time enough.
func (ss states) isUnsettled() bool {
	return slices.ContainsFunc(ss, func(s state) bool {
		return s.expires() || s.phase == held && ss.complete()
	})
}

// marked notes that held jobs may be ready whose group is complete.
func (ss states) marked() states {
	if !ss.complete() {
		return ss
	}
	for i, s := range ss {
		if s.phase == held && !s.fires {
			s.fires = true
			ss = ss.with(i, s)
		}
	}
	return ss
}

// stepNow is step if nothing more happens by itself.
func (ss states) stepNow(in input) []states {
	if in.job != anyJob {
		var next []states
		for _, n := range ss[in.job].step(in.Op, ss.others(in.job)) {
			next = append(next, ss.with(in.job, n))
		}
		return next
	}
	var next []states
	if in.Reply != "" {
		next = append(next, ss) // nothing was done
	}
	for i, s := range ss {
		done, ok := s.do(in.Op, ss.others(i))
		switch {
		case ok && s.mayBeKeptBack(in.Op):
		case ok && refused(in.Op):
			return nil
		case ok:
			next = append(next, ss.with(i, done))
		}
	}
	return next
}

// mayBeKeptBack reports whether the bounds of the job's tube may be why nothing was reserved.
func (s state) mayBeKeptBack(o *Op) bool {
	return s.bounded && !o.Late && refused(o) && (o.Verb == Reserve || o.Verb == ReserveJob)
}

// mayBeUnheard reports whether nobody may hear of the job's worker, because a member has lost its leader: then others
// are taken for it as if the job was an orphan.
func (s state) mayBeUnheard(o *Op) bool {
	return s.phase == reserved && s.linger > 0 && s.holder != nobody && s.holder != o.Session
}

func (ss states) with(job int, s state) states {
	if ss[job] == s {
		return ss
	}
	next := slices.Clone(ss)
	next[job] = s
	return next
}

// others are what the others let a job do.
func (ss states) others(job int) others {
	s := ss[job]
	held := uint32(0)
	for _, o := range ss {
		if o.phase == reserved && o.most > 0 && o.tube == s.tube {
			held++
		}
	}
	return others{open: s.most == 0 || held < s.most, complete: ss.complete()}
}

// complete reports whether no member of the group is left.
func (ss states) complete() bool {
	return !slices.ContainsFunc(ss, func(s state) bool { return s.member && s.phase != unborn && s.phase != gone })
}

// step returns the states in which a job may be after a command that is about it.
func (s state) step(o *Op, by others) []state {
	if o.Found != "" {
		if s.phase == unborn || !strings.EqualFold(o.Found, s.phase.String()) && (s.phase != gone || o.Found != "DELETED") {
			return nil
		}
		return []state{s}
	}
	if o.Verb == end {
		return s.ends(o)
	}
	done, ok := s.do(o, by)
	switch {
	case ok && (s.mayBeKeptBack(o) || refused(o) && s.mayBeUnheard(o)):
		done = s
	case o.Reply == "":
		if ok && done != s {
			return []state{done}
		}
		return nil
	case refused(o):
		ok = !ok
		done = s
	case o.Stats != nil:
		ok = ok && s.shows(o.Stats)
	}
	if !ok {
		return nil
	}
	return []state{done}
}

// refused reports whether the reply says that there is no job for the command.
func refused(o *Op) bool {
	return o.Reply == "NOT_FOUND" || o.Reply == "TIMED_OUT" || o.Reply == "DEADLINE_SOON"
}

// do is what a command does to the job, and whether it does something, or finds it.
func (s state) do(o *Op, by others) (state, bool) {
	own := s.phase == reserved && s.holder == o.Session
	works := own || s.phase == reserved && s.holder == nobody || s.mayBeUnheard(o)
	alive := s.phase != unborn && s.phase != gone
	switch o.Verb {
	case Put:
		ok := s.phase == unborn
		s.home, s.tube, s.limit, s.most, s.linger = o.Tube, o.Tube, o.Limit, o.Most, o.Linger
		s.member, s.bounded = o.Group != "", o.Bounds.bounded()
		if o.TTR < longTTR {
			s.ttr = time.Duration(o.TTR) * time.Second
		}
		if o.Expires > 0 {
			s.expiry = o.Call + int64(o.Expires)
		}
		s = s.queued(o.Pri, o.Delay)
		if o.After != "" && !by.complete {
			s.phase = held
		}
		return s, ok
	case Reserve:
		return s.taken(o), by.open && s.phase == ready && s.tube == o.Tube
	case ReserveJob:
		return s.taken(o), by.open && alive && s.phase != held && (s.phase != reserved || works && !own)
	case Release:
		s.releases++
		s.attempts++
		s = s.queued(o.Pri, o.Delay)
		if s.tube == s.home && s.limit > 0 && s.attempts >= s.limit {
			s.buries++
			s.phase, s.tube = buried, DeadTube(s.tube)
		}
		return s, works
	case Bury:
		s.buries++
		s.phase, s.holder, s.due, s.pri = buried, 0, 0, o.Pri
		return s, works
	case Touch:
		s.holder, s.untold = o.Session, false
		return s.renewed(o), works
	case KickJob:
		ok := s.phase == buried || s.phase == delayed || s.phase == held
		s.kicks++
		s.phase, s.attempts, s.fires = ready, 0, false
		return s, ok
	case MoveJob:
		ok := alive && (s.phase != reserved || own)
		s.tube = o.To
		if own {
			s.phase, s.holder, s.due = ready, 0, 0
		}
		return s, ok
	case Flush:
		if ok := alive && s.tube == o.Tube; ok || !refused(o) {
			if ok {
				s = state{phase: gone}
			}
			return s, true
		}
		return s, false
	case Delete:
		return state{phase: gone}, alive && (s.phase != reserved || works)
	case Peek, StatsJob:
		return s, alive
	case PeekReady:
		return s, s.phase == ready && s.tube == o.Tube
	case PeekDelayed:
		return s, (s.phase == delayed || s.phase == held) && s.tube == o.Tube
	case PeekBuried:
		return s, s.phase == buried && s.tube == o.Tube
	}
	panic("a command that is not in the model: " + string(o.Verb))
}

// ends returns the states in which a job may be when the server has ended a session.
func (s state) ends(o *Op) []state {
	if s.phase != reserved || s.holder != o.Session {
		return nil
	}
	free, orphan := s, s
	free.phase, free.holder, free.due = ready, 0, 0
	if s.linger == 0 {
		return []state{free}
	}
	orphan.holder = nobody
	if until := o.Call + int64(s.linger); s.due == 0 || until < s.due {
		orphan.due = until
	}
	if s.untold {
		return []state{orphan, free}
	}
	return []state{orphan}
}

func (s state) queued(pri, delay uint32) state {
	s.phase, s.holder, s.due, s.pri, s.delay, s.fires = ready, 0, 0, pri, delay, false
	if delay > 0 {
		s.phase = delayed
	}
	return s
}

func (s state) taken(o *Op) state {
	s.phase, s.holder, s.untold = reserved, o.Session, o.Verb == Reserve && o.Reply == ""
	return s.renewed(o)
}

// renewed is the job with a time to run that begins with a command.
func (s state) renewed(o *Op) state {
	s.due = 0
	if s.ttr > 0 {
		s.due = o.Call + int64(s.ttr)
	}
	return s
}

// shows reports whether stats-job may say that of the job.
func (s state) shows(x *Stats) bool {
	return x.State == s.phase.String() && x.Tube == s.tube && x.Pri == s.pri && x.Delay == s.delay &&
		x.Releases == s.releases && x.Buries == s.buries && x.Kicks == s.kicks
}
