package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// Audit deletes all jobs, so that one that was acknowledged and is lost is noticed. It needs a
// cluster that serves, or comes to do so before ctx ends.
func (c *Crew) Audit(ctx context.Context) error {
	addrs := make([]string, len(c.posts))
	for i, p := range c.posts {
		addrs[i] = p.Addr
	}
	lives, err := jobsOf(c.Recorder.History())
	if err != nil {
		return err
	}
	for n := range tubes {
		a := c.Recorder.NewClient(c.tube(n), func() []string { return addrs })
		a.waits = crewWaits
		if err := a.AwaitUnreserved(ctx); err != nil {
			return err
		}
		for _, l := range lives {
			if l.put.Tube != a.tube || l.deleted() != nil {
				continue
			}
			if err := a.again(ctx, func() error { _, err := a.Job(Delete, l.put.ID); return err }); err != nil {
				return err
			}
		}
		for found := true; found; { // nobody knows of these
			err := a.again(ctx, func() error {
				id, err := a.Reserve()
				found = id != 0
				if found && err == nil {
					_, err = a.Job(Delete, id)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		a.Close()
	}
	return nil
}

func (l *life) deleted() *Op {
	for _, o := range l.ops {
		if o.Reply == "DELETED" {
			return o
		}
	}
	return nil
}

// Check reports whether a queue that goes on as if nothing happened can have given all these
// replies. It is to be called after Audit.
func (c *Crew) Check() error {
	var all []error
	for _, b := range c.Broken() {
		all = append(all, errors.New(b.String()))
	}
	return errors.Join(errors.Join(all...), checkCrew(c.Recorder.History()))
}

// clockSlack is by how much a server's clock, which is of milliseconds, may differ from that of a history.
const clockSlack = int64(2 * time.Millisecond)

// checkCrew finds what is certainly wrong, with an effort that grows with the history only.
func checkCrew(history []Op) error {
	lives, err := jobsOf(history)
	if err != nil {
		return err
	}
	b := &books{ends: map[int]int64{}, holds: map[int][]*hold{}, ready: map[string][]interval{}, open: map[string][]*Op{}}
	for i := range history {
		o := &history[i]
		switch {
		case o.Verb == end:
			b.ends[o.Session] = o.Call
		case o.Verb == Reserve && o.Reply == "":
			b.open[o.Tube] = append(b.open[o.Tube], o)
		}
	}
	for _, l := range lives {
		if err := b.enter(l); err != nil {
			return fmt.Errorf("job %d: %w\n%s", l.put.ID, err, l)
		}
	}
	return errors.Join(b.checkWaits(history), checkIDs(history))
}

func (l *life) String() string {
	f := &family{}
	for _, o := range l.ops {
		f.all = append(f.all, input{Op: o})
	}
	return f.String()
}

// books are what checkCrew knows of all jobs.
type books struct {
	ends  map[int]int64         // of sessions: from when they may have ended
	holds map[int][]*hold       // of each session
	ready map[string][]interval // of each tube: when one of its jobs was ready for certain
	open  map[string][]*Op      // of each tube: reserves without a reply
}

type interval struct {
	from, to int64
	job      uint64
}

// hold is a reservation. It was there at all times of its interval, for certain.
type hold struct {
	interval
	*Op
	renewed []*Op // by what its time to run has begun
	due     int64 // when it may end by itself
}

// enter enters a job, and finds out whether it was lost, came back, or was held by two.
func (b *books) enter(l *life) error {
	slices.SortStableFunc(l.ops, func(x, y *Op) int { return cmp.Compare(x.Call, y.Call) })
	ttr := int64(l.put.TTR) * int64(time.Second)
	var gone *Op // the delete that was acknowledged
	maybe := false
	held := map[int]*hold{} // by session
	var holds []*hold
	finish := func(h *hold, at int64) {
		if end, ok := b.ends[h.Session]; ok {
			at = min(at, end)
		}
		h.to = min(h.due, at)
		delete(held, h.Session)
	}
	for _, o := range l.ops {
		h := held[o.Session]
		switch o.Reply {
		case "":
			maybe = maybe || o.Verb == Delete
			if h != nil && o.Verb != Touch {
				finish(h, o.Call)
			}
			continue
		case "NOT_FOUND":
			if h == nil {
				continue
			}
			if o.Return < h.due {
				return fmt.Errorf("it is not found for its holder:\n%s", o)
			}
			finish(h, o.Call)
			continue
		}
		switch o.Verb {
		case Reserve:
			if h != nil {
				if o.Return < h.due {
					return fmt.Errorf("its holder got it once more:\n%s\n%s", h, o)
				}
				finish(h, o.Call)
			}
			h = &hold{interval: interval{from: o.Return}, Op: o, renewed: []*Op{o}, due: o.Call + ttr}
			held[o.Session] = h
			holds = append(holds, h)
			b.holds[o.Session] = append(b.holds[o.Session], h)
		case Touch:
			if h != nil {
				h.due = o.Call + ttr
				h.renewed = append(h.renewed, o)
			}
		case Release, Bury, Delete:
			if h != nil {
				finish(h, o.Call)
			}
		}
		if o.Verb == Delete {
			if gone != nil {
				return fmt.Errorf("it was deleted twice:\n%s\n%s", gone, o)
			}
			gone = o
		}
	}
	for _, h := range held {
		finish(h, h.due)
	}
	if gone == nil && !maybe && l.put.ID != 0 {
		return errors.New("it was lost")
	}
	for _, o := range l.ops {
		if o.Reply == "" || o.Reply == "NOT_FOUND" {
			continue
		}
		if gone != nil && o.Call > gone.Return {
			return fmt.Errorf("it was deleted, and has come back:\n%s\n%s", gone, o)
		}
		if o.Verb == Put || o.Verb == KickJob {
			continue
		}
		for _, h := range holds {
			if h.Session != o.Session && h.from < o.Call && o.Return < h.to {
				return fmt.Errorf("one holds it, and another one has this reply:\n%s\n%s", h, o)
			}
		}
	}
	slices.SortFunc(holds, func(x, y *hold) int { return cmp.Compare(x.from, y.from) })
	var longest *hold
	for _, h := range holds {
		if h.to <= h.from {
			continue // its session may have ended before its reply has come
		}
		if longest != nil && h.from < longest.to {
			return fmt.Errorf("two hold it at once, from %d to %d:\n%s\n%s", h.from, min(h.to, longest.to), longest, h)
		}
		if longest == nil || h.to > longest.to {
			longest = h
		}
	}
	b.enterReady(l)
	return nil
}

// lateTake is how long after its time a reserve without a reply may have a job: until its session is ended.
const lateTake = int64(time.Minute)

// enterReady notes when a job was ready for certain: from the reply that says so, until somebody can have it.
func (b *books) enterReady(l *life) {
	for _, o := range l.ops {
		if o.Delay != 0 || o.Reply != "INSERTED" && o.Reply != "RELEASED" && o.Reply != "KICKED" {
			continue
		}
		i := interval{o.Return, never, l.put.ID}
		for _, next := range l.ops {
			if (next.Verb == Reserve || next.Verb == Delete) && next.Reply != "NOT_FOUND" && next.Return > o.Call {
				i.to = min(i.to, max(i.from, next.Call))
			}
		}
		for _, next := range b.open[o.Tube] {
			if next.Call+int64(next.Wait)+lateTake > i.from {
				i.to = min(i.to, max(i.from, next.Call))
			}
		}
		if i.to > i.from {
			b.ready[o.Tube] = append(b.ready[o.Tube], i)
		}
	}
}

// checkWaits finds waits that have ended too early, although there was a job, or for a deadline that was far.
func (b *books) checkWaits(history []Op) error {
	for _, list := range b.ready {
		slices.SortFunc(list, func(x, y interval) int { return cmp.Compare(x.from, y.from) })
		for i := 1; i < len(list); i++ { // each ends with the latest so far
			if list[i].to < list[i-1].to {
				list[i].to, list[i].job = list[i-1].to, list[i-1].job
			}
		}
	}
	for i := range history {
		o := &history[i]
		switch o.Reply {
		case "TIMED_OUT":
			over := o.Call + int64(o.Wait)
			if o.Return < over-clockSlack {
				return fmt.Errorf("it has waited for %v only:\n%s", time.Duration(o.Return-o.Call), o)
			}
			list := b.ready[o.Tube]
			n := sort.Search(len(list), func(i int) bool { return list[i].from >= min(over, o.Return) })
			if n > 0 && list[n-1].to > o.Return {
				return fmt.Errorf("it was told that there is no job, and job %d was ready until %d:\n%s", list[n-1].job, list[n-1].to, o)
			}
		case "DEADLINE_SOON":
			soon := slices.ContainsFunc(b.holds[o.Session], func(h *hold) bool {
				return slices.ContainsFunc(h.renewed, func(r *Op) bool {
					return r.Call < o.Call && o.Return >= h.due-int64(time.Second)-clockSlack
				})
			})
			if !soon {
				return fmt.Errorf("it holds no job whose time ends soon:\n%s", o)
			}
		}
	}
	return nil
}

// checkIDs finds a job whose id is less than that of one that was there before its put was sent.
func checkIDs(history []Op) error {
	var puts []*Op
	for i := range history {
		if o := &history[i]; o.Verb == Put && o.Reply == "INSERTED" {
			puts = append(puts, o)
		}
	}
	sent := slices.SortedStableFunc(slices.Values(puts), func(x, y *Op) int { return cmp.Compare(x.Call, y.Call) })
	slices.SortStableFunc(puts, func(x, y *Op) int { return cmp.Compare(x.Return, y.Return) })
	var last *Op
	for _, o := range sent {
		for ; len(puts) > 0 && puts[0].Return < o.Call; puts = puts[1:] {
			if last == nil || puts[0].ID > last.ID {
				last = puts[0]
			}
		}
		if last != nil && o.ID < last.ID {
			return fmt.Errorf("ids go back:\n%s\n%s", last, o)
		}
	}
	return nil
}

// Longest is the longest time for which a client of one of these waited for a reply that was due at
// once, of all who waited between two times of the history.
func (c *Crew) Longest(from, to time.Duration, among ...*Post) (longest time.Duration) {
	c.mu.Lock()
	where := maps.Clone(c.where)
	c.mu.Unlock()
	c.Recorder.mu.Lock()
	defer c.Recorder.mu.Unlock()
	for i := range c.Recorder.ops {
		o := &c.Recorder.ops[i]
		if o.Reply != "" && o.Wait == 0 && o.Call < int64(to) && o.Return > int64(from) && slices.Contains(among, where[o.Session]) {
			longest = max(longest, time.Duration(o.Return-o.Call))
		}
	}
	return longest
}

// Now is the time of the history.
func (c *Crew) Now() time.Duration { return time.Duration(c.Recorder.now()) }

// Summary tells how many commands had which reply.
func (c *Crew) Summary() string {
	c.Recorder.mu.Lock()
	defer c.Recorder.mu.Unlock()
	count := map[string]int{}
	for i := range c.Recorder.ops {
		if o := &c.Recorder.ops[i]; o.Verb != end {
			count[cmp.Or(o.Reply, "no reply")]++
		}
	}
	return fmt.Sprint(count)
}
