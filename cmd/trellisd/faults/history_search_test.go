package faults

import (
	"cmp"
	"slices"
)

// search looks for an order in which commands can have been executed, just in time: it goes from reply to reply, and
// knows all courses that things may have taken until then.
//
// A course that can do whatever another one can do makes that one needless. So there are few of them, although each
// command that had no reply may still be executed at any time, or never.
type search struct {
	all      []input
	before   []int // by command: of the same session, the last one that had a reply when it was called or later; -1 if none
	alike    []int // by command: an earlier one that may as well do what it does; -1 if none
	underway []int // commands that were called, and whose replies have not come
	courses  courses
	patience int // steps that it may still take
}

// mostSteps is how many steps a search may take. Most need hundreds, and one in some thousands more than that. Each may
// take half a kilobyte until the search ends.
const mostSteps = 200_000

// course is one of the ways that things may have gone.
type course struct {
	jobs states
	done []int // commands that are under way, and were executed, in order
	idle bool  // another one can do what it can
}

// courses are those of one moment.
type courses struct {
	list  []*course
	alike map[uint64][]*course // by their states
}

// newSearch begins with jobs that are not there yet.
func newSearch(f *family) *search {
	s := &search{all: f.all, patience: mostSteps}
	s.before, s.alike = order(f.all), substitutes(f)
	s.courses.add(s, &course{jobs: make(states, len(f.jobs))})
	return s
}

// order finds of each command which one of its session was executed before it, where their times do not say so: a server
// executes what a connection brings in its order.
func order(all []input) []int {
	before := make([]int, len(all))
	last := map[int]int{}
	for i, in := range all {
		before[i] = -1
		if in.Verb == end {
			continue
		}
		if l, ok := last[in.Session]; ok && all[l].Return >= in.Call && all[l].Op != in.Op {
			before[i] = l
		}
		if in.Reply != "" {
			last[in.Session] = i
		}
	}
	return before
}

// substitutes finds sessions of which nothing is known but that they may have reserved a job before they ended. Which of
// them has one is all the same, so it is the first.
func substitutes(f *family) []int {
	others := map[int]bool{} // sessions of which more is known
	ended := map[int]int64{} // from when a session may have ended
	for _, in := range f.all {
		if in.Verb == end {
			ended[in.Session] = in.Call
		} else if in.Verb != Reserve && in.Reply == "" || in.Reply == "RESERVED" || in.Reply == "TOUCHED" {
			others[in.Session] = true
		}
	}
	linger := slices.ContainsFunc(f.jobs, func(l *life) bool { return l.put.Linger > 0 })
	alike := make([]int, len(f.all))
	last, own := map[string]int{}, map[int]int{} // the first command of the last session for each tube, and of each session
	for i, in := range f.all {
		alike[i] = -1
		if in.Verb != Reserve || in.Return != never || others[in.Session] {
			continue
		}
		if first, ok := own[in.Session]; ok {
			alike[i] = first
			continue
		}
		own[in.Session] = i
		if l, ok := last[in.Tube]; ok && (!linger || ended[f.all[l].Session] <= ended[in.Session]) {
			alike[i] = l
		}
		last[in.Tube] = i
	}
	return alike
}

// run returns the first command that cannot have been executed by its reply; nil if there is none. It is undecided if
// that would take too long.
func (s *search) run() (stuck *Op, undecided bool) {
	replies := make([]int, 0, len(s.all))
	for i, in := range s.all {
		if in.Return != never {
			replies = append(replies, i)
		}
	}
	slices.SortStableFunc(replies, func(a, b int) int { return cmp.Compare(s.all[a].Return, s.all[b].Return) })
	called := 0
	for _, o := range replies {
		for ; called < len(s.all) && s.all[called].Call <= s.all[o].Return; called++ {
			s.underway = append(s.underway, called)
		}
		s.reply(o)
		if s.patience < 0 {
			return nil, true
		}
		if len(s.courses.list) == 0 {
			return s.all[o].Op, false
		}
		s.underway = slices.DeleteFunc(s.underway, func(i int) bool { return i == o })
	}
	return nil, false
}

