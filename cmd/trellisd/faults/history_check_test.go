package faults

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// ErrUndecided tells that an order of commands was neither found nor ruled out, in as many steps as a search may take
// and in searchTime by porcupine.
var ErrUndecided = errors.New("no order of the commands was found or ruled out")

// Check reports whether the commands of a history can have been executed one after another,
// each between its call and its return, by a queue that loses nothing. Its error names the
// job and lists its commands. The history must have begun before the first job was put.
func Check(history []Op) error {
	jobs, err := jobsOf(history)
	if err != nil {
		return err
	}
	if err := checkBounds(history, jobs); err != nil {
		return err // sooner than a search finds it
	}
	for _, f := range familiesOf(jobs) {
		f.collect(history)
		if err := f.check(); err != nil {
			return fmt.Errorf("%s: %w", f.name(), err)
		}
	}
	return nil
}

// life is what a history tells of one job.
type life struct {
	put *Op
	ops []*Op // that name the job
}

// family is jobs that are checked together: those of a limited key, those of a group with those that wait for it, or
// one alone.
type family struct {
	jobs []*life
	all  []input // the commands that name the jobs, and those that may have been about them
}

func (f *family) name() string {
	put := f.jobs[0].put
	if len(f.jobs) == 1 {
		return fmt.Sprintf("job %d", put.ID)
	}
	ids := make([]uint64, len(f.jobs))
	for i, l := range f.jobs {
		ids[i] = l.put.ID
	}
	return fmt.Sprintf("jobs %d, of the %s", ids, put.family())
}

// familiesOf puts the jobs of each limited key together, and those of each group for which some wait, and some do not.
func familiesOf(jobs []*life) (families []*family) {
	members, waiters := map[string]bool{}, map[string]bool{}
	for _, l := range jobs {
		members[l.put.Group], waiters[l.put.After] = true, true
	}
	ofKey := map[string]*family{}
	for _, l := range jobs {
		key := l.put.family()
		alone := key == "" || l.put.Limited == "" && !(members[l.put.Group+l.put.After] && waiters[l.put.Group+l.put.After])
		if f := ofKey[key]; f != nil && !alone {
			f.jobs = append(f.jobs, l)
			continue
		}
		f := &family{jobs: []*life{l}}
		families = append(families, f)
		if !alone {
			ofKey[key] = f
		}
	}
	return families
}

// jobsOf finds out which command was about which job, and compares what never changes. The
// jobs are in the order of their ids. Behind them come jobs of families whose puts had no reply and that nobody has
// seen: they may have been reserved, or have kept others back.
func jobsOf(history []Op) ([]*life, error) {
	puts := map[int]*Op{}    // by number: one that may have made the job
	tries := map[int][]*Op{} // by number: all that may have
	for i := range history {
		o := &history[i]
		o.place = i
		if o.Verb != Put {
			continue
		}
		if puts[o.Number] == nil || puts[o.Number].refusedPut() {
			put := *o // its id may become known
			puts[o.Number] = &put
		}
		puts[o.Number].Call = min(puts[o.Number].Call, o.Call)
		if !o.refusedPut() {
			tries[o.Number] = append(tries[o.Number], o)
		}
	}
	jobs := map[uint64]*life{}
	born := func(put *Op, id uint64) error {
		switch l := jobs[id]; {
		case l != nil && l.put != put:
			return fmt.Errorf("two puts have made the job %d:\n%s\n%s", id, l.put, put)
		case put.ID != 0 && put.ID != id:
			return fmt.Errorf("one put has made two jobs, %d and %d:\n%s", put.ID, id, put)
		case l == nil:
			put.ID = id
			jobs[id] = &life{put: put, ops: tries[put.Number]}
		}
		return nil
	}
	for _, number := range slices.Sorted(maps.Keys(puts)) {
		for _, try := range tries[number] {
			if try.Reply != "INSERTED" {
				continue
			}
			if err := born(puts[number], try.ID); err != nil {
				return nil, err
			}
		}
	}
	for i := range history {
		o := &history[i]
		if o.Verb == Put || o.Body == "" {
			continue
		}
		put := puts[numberIn(o.Body)]
		if put == nil || put.Body != o.Body {
			return nil, fmt.Errorf("a body that nobody has put, %.40q:\n%s", o.Body, o)
		}
		if put.refusedPut() {
			return nil, fmt.Errorf("a put that was refused has made a job:\n%s\n%s", put, o)
		}
		if err := born(put, o.ID); err != nil {
			return nil, err
		}
	}
	for i := range history {
		o := &history[i]
		if o.ID == 0 || o.Verb == Put {
			continue
		}
		l := jobs[o.ID]
		if l == nil {
			return nil, fmt.Errorf("a job that nobody has put:\n%s", o)
		}
		if x := o.Stats; x != nil && (!l.mayBeIn(x.Tube) || x.TTR != l.put.TTR) {
			return nil, fmt.Errorf("a field of job %d has changed:\n%s\n%s", o.ID, l.put, o)
		}
		if o.Verb.ofTube() && !l.mayBeIn(o.Tube) {
			return nil, fmt.Errorf("job %d comes from another tube:\n%s\n%s", o.ID, l.put, o)
		}
		l.ops = append(l.ops, o)
	}
	lives := slices.SortedFunc(maps.Values(jobs), func(a, b *life) int { return cmp.Compare(a.put.ID, b.put.ID) })
	for _, number := range slices.Sorted(maps.Keys(puts)) {
		if put := puts[number]; put.ID == 0 && put.family() != "" && !put.refusedPut() {
			lives = append(lives, &life{put: put, ops: tries[number]})
		}
	}
	return lives, nil
}

