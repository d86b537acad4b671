package engine

import (
	"fmt"
	"reflect"

	"trellis/engine/internal/arena"
)

// A census walks everything that an engine holds while nothing happens in it,
// and reports what does not fit together.
type census struct {
	engine   *Engine
	sessions []*Session // all that are open, or closed while a job was on its way to them
	firstID  uint64     // no id below it was handed out
	ballast  map[*shard]ballast
	errs     []error

	jobs     map[place]uint64   // what the index of ids knows
	visited  map[place]string   // the queue in which a job was found
	counters map[ref]uint64     // of the present shard
	timers   map[*timer]string  // of the present shard or loop: those that should be set
	using    map[*tube]int      // sessions
	watched  map[*tube]int      // sessions
	mailed   map[*Session]*Loop // sessions in a mailbox, or taken out of it and not looked at
}

// jobCounts are those of a shard's counts that can be counted again.
type jobCounts struct {
	in     [numStates]int
	urgent int
}

// ballast is what a test has taken of a shard's memory without a job.
type ballast struct{ jobs, counters, bodies []ref }

const ballastBody = 100 // bytes

func (c *census) run() []error {
	e := c.engine
	c.jobs, c.visited = map[place]uint64{}, map[place]string{}
	c.using, c.watched = map[*tube]int{}, map[*tube]int{}
	c.mailed = map[*Session]*Loop{}
	for id := max(c.firstID, 1); id <= e.lastID.Load() && id != 0; id++ {
		if p := e.ids.get(id); p != 0 {
			if other, twice := c.jobs[p]; twice {
				c.failf("jobs %d and %d have the same place", other, id)
			}
			c.jobs[p] = id
		}
	}
	for _, s := range c.sessions {
		c.session(s)
	}
	for _, l := range e.loops {
		c.loop(l)
	}
	for _, sh := range e.shards {
		c.shard(sh)
	}
	c.registry()
	if len(c.visited) != len(c.jobs) {
		c.failf("the index knows %d jobs, the queues %d", len(c.jobs), len(c.visited))
	}
	return c.errs
}

func (c *census) failf(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *census) session(s *Session) {
	c.using[s.used]++
	var watches, holds shardSet
	for i := range s.watched {
		w := &s.watched[i]
		c.watched[w.tube]++
		watches |= 1 << w.tube.shard.number
		if w.session != s {
			c.failf("a watch of %s names another session", w.tube.name)
		}
		if w.queued() && s.claim.Load() == claimFree {
			c.failf("a session that does not wait stands in the queue of %s", w.tube.name)
		}
		if !w.queued() && s.claim.Load() == claimWaiting {
			c.failf("a session that waits is missing from the queue of %s", w.tube.name)
		}
	}
	for _, h := range s.holdings {
		if h.session != s || h.shard.holdings[h.index] != h {
			c.failf("a holding in shard %d is not its session's", h.shard.number)
		}
		holds |= 1 << h.shard.number
	}
	if watches != s.watches || holds != s.holds || len(s.watched) == 0 {
		c.failf("shards watched %b, held in %b; want %b, %b", s.watches, s.holds, watches, holds)
	}
}