// reply goes on to where a command is executed whose reply comes.
func (s *search) reply(o int) {
	var open, over courses
	at := s.all[o].Return
	for _, c := range s.courses.list {
		if !c.idle {
			open.add(s, c)
		}
	}
	for i := 0; i < len(open.list) && s.patience >= 0; i++ {
		c := open.list[i]
		if c.idle {
			continue
		}
		s.read(c)
		if has(c.done, o) {
			over.add(s, c.past(o, at))
			continue
		}
		if s.all[o].Reply == "" { // perhaps it was not executed
			over.add(s, c.past(o, at))
		}
		for _, p := range s.underway {
			switch in := s.all[p]; {
			case !s.mayFollow(c, p), s.alike[p] >= 0 && s.mayFollow(c, s.alike[p]), in.Verb == end && !c.jobs.heldBy(in):
				continue
			}
			s.patience--
			for _, jobs := range c.jobs.step(s.all[p]) {
				n := &course{jobs: jobs, done: with(c.done, p)}
				if p == o {
					over.add(s, n.past(o, at))
				} else {
					open.add(s, n)
				}
			}
		}
	}
	s.courses = over
}

// read executes what changes nothing.
func (s *search) read(c *course) {
	for again := true; again; {
		again = false
		for _, p := range s.underway {
			if !s.all[p].reads() || !s.mayFollow(c, p) {
				continue
			}
			s.patience--
			if slices.ContainsFunc(c.jobs.step(s.all[p]), func(ss states) bool { return slices.Equal(ss, c.jobs) }) {
				c.done, again = with(c.done, p), true
			}
		}
	}
}

// reads reports whether a command that had a reply has changed nothing.
func (o *Op) reads() bool {
	switch o.Verb {
	case Peek, PeekReady, PeekDelayed, PeekBuried, StatsJob:
		return o.Reply != ""
	}
	return refused(o) || o.Found != ""
}

// mayFollow reports whether a command that is under way may be executed next.
func (s *search) mayFollow(c *course, p int) bool {
	if has(c.done, p) {
		return false
	}
	b := s.before[p]
	return b < 0 || has(c.done, b) || !slices.Contains(s.underway, b)
}

// heldBy reports whether the session that a command ends has the job.
func (ss states) heldBy(in input) bool {
	return ss[in.job].phase == reserved && ss[in.job].holder == in.Session
}

// past is the course when the reply of a command has come at that time, if no other reply comes earlier any more.
func (c *course) past(o int, at int64) *course {
	n := &course{jobs: c.jobs, done: c.done}
	if i, ok := slices.BinarySearch(n.done, o); ok {
		n.done = slices.Delete(slices.Clone(n.done), i, i+1)
	}
	for i, x := range n.jobs {
		n.jobs = n.jobs.with(i, x.at(at))
	}
	return n
}

// at is the job when no time matters any more that has passed.
func (s state) at(now int64) state {
	const passed = 1
	if s.now <= now {
		s.now = 0
	}
	if 0 < s.due && s.due <= now {
		s.due = passed
	}
	if 0 < s.expiry && s.expiry <= now {
		s.expiry = passed
	}
	return s
}

func has(done []int, p int) bool {
	_, ok := slices.BinarySearch(done, p)
	return ok
}

func with(done []int, p int) []int {
	i, _ := slices.BinarySearch(done, p)
	return slices.Insert(slices.Clone(done), i, p)
}

// add adds a course, if none of the others can do what it can, and takes out those that it makes needless.
func (x *courses) add(s *search, c *course) {
	if x.alike == nil {
		x.alike = map[uint64][]*course{}
	}
	h := c.jobs.hash()
	s.patience -= len(x.alike[h]) / 8 // comparisons take time, too
	for _, o := range x.alike[h] {
		if slices.Equal(o.jobs, c.jobs) && s.covers(o, c) {
			return
		}
	}
	x.alike[h] = slices.DeleteFunc(x.alike[h], func(o *course) bool {
		o.idle = slices.Equal(o.jobs, c.jobs) && s.covers(c, o)
		return o.idle
	})
	x.alike[h] = append(x.alike[h], c)
	x.list = append(x.list, c)
}

// covers reports whether a can do all that b can, which has the same states: what it has executed beside has changed
// nothing, and what it has not may be left out.
func (s *search) covers(a, b *course) bool {
	for _, p := range a.done {
		if !has(b.done, p) && !s.all[p].reads() {
			return false
		}
	}
	for _, p := range b.done {
		if !has(a.done, p) && s.all[p].Reply != "" {
			return false
		}
	}
	return true
}