// refusedPut reports whether a put has made no job for certain.
func (o *Op) refusedPut() bool { return o.Reply != "INSERTED" && o.Reply != "" }

// mayBeIn reports whether the job can be in a tube: in the one that it was put into or, if it may
// become a dead letter, in that tube's DeadTube. Nobody moves it elsewhere.
func (l *life) mayBeIn(tube string) bool {
	return tube == l.put.Tube || l.put.Limit > 0 && tube == DeadTube(l.put.Tube)
}

// collect finds the commands that name the jobs, and those that may have been about them:
// commands that found no job in their tube, commands without a reply, and the ends of
// sessions that may have held the jobs.
func (f *family) collect(history []Op) {
	anyOf := map[*Op]bool{} // that may have been about each of the jobs
	var ends []input
	for job, l := range f.jobs {
		last := int64(never) // when the job is gone for certain
		holders := map[int]bool{}
		for _, o := range l.ops {
			if o.Reply == "" && (o.Verb == Peek || o.Verb == StatsJob) {
				continue // it has changed nothing, and told nothing
			}
			f.all = append(f.all, input{o, job})
			if o.Verb == Delete && o.Reply == "DELETED" {
				last = o.Return
			}
			if (o.Verb == Reserve || o.Verb == ReserveJob || o.Verb == Touch) && !refused(o) {
				holders[o.Session] = true
			}
		}
		for i := range history {
			o := &history[i]
			if !o.Verb.ofTube() || o.ID != 0 || !l.mayBeIn(o.Tube) || o.Return < l.put.Call || o.Call > last {
				continue
			}
			switch {
			case o.Verb == Flush: // which deletes one job after another
				f.all = append(f.all, input{o, job})
			case o.Reply == "":
				if o.Verb != Reserve {
					continue
				}
				holders[o.Session] = true
				anyOf[o] = true
			case refused(o):
				anyOf[o] = true
			}
		}
		for i := range history {
			if o := &history[i]; o.Verb == end && holders[o.Session] {
				ends = append(ends, input{o, job})
			}
		}
	}
	for i := range history {
		if o := &history[i]; anyOf[o] {
			f.all = append(f.all, input{o, anyJob})
		}
	}
	f.all = append(f.all, ends...)
	f.sort()
}

// sort has the commands in the order of their calls, and those of a call as their session has sent them.
func (f *family) sort() {
	slices.SortStableFunc(f.all, func(a, b input) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.place, b.place))
	})
}

func (f *family) check() error {
	stuck, undecided := newSearch(f).run()
	if undecided {
		// It follows all courses at once, and has found too many. Porcupine follows one to its end first.
		verdict := f.porcupine(searchTime)
		if undecided = verdict == porcupine.Unknown; verdict == porcupine.Illegal {
			stuck = f.all[len(f.all)-1].Op
		}
	}
	switch {
	case undecided:
		return fmt.Errorf("%w, of %d:\n%s", ErrUndecided, len(f.all), f)
	case stuck != nil:
		return fmt.Errorf("its commands cannot have been executed in any order, at the latest with that of %s:\n%s", stuck, f)
	}
	return nil
}

// searchTime is how long porcupine looks for an order, at most.
const searchTime = 10 * time.Second

// porcupine looks for an order without knowing what keeps a search short, nor that a session's commands are in order.
// It takes any time if that is 0.
func (f *family) porcupine(most time.Duration) porcupine.CheckResult {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{make(states, len(f.jobs))} },
		Step: func(s, in, _ any) (next []any) {
			if in.(input).Reply == "" {
				next = append(next, s) // it was not executed
			}
			for _, n := range s.(states).step(in.(input)) {
				next = append(next, n)
			}
			return next
		},
		Equal: func(a, b any) bool { return slices.Equal(a.(states), b.(states)) },
		Hash:  func(s any) uint64 { return s.(states).hash() },
	}
	ops := make([]porcupine.Operation, len(f.all))
	for i, in := range f.all {
		ops[i] = porcupine.Operation{ClientId: in.Session, Input: in, Call: in.Call, Return: in.Return}
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), ops, most)
}

func (f *family) String() string {
	var s strings.Builder
	for i, in := range f.all {
		if i == 0 || in.Op != f.all[i-1].Op {
			fmt.Fprintln(&s, in)
		}
	}
	return s.String()
}

// bodyOf is the body of a put: its number, and what depends on it.
func bodyOf(number, size int) string {
	b := fmt.Sprintf("%d ", number)
	if len(b) < size {
		b += strings.Repeat(fmt.Sprintf("%x\r\n\x00", number), size/4+1)[:size-len(b)]
	}
	return b
}

// numberIn is the number of the put that has made a body, 0 if no put has.
func numberIn(body string) (n int) {
	_, _ = fmt.Sscan(body, &n)
	return n
}