func (c *census) loop(l *Loop) {
	c.caller(&l.caller)
	waiting, open, producers, workers := 0, 0, 0, 0
	c.timers = map[*timer]string{}
	for _, s := range l.mail.list {
		if c.mailed[s] != nil {
			c.failf("a session is in a mailbox twice")
		}
		c.mailed[s] = l
		if s.loop != l || s.claim.Load() != claimTaken {
			c.failf("a session in the mailbox has claim %d", s.claim.Load())
		}
	}
	for _, s := range l.queue.list[l.queue.head:] {
		if s.loop != l {
			c.failf("a session is in the queue of another loop")
		}
		if s.claim.Load() == claimTaken {
			c.mailed[s] = l
		}
	}
	if l.hasMail.Load() != (len(l.mail.list) > 0) || len(l.mail.list) > 0 && !l.mail.rung {
		c.failf("a mailbox of %d says %v, rung %v", len(l.mail.list), l.hasMail.Load(), l.mail.rung)
	}
	for _, s := range c.sessions {
		if s.loop != l {
			continue
		}
		if s.flags&isOpen != 0 {
			open++
			producers += int(s.flags & isProducer / isProducer)
			workers += int(s.flags & isWorker / isWorker)
		} else if c.mailed[s] == nil {
			c.failf("a closed session is still there")
		}
		switch s.claim.Load() {
		case claimWaiting:
			waiting++
			at := min(s.wait.until, s.wait.soon)
			if at != MaxTime {
				c.covered(&s.wait.timer, at, "a waiting session")
			} else if s.wait.timer.set() {
				c.failf("a session that waits for ever has a timer")
			}
		case claimTaken:
			if c.mailed[s] == nil {
				c.failf("a claimed session is in no mailbox")
			}
			if s.wait.timer.set() {
				c.timers[&s.wait.timer] = "a claimed session"
			}
		default:
			if s.wait != nil && s.wait.timer.set() {
				c.failf("a session that does not wait has a timer")
			}
		}
	}
	c.wheel(&l.wheel, l.due, "a loop")
	n := &l.counts
	if n.waiting.Load() != int64(waiting) || n.sessions.Load() != int64(open) ||
		n.producers.Load() != int64(producers) || n.workers.Load() != int64(workers) {
		c.failf("a loop counts %d waiting of %d, %d producers, %d workers; there are %d of %d, %d, %d",
			n.waiting.Load(), n.sessions.Load(), n.producers.Load(), n.workers.Load(),
			waiting, open, producers, workers)
	}
}

func (c *census) caller(by *caller) {
	if by.locks != 0 || len(by.bells) != 0 {
		c.failf("a caller has %d locks and %d bells to ring", by.locks, len(by.bells))
	}
}

// covered checks that a timer fires no later than it is needed.
func (c *census) covered(t *timer, at Time, of string) {
	if !t.set() || t.at > at {
		c.failf("the timer of %s is set (%v) to %d, needed at %d", of, t.set(), t.at, at)
	}
	c.timers[t] = of
}

// wheel checks that exactly the timers in c.timers stand in w, each where it
// will be found in time, and that its owner wakes in time.
func (c *census) wheel(w *wheel, due Time, of string) {
	found := 0
	soonest := MaxTime
	for level := range w.slots {
		for slot, first := range w.slots[level] {
			if w.filled[level]>>slot&1 != 0 != (first != nil) {
				c.failf("%s: slot %d.%d is marked wrongly", of, level, slot)
			}
			var last *timer
			for t := first; t != nil; t = t.next {
				found++
				soonest = min(soonest, t.at)
				if c.timers[t] == "" {
					c.failf("%s: slot %d.%d has a timer that should not be set", of, level, slot)
				}
				if t != first && t.prev != last || int(t.place) != level*wheelSlots+slot+1 {
					c.failf("%s: slot %d.%d is linked wrongly", of, level, slot)
				}
				tick, shift := max(int64(t.at)>>tickBits, w.now), level*slotBits
				if int(tick>>shift&(wheelSlots-1)) != slot || (tick^w.now)>>shift>>slotBits != 0 ||
					level > 0 && tick>>shift == w.now>>shift {
					c.failf("%s: a timer for tick %d stands in slot %d.%d at tick %d", of, tick, level, slot, w.now)
				}
				last = t
			}
			if first != nil && first.prev != last {
				c.failf("%s: slot %d.%d does not know its last", of, level, slot)
			}
		}
	}
	if found != len(c.timers) {
		c.failf("%s: %d timers are set, %d are needed", of, found, len(c.timers))
	}
	if due > soonest {
		c.failf("%s wakes at %d, needed at %d", of, due, soonest)
	}
}

