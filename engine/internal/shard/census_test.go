package shard

import (
	"fmt"
	"reflect"
	"slices"

	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/resident"
)

// A census walks everything that an engine holds while nothing happens in it,
// and reports what does not fit together.
type census struct {
	engine   *Engine
	sessions []*Session // all that are open, or closed while a job was on its way to them
	firstID  uint64     // no id below it was handed out
	ballast  map[*shard]ballast
	errs     []error
	kept     []resident.Entry

	jobs     map[ids.Place]uint64    // what the index of ids knows
	visited  map[ids.Place]string    // the queue in which a job was found
	counters map[ref]uint64          // of the present shard
	timers   map[*queue.Timer]string // of the present shard or loop: those that should be set
	using    map[*tube]int           // sessions
	watched  map[*tube]int           // sessions
	mailed   map[*Session]*Loop      // sessions in a mailbox, or taken out of it and not looked at
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
	c.jobs, c.visited = map[ids.Place]uint64{}, map[ids.Place]string{}
	c.using, c.watched = map[*tube]int{}, map[*tube]int{}
	c.mailed = map[*Session]*Loop{}
	for id := max(c.firstID, 1); id <= e.ids.Last.Load() && id != 0; id++ {
		if p := e.ids.Get(id); p != 0 {
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
	c.roster()
	c.countKeys()
	c.groups()
	c.accounts()
	c.roll()
	if len(c.visited) != len(c.jobs) {
		c.failf("the index knows %d jobs, the queues %d", len(c.jobs), len(c.visited))
	}
	return c.errs
}

func (c *census) failf(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// covered checks that a timer fires no later than it is needed.
func (c *census) covered(t *queue.Timer, at clock.Time, of string) {
	if !t.Scheduled() || clock.Time(t.At()) > at {
		c.failf("the timer of %s is set (%v) to %d, needed at %d", of, t.Scheduled(), t.At(), at)
	}
	c.timers[t] = of
}

// wheel checks that exactly the timers in c.timers stand in w, and that its owner wakes
// in time.
func (c *census) wheel(w *queue.Wheel, due clock.Time, of string) {
	if err := w.Check(); err != nil {
		c.failf("%s: %w", of, err)
	}
	found := 0
	soonest := clock.MaxTime
	for t := range w.All() {
		found++
		soonest = min(soonest, clock.Time(t.At()))
		if c.timers[t] == "" {
			c.failf("%s has a timer that should not be set", of)
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
	c.timers, c.counters = map[*queue.Timer]string{}, map[ref]uint64{}
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
	for i, h := range sh.reservations[1:] {
		if h == nil {
			free++
			continue
		}
		if h.shard != sh || h.index != uint32(i+1) {
			c.failf("reservations %d of shard %d are at another index", i, sh.number)
		}
		c.reservations(h, &want)
	}
	if free != len(sh.freeReservations) || sh.reservations[0] != nil {
		c.failf("shard %d has %d free lists of reservations and knows %d", sh.number, free, len(sh.freeReservations))
	}

	c.keys(sh, &want)
	if sh.firings.timer.Scheduled() {
		c.timers[&sh.firings.timer] = "firings"
	}
	if sh.tidier.timer.Scheduled() {
		c.timers[&sh.tidier.timer] = "the tidier"
	}
	c.wheel(&sh.wheel, sh.due, fmt.Sprintf("shard %d", sh.number))
	if sh.armed > sh.due {
		c.failf("shard %d is due at %d and asked for %d", sh.number, sh.due, sh.armed)
	}
	if got := (jobCounts{sh.totals.in, sh.totals.urgent}); got != want {
		c.failf("shard %d counts %+v, has %+v", sh.number, got, want)
	}

	bodies := 0
	for p := range c.visited {
		if p.Shard() == sh.number && sh.job(p.Ref()).size > 0 && !sh.job(p.Ref()).cold() {
			bodies++
		}
	}
	for _, s := range c.sessions {
		if in := s.incomingPut(); in != nil && in.id != 0 && s.client.used.shard == sh && in.size > 0 {
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
	c.residents(sh, bodies)
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
	p := ids.PlaceOf(sh.number, r)
	j := sh.job(r)
	if id := c.jobs[p]; id == 0 || id != j.ID {
		c.failf("%s has job %d at the place of %d", in, j.ID, id)
	}
	if c.visited[p] != "" {
		c.failf("job %d is in %s and in %s", j.ID, c.visited[p], in)
	}
	c.visited[p] = in
	if j.state != want {
		c.failf("job %d in %s is %v", j.ID, in, j.state)
	}
	if j.counters != 0 {
		if other := c.counters[j.counters]; other != 0 {
			c.failf("jobs %d and %d share their counters", other, j.ID)
		}
		c.counters[j.counters] = j.ID
	}
	return j
}

// check reports what a queue says of itself.
func (c *census) check(err error, of string) {
	if err != nil {
		c.failf("%s: %w", of, err)
	}
}

func (c *census) tube(sh *shard, t *tube, want *jobCounts) {
	q, in := &t.ready, "ready jobs of "+t.name
	if t.limited != nil {
		c.limits(sh, t)
	}
	if t.fair != nil {
		c.fair(sh, t)
	}
	c.check(q.Check(sh.table, func(r ref) uint32 { return sh.job(r).pri }, slices.Collect(t.withheld())...), in)
	for r := range t.allReady() {
		c.inTube(c.visit(sh, r, ready, in), t)
	}
	want.in[ready] += q.Len()
	want.urgent += q.Urgent()

	in = "delayed jobs of " + t.name
	c.check(t.delayed.Check(sh.table), in)
	next := clock.MaxTime
	for i := range t.delayed.Len() {
		e := t.delayed.At(i)
		j := c.visit(sh, e.Ref, delayed, in)
		c.inTube(j, t)
		if clock.TimeOf(e.Key) != j.at() {
			c.failf("job %d is delayed until %d, queued for %d", j.ID, j.At, e.Key)
		}
		next = min(next, j.at())
		want.in[delayed]++
	}

	c.held(sh, t, want)

	in = "buried jobs of " + t.name
	c.check(t.buried.Check(sh.table), in)
	for r := range t.buried.All(sh.table) {
		j := c.visit(sh, r, buried, in)
		c.inTube(j, t)
		if uint64(j.At) > sh.buries {
			c.failf("job %d was buried as the %dth of %d", j.ID, j.At, sh.buries)
		}
		want.in[buried]++
	}

	if t.pausedUntil != 0 {
		next = min(next, t.pausedUntil)
	} else if t.pause != 0 {
		c.failf("%s shows a pause and has none", t.name)
	}
	if t.firstWaiting != nil && t.isShut() {
		next = min(next, t.shut)
	}
	if next != clock.MaxTime {
		c.covered(&t.timer, next, "tube "+t.name)
	} else if t.timer.Scheduled() {
		c.timers[&t.timer] = "tube " + t.name
	}

	waiting, claimable := 0, 0
	var last *subscription
	for w := t.firstWaiting; w != nil; w = w.next {
		waiting++
		if w.tube != t || !w.queued() || w.prev != last {
			c.failf("the sessions that wait for %s are linked wrongly", t.name)
		}
		switch w.waiter.Client().claimed.Load() {
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
	if claimable > 0 && t.next() != 0 && !t.isShut() {
		c.failf("%s has %d ready jobs and %d sessions that wait", t.name, t.ready.Len(), claimable)
	}
	shut := t.shut
	if t.gate(); t.shut != shut {
		c.failf("%s is shut until %d, by its reasons until %d", t.name, shut, t.shut)
	}
	plain := t.plain
	if t.classify(); t.plain != plain {
		c.failf("that %s is plain is %v, by its features %v", t.name, plain, t.plain)
	}
	if t.using != c.using[t] || t.watching != c.watched[t] {
		c.failf("%s counts %d using and %d watching, has %d and %d", t.name, t.using, t.watching, c.using[t], c.watched[t])
	}
	if t.using == 0 && t.watching == 0 && t.jobs() == 0 && t.name != DefaultTube {
		c.failf("%s is there for nobody", t.name)
	}
}

// ahead counts a job for its tube, if that may read it ahead.
func (c *census) ahead(sh *shard, j *job, of map[*tube]readAhead) {
	if j.state != ready {
		if j.storage&isWanted != 0 {
			c.failf("job %d is %v, and wanted", j.ID, j.state)
		}
		return
	}
	t := sh.tubes[j.tube]
	a := of[t]
	if j.cold() {
		a.cold++
	}
	if j.storage&isWanted != 0 {
		a.wanted += aheadSize(j)
	}
	of[t] = a
}

// residents checks that every body in memory that has a place in the journal can leave memory.
func (c *census) residents(sh *shard, bodies int) {
	x := sh.residents
	if x == nil {
		return
	}
	if x.count != bodies {
		c.failf("shard %d counts %d bodies, has %d", sh.number, x.count, bodies)
	}
	listed := map[uint64]bool{}
	for e, ok := x.First(1 << 63); ok; e, ok = x.First(1 << 63) {
		if _, j := sh.find(e.ID); !void(j, e) {
			listed[e.ID] = true
		}
		x.Drop()
		c.kept = append(c.kept, e)
	}
	for _, e := range c.kept {
		if x.Room() == nil {
			x.Add(e, false)
		}
	}
	c.kept = c.kept[:0]
	aheads := map[*tube]readAhead{}
	cold, coldBytes := 0, int64(0)
	for p, id := range c.jobs {
		if p.Shard() != sh.number {
			continue
		}
		c.ahead(sh, sh.job(p.Ref()), aheads)
		if j := sh.job(p.Ref()); j.cold() {
			cold++
			coldBytes += int64(j.size)
		}
		switch j := sh.job(p.Ref()); {
		case j.cold() && (j.size == 0 || j.state == tombstone):
			c.failf("job %d is cold without a body", id)
		case !j.cold() && j.size > 0 && j.state != tombstone && !listed[id]:
			c.failf("the body of job %d can never leave memory: %+v", id, *j)
		}
	}
	if cold != x.cold || coldBytes != x.coldBytes {
		c.failf("%d cold jobs of %d bytes are counted, there are %d of %d", x.cold, x.coldBytes, cold, coldBytes)
	}
	for _, t := range sh.byName {
		var has readAhead
		if t.ahead != nil {
			has = *t.ahead
		}
		if want := aheads[t]; has.cold != want.cold || has.wanted != want.wanted {
			c.failf("%s counts %d cold jobs and %d bytes wanted, has %d and %d", t.name, has.cold, has.wanted, want.cold, want.wanted)
		}
	}
	bytes, queued, fetches := sh.shared.loads.Waiting()
	if n := sh.shared.loads.Len(); n > 0 || bytes > 0 || queued > 0 || fetches > 0 {
		c.failf("%d loads are under way, %d bodies are to come, %d bytes are waited for, %d waits are not admitted",
			n, fetches, bytes, queued)
	}
}

func (c *census) inTube(j *job, t *tube) {
	if j.tube != t.index {
		c.failf("job %d of tube %d is in tube %d", j.ID, j.tube, t.index)
	}
}

func (c *census) reservations(h *reservations, want *jobCounts) {
	sh := h.shard
	c.check(h.jobs.Check(sh.table), "reservations")
	for i := range h.jobs.Len() {
		e := h.jobs.At(i)
		j := c.visit(sh, e.Ref, reserved, "reservations")
		o := h.of.nobody
		ends := clock.TimeOf(e.Key) == j.at() || o != nil && clock.TimeOf(e.Key) < j.at() && o.tube == sh.tubes[j.tube]
		if !ends || j.Next != h.index || !sh.reservedBy(h.of, j) {
			c.failf("reserved job %d runs until %d in list %d, is held until %d in %d", j.ID, j.At, j.Next, e.Key, h.index)
		}
		if j.counters == 0 {
			c.failf("reserved job %d has no counters", j.ID)
		}
		want.in[reserved]++
	}
	if at := h.deadline(); at != clock.MaxTime {
		c.covered(&h.timer, at, "reservations")
	} else if h.timer.Scheduled() {
		c.timers[&h.timer] = "reservations"
	}
}

func (c *census) roster() {
	total := 0
	for _, sh := range c.engine.shards {
		total += len(sh.byName)
		held := map[uint32]int{}
		for _, h := range sh.reservations {
			if h != nil {
				for r := range h.jobs.All() {
					held[sh.job(r).tube]++
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
	_, count, listed := c.engine.TubeNames()
	for i, t := range c.engine.allTubes() {
		bytes += len(t.name)
		if t.listed != i || t.shard.byName[t.name] != t {
			c.failf("the list of tubes has %s at %d, which knows %d", t.name, i, t.listed)
		}
	}
	if count != total || listed != bytes {
		c.failf("%d tubes with names of %d bytes are listed, there are %d with %d", count, listed, total, bytes)
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

// allTubes is the whole roster.
func (e *Engine) allTubes() (tubes []*tube) {
	at, count, _ := e.roster.Snapshot()
	for i := range count {
		tubes = append(tubes, at(i))
	}
	return tubes
}

// checkEmpty reports what an engine without sessions and jobs still has.
func checkEmpty(e *Engine) (errs []error) {
	c := &census{engine: e, firstID: e.ids.Last.Load()}
	errs = c.run()
	for _, sh := range e.shards {
		if sh.keyed.Len() != 0 || sh.holders.Len() != 0 || sh.keyspaces.Len() != 0 {
			errs = append(errs, fmt.Errorf("shard %d has keys", sh.number))
		}
		if sh.jobs.Live() != 0 || len(sh.freeReservations) != len(sh.reservations)-1 || len(sh.byName) > 1 {
			errs = append(errs, fmt.Errorf("shard %d is not empty", sh.number))
		}
	}
	if n := e.roster.Len(); n != 1 {
		errs = append(errs, fmt.Errorf("there are %d tubes", n))
	}
	for _, l := range e.loops {
		if l.timers().Due() != queue.Never {
			errs = append(errs, fmt.Errorf("a loop still has timers"))
		}
	}
	return errs
}