func (c *census) shard(sh *shard) {
	if !sh.mu.TryLock() {
		c.failf("shard %d is locked", sh.number)
		return
	}
	defer sh.mu.Unlock()
	if sh.by != nil {
		c.failf("shard %d is held by a caller", sh.number)
	}
	c.timers, c.counters = map[*timer]string{}, map[ref]uint64{}
	var want jobCounts
	before := len(c.visited)

	named, free := 0, 0
	for i, t := range sh.tubes {
		if t == nil {
			free++
			continue
		}
		named++
		if t.shard != sh || t.index != uint32(i) || sh.byName[t.name] != t || c.engine.shardFor([]byte(t.name)) != sh {
			c.failf("tube %s is not in its place", t.name)
		}
		c.tube(sh, t, &want)
	}
	if named != len(sh.byName) || free != len(sh.freeTubes) {
		c.failf("shard %d has %d tubes and %d names, %d free entries and knows %d", sh.number, named, len(sh.byName), free, len(sh.freeTubes))
	}

	free = 0
	for i, h := range sh.holdings[1:] {
		if h == nil {
			free++
			continue
		}
		if h.shard != sh || h.index != uint32(i+1) {
			c.failf("holding %d of shard %d is not in its place", i, sh.number)
		}
		c.holding(h, &want)
	}
	if free != len(sh.freeHoldings) || sh.holdings[0] != nil {
		c.failf("shard %d has %d free holdings and knows %d", sh.number, free, len(sh.freeHoldings))
	}

	if sh.tidier.timer.set() {
		c.timers[&sh.tidier.timer] = "the tidier"
	}
	c.wheel(&sh.wheel, sh.due, fmt.Sprintf("shard %d", sh.number))
	if sh.armed > sh.due {
		c.failf("shard %d is due at %d and asked for %d", sh.number, sh.due, sh.armed)
	}
	if got := (jobCounts{sh.tally.in, sh.tally.urgent}); got != want {
		c.failf("shard %d counts %+v, has %+v", sh.number, got, want)
	}

	bodies := 0
	for p := range c.visited {
		if p.shard() == sh.number && sh.job(p.ref()).size > 0 {
			bodies++
		}
	}
	for _, s := range c.sessions {
		if s.incoming != nil && s.used.shard == sh && s.incoming.size > 0 {
			bodies++
		}
	}
	for key, p := range sh.pins {
		if p.count <= 0 {
			c.failf("shard %d keeps a pin that nobody needs", sh.number)
		}
		if p.orphan && key.size > 0 {
			bodies++
		}
	}
	b := c.ballast[sh]
	if n := len(c.visited) - before + len(b.jobs); n != sh.jobs.Live() {
		c.failf("shard %d: %d job records, %d jobs", sh.number, sh.jobs.Live(), n)
	}
	if n := len(c.counters) + len(b.counters); n != sh.counters.Live() {
		c.failf("shard %d: %d tallies, %d are used", sh.number, sh.counters.Live(), n)
	}
	if n := bodies + len(b.bodies); n != liveBodies(&sh.bodies) {
		c.failf("shard %d: %d bodies, %d are used", sh.number, liveBodies(&sh.bodies), n)
	}
}

// liveBodies counts the bodies that were allocated and not freed.
func liveBodies(b *arena.Bodies) int {
	v := reflect.ValueOf(b).Elem()
	n := v.FieldByName("large").Len() - v.FieldByName("unused").Len()
	classes := v.FieldByName("classes")
	for i := range classes.Len() {
		n += int(classes.Index(i).FieldByIndex(liveOfPool).Int())
	}
	return n
}

var liveOfPool = func() []int {
	f, _ := reflect.TypeFor[arena.Pool]().FieldByName("live")
	return f.Index
}()

// visit notes that a job was found in a queue.
func (c *census) visit(sh *shard, r ref, want state, in string) *job {
	p := placeOf(sh.number, r)
	j := sh.job(r)
	if id := c.jobs[p]; id == 0 || id != j.id {
		c.failf("%s has job %d at the place of %d", in, j.id, id)
	}
	if c.visited[p] != "" {
		c.failf("job %d is in %s and in %s", j.id, c.visited[p], in)
	}
	c.visited[p] = in
	if j.state != want {
		c.failf("job %d in %s is %v", j.id, in, j.state)
	}
	if j.counters != 0 {
		if other := c.counters[j.counters]; other != 0 {
			c.failf("jobs %d and %d share a tally", other, j.id)
		}
		c.counters[j.counters] = j.id
	}
	return j
}

// heap checks the order of a heap, and that its jobs know their places in it.
func (c *census) heap(sh *shard, h heap, in string) {
	for i, e := range h {
		j := sh.job(e.ref)
		if j.id != e.id || int(j.prev) != i {
			c.failf("%s: entry %d is job %d, which is job %d at %d", in, i, e.id, j.id, j.prev)
		}
		if i > 0 && e.before(h[(i-1)/heapArity]) {
			c.failf("%s: entry %d is before its parent", in, i)
		}
	}
}

func (c *census) tube(sh *shard, t *tube, want *jobCounts) {
	c.readyJobs(sh, t, want)

	c.heap(sh, t.delayed, "delayed jobs of "+t.name)
	next := MaxTime
	for _, e := range t.delayed {
		j := c.visit(sh, e.ref, delayed, "delayed jobs of "+t.name)
		if e.key != uint64(j.at) || j.tube != t.index {
			c.failf("job %d is delayed until %d in tube %d, queued for %d in %d", j.id, j.at, j.tube, e.key, t.index)
		}
		next = min(next, j.at)
		want.in[delayed]++
	}

	count, prev := 0, ref(0)
	for r := t.buried.head; r != 0; count++ {
		j := c.visit(sh, r, buried, "buried jobs of "+t.name)
		if j.prev != prev || j.tube != t.index {
			c.failf("buried job %d of %s is linked wrongly", j.id, t.name)
		}
		prev, r = r, j.next
		want.in[buried]++
	}
	if count != t.buried.count || t.buried.tail != prev {
		c.failf("%s counts %d buried jobs, has %d", t.name, t.buried.count, count)
	}

	if t.pausedUntil != 0 {
		next = min(next, t.pausedUntil)
	} else if t.pause != 0 {
		c.failf("%s shows a pause and has none", t.name)
	}
	if next != MaxTime {
		c.covered(&t.timer, next, "tube "+t.name)
	} else if t.timer.set() {
		c.timers[&t.timer] = "tube " + t.name
	}

	waiting, claimable := 0, 0
	var last *watch
	for w := t.firstWaiting; w != nil; w = w.next {
		waiting++
		if w.tube != t || !w.queued() || w.prev != last {
			c.failf("the sessions that wait for %s are linked wrongly", t.name)
		}
		switch w.session.claim.Load() {
		case claimWaiting:
			claimable++
		case claimFree:
			c.failf("a session stands in the queue of %s and does not wait", t.name)
		}
		last = w
	}
	if waiting != t.waiting || t.lastWaiting != last {
		c.failf("%s counts %d waiting sessions, has %d", t.name, t.waiting, waiting)
	}
	if claimable > 0 && t.ready.count > 0 && t.pausedUntil == 0 {
		c.failf("%s has %d ready jobs and %d sessions that wait", t.name, t.ready.count, claimable)
	}
	if t.using != c.using[t] || t.watching != c.watched[t] {
		c.failf("%s counts %d using and %d watching, has %d and %d", t.name, t.using, t.watching, c.using[t], c.watched[t])
	}
	if t.using == 0 && t.watching == 0 && t.jobs() == 0 && t.name != defaultTube {
		c.failf("%s is there for nobody", t.name)
	}
}

func (c *census) readyJobs(sh *shard, t *tube, want *jobCounts) {
	q := &t.ready
	in := "ready jobs of " + t.name
	count, urgent := 0, 0
	marks := make([]int, len(q.ages.marks))
	see := func(r ref) *job {
		j := c.visit(sh, r, ready, in)
		mark := len(marks) - 1
		for mark >= 0 && q.ages.marks[mark].since > j.at {
			mark--
		}
		if mark >= 0 {
			marks[mark]++
		}
		if j.tube != t.index {
			c.failf("job %d of tube %d is in tube %d", j.id, j.tube, t.index)
		}
		count++
		if j.pri < urgentBelow {
			urgent++
		}
		return j
	}
	c.heap(sh, q.heap, in)
	for _, e := range q.heap {
		if j := see(e.ref); !j.heaped || e.key != uint64(j.pri) {
			c.failf("job %d of priority %d is in the heap with %d, %v", j.id, j.pri, e.key, j.heaped)
		}
	}
	runs := map[uint32]bool{}
	for _, u := range q.runs {
		if runs[u.pri] || u.head == 0 {
			c.failf("%s has two runs of priority %d, or an empty one", t.name, u.pri)
		}
		runs[u.pri] = true
		prev, id := ref(0), uint64(0)
		for r := u.head; r != 0; {
			j := see(r)
			if j.heaped || j.prev != prev || j.id <= id || j.pri != u.pri {
				c.failf("job %d of priority %d is wrong in the run of %d", j.id, j.pri, u.pri)
			}
			prev, id, r = r, j.id, j.next
		}
		if prev != u.tail {
			c.failf("the run of %d in %s does not know its last", u.pri, t.name)
		}
	}
	if count != q.count || urgent != q.urgent || len(q.runs) > maxRuns {
		c.failf("%s counts %d ready jobs, %d urgent; has %d, %d in %d runs", t.name, q.count, q.urgent, count, urgent, len(q.runs))
	}
	for i, m := range q.ages.marks {
		if m.jobs != marks[i] || i > 0 && m.since <= q.ages.marks[i-1].since || i == 0 && m.jobs == 0 {
			c.failf("%s has %d jobs ready since %d, counts %d", t.name, marks[i], m.since, m.jobs)
		}
	}
	want.in[ready] += count
	want.urgent += urgent
}

func (c *census) holding(h *holding, want *jobCounts) {
	sh := h.shard
	c.heap(sh, h.jobs, "a holding")
	for _, e := range h.jobs {
		j := c.visit(sh, e.ref, reserved, "a holding")
		if e.key != uint64(j.at) || j.next != h.index || !sh.heldBy(h.session, j) {
			c.failf("reserved job %d runs until %d in holding %d, is held until %d in %d", j.id, j.at, j.next, e.key, h.index)
		}
		if j.counters == 0 {
			c.failf("reserved job %d has no counters", j.id)
		}
		want.in[reserved]++
	}
	if len(h.jobs) > 0 {
		c.covered(&h.timer, Time(h.jobs[0].key), "a holding")
	} else if h.timer.set() {
		c.timers[&h.timer] = "a holding"
	}
}

func (c *census) registry() {
	total := 0
	for _, sh := range c.engine.shards {
		total += len(sh.byName)
		held := map[uint32]int{}
		for _, h := range sh.holdings {
			if h != nil {
				for _, e := range h.jobs {
					held[sh.job(e.ref).tube]++
				}
			}
		}
		for _, t := range sh.byName {
			if t.reserved != held[t.index] {
				c.failf("%s counts %d reserved jobs, has %d", t.name, t.reserved, held[t.index])
			}
		}
	}
	bytes := 0
	for i, t := range c.engine.registry.list() {
		bytes += len(t.name)
		if t.listed != i || t.shard.byName[t.name] != t {
			c.failf("the list of tubes has %s at %d, which knows %d", t.name, i, t.listed)
		}
	}
	if g := &c.engine.registry; g.size() != total || g.bytes != bytes {
		c.failf("%d tubes with names of %d bytes are listed, there are %d with %d", g.size(), g.bytes, total, bytes)
	}
	for t := range c.using {
		if t.shard.byName[t.name] != t {
			c.failf("a session uses tube %s, which is gone", t.name)
		}
	}
	for t := range c.watched {
		if t.shard.byName[t.name] != t {
			c.failf("a session watches tube %s, which is gone", t.name)
		}
	}
}

// list is the whole list.
func (g *registry) list() (tubes []*tube) {
	for i := range g.count {
		tubes = append(tubes, g.pages[i/pageTubes].tubes[i%pageTubes])
	}
	return tubes
}

// checkEmpty reports what an engine without sessions and jobs still has.
func checkEmpty(e *Engine) (errs []error) {
	c := &census{engine: e, firstID: e.lastID.Load()}
	errs = c.run()
	for _, sh := range e.shards {
		if sh.jobs.Live() != 0 || len(sh.freeHoldings) != len(sh.holdings)-1 || len(sh.byName) > 1 {
			errs = append(errs, fmt.Errorf("shard %d is not empty", sh.number))
		}
	}
	if n := e.registry.size(); n != 1 {
		errs = append(errs, fmt.Errorf("there are %d tubes", n))
	}
	for _, l := range e.loops {
		if _, tick := l.wheel.nextSlot(); tick != 0 {
			errs = append(errs, fmt.Errorf("a loop still has timers"))
		}
	}
	return errs
}
