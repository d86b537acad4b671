package shard

import (
	"iter"
	"slices"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/sliceheap"
	"trellis/engine/stats"
)

// A Survey finds the first jobs of a tube in one state, in the order in which they would
// be taken, a slice under each lock. Reserved jobs are in the order of their ids. A job
// that keeps its state and its sort key while the survey is made is found, if enough
// are asked for.
type Survey struct {
	scan
	client *Client // who has asked for it; nil if none has
	state  state
	most   int
	after  sortKey

	begun bool
	met   bool        // all jobs were
	at    clock.Time  // when they were
	pos   journal.Pos // that the list depends on
	found []listed    // a heap, the last in order first, until it is sorted
	count int         // of found, those that are still a heap
	cost  int         // of changes of the heap since the last takeCost
}

// sortKey is a position in the order of a tube's jobs in one state. The zero sortKey is
// before all.
type sortKey struct{ key, id uint64 }

func (p sortKey) before(q sortKey) bool { return p.key < q.key || p.key == q.key && p.id < q.id }

// listed is a job that was found.
type listed struct {
	sortKey
	pri, size   uint32
	created, at clock.Time
}

// sortKey is the job's in the order of the tube's jobs in the same state.
func (j *job) sortKey() sortKey {
	p := sortKey{id: j.ID}
	switch j.state {
	case ready:
		p.key = uint64(j.pri)
	case delayed, held:
		p.key = j.at().Key()
	case buried:
		p.key = uint64(j.At)
	}
	return p
}

// newSurvey begins a survey for at most `most` jobs of the tube of that name.
func newSurvey(sh *shard, name string, of state, most int) *Survey {
	return &Survey{scan: scanOf(sh, name), state: of, most: most}
}

// Survey begins one for at most `most` jobs of the tube of that name, which a client asks for: the first
// ones, or those behind the job with that id. It may be the one at which the client's last list has ended.
// A job in a tube that is not permitted is not known; nil permits all.
func (c *Tx) Survey(
	now clock.Time, cl *Client, name []byte, in codec.State, most int, behind uint64, permits func(string) bool,
	out *reply.Output,
) (*Survey, error) {
	of := stateOf(in)
	after, known := c.behind(now, name, of, behind, c.listEnds[cl], permits)
	sh, t := c.lockTube(now, name, out)
	if t == nil {
		return nil, reply.ErrNotFound
	}
	if !known {
		return nil, c.refuse(sh, out)
	}
	v := newSurvey(sh, t.name, of, most)
	v.client, v.after = cl, after
	sh.unlock(c)
	return v, nil
}

// A listEnd is where a list has ended, so that the next one can go on there although the job may have gone.
type listEnd struct {
	tube  string
	state state
	sortKey
}

// behind finds the sort key of the job behind which a list is to begin.
func (c *Tx) behind(
	now clock.Time, name []byte, of state, id uint64, last listEnd, permits func(string) bool,
) (p sortKey, known bool) {
	if id == 0 || of == reserved {
		return sortKey{id: id}, true
	}
	if last.id == id && last.tube == string(name) && last.state == of {
		return last.sortKey, true
	}
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return p, false
	}
	defer sh.unlock(c)
	if permits != nil && !permits(sh.tubes[j.tube].name) {
		return p, false // that there is such a job, and its priority, are none of the client's business
	}
	if of == ready {
		return sortKey{key: uint64(j.pri), id: j.ID}, true
	}
	return j.sortKey(), j.state.shown() == of && sh.tubes[j.tube].name == string(name)
}

const sortSlice = 256 // jobs that are put into order in one go

// Turn does as much as the round's budget allows. When all was found, the list depends on pos.
func (v *Survey) Turn(c *Tx, now clock.Time) (pos journal.Pos, more bool) {
	if !v.met {
		if !v.run(c, now) {
			return 0, true
		}
		v.met, v.at, v.pos = true, v.shard.now, v.shard.dependsOn(v.shard.now)
		v.shard.unlock(c)
	}
	for v.sort(sortSlice) {
		if c.spend(sortSlice); !c.left() {
			return 0, true
		}
	}
	if n := len(v.found); n > 0 {
		if c.listEnds == nil {
			c.listEnds = make(map[*Client]listEnd)
		}
		c.listEnds[v.client] = listEnd{v.tube, v.state, v.found[n-1].sortKey}
	}
	return v.pos, false
}

// run looks at slices of jobs until all were looked at, and then holds the lock. It returns
// false when the round's budget is spent before.
func (v *Survey) run(c *Tx, now clock.Time) (done bool) {
	for {
		v.shard.lock(c, now)
		done = v.look(v.shard.byName[v.tube])
		c.spend(v.takeCost() + scanCost)
		if done {
			return true
		}
		v.shard.unlock(c)
		if !c.left() {
			return false
		}
	}
}

// At returns the i-th of the jobs that were found, and false behind the last one.
func (v *Survey) At(i int) (x stats.ListedJob, ok bool) {
	if i >= len(v.found) {
		return x, false
	}
	e := &v.found[i]
	x = stats.ListedJob{ID: e.id, Pri: e.pri, Size: e.size, Age: max(0, v.at-e.created), Left: -1}
	if v.state == delayed || v.state == reserved {
		x.Left = max(0, e.at-v.at)
	}
	return x, true
}

// look looks at the next slice of the jobs of t, the tube as it is now, or nil. It
// returns true at the end. The shard is locked.
func (v *Survey) look(t *tube) (done bool) {
	if t == nil || v.most == 0 || t.countShown(v.state) == 0 {
		return true
	}
	if !v.begun {
		v.begun = true
		if some := v.directly(t); some != nil {
			for r := range some {
				v.see(v.shard.job(r))
			}
			return true
		}
	}
	v.slice(t, func(_ ref, j *job) bool {
		if j.state.shown() == v.state {
			v.see(j)
		}
		return true
	})
	return v.done()
}

// firstPage is how many jobs a survey takes from the heads of a tube's queues at most.
const firstPage = 100

// directly yields jobs among which are all that are to be found, from the tube's own queues and
// without regard to how many jobs others have. It is nil if there is no such way.
func (v *Survey) directly(t *tube) iter.Seq[ref] {
	first := v.after == sortKey{} && v.most <= firstPage
	switch sh := v.shard; {
	case v.state == reserved:
		if sh.totals.in[reserved] <= scanSlice && len(sh.reservations) <= scanSlice {
			return sh.reservedOf(t)
		}
	case t.countShown(v.state) <= scanSlice:
		if t.held != nil && v.state == delayed {
			return chain(t.all(delayed), t.all(held))
		}
		return t.all(v.state)
	case !first:
	case v.state == ready && t.limited == nil && t.fair == nil:
		return t.ready.Least(sh.table, v.most)
	case v.state == delayed && t.held != nil:
		return chain(t.delayed.LeastRefs(v.most), t.held.LeastRefs(v.most))
	case v.state == delayed:
		return t.delayed.LeastRefs(v.most)
	case v.state == buried:
		return t.buried.Least(sh.table, v.most)
	}
	return nil
}

// chain yields what a yields, and then what b yields.
func chain(a, b iter.Seq[ref]) iter.Seq[ref] {
	return func(yield func(ref) bool) {
		for r := range a {
			if !yield(r) {
				return
			}
		}
		b(yield)
	}
}

// reservedOf yields the reserved jobs of a tube. It looks at all that are reserved in the shard.
func (sh *shard) reservedOf(t *tube) iter.Seq[ref] {
	return func(yield func(ref) bool) {
		for _, h := range sh.reservations {
			if h == nil {
				continue
			}
			for r := range h.jobs.All() {
				if sh.job(r).tube == t.index && !yield(r) {
					return
				}
			}
		}
	}
}

// see takes a job, if it is one of the first.
func (v *Survey) see(j *job) {
	p := j.sortKey()
	if !v.after.before(p) {
		return
	}
	e := listed{p, j.pri, j.size, j.created, j.at()}
	if j.state == held {
		e.at = 0
	}
	switch {
	case v.count < v.most:
		v.cost++
		v.found = append(v.found, e)
		v.count++
		sliceheap.Up(v.found, behind)
	case p.before(v.found[0].sortKey):
		v.cost++
		v.found[0] = e
		sliceheap.Down(v.found[:v.count], behind)
	}
}

// takeCost returns what was spent on jobs that were found since it was last
// called.
func (v *Survey) takeCost() (n int) {
	n, v.cost = v.cost, 0
	return n
}

// behind is the order of the heap.
func behind(a, b *listed) bool { return b.before(a.sortKey) }

// sort puts the next n jobs, from the last one on down, into order. It returns false
// when all are.
func (v *Survey) sort(n int) (more bool) {
	for ; n > 0 && v.count > 0; n-- {
		v.count--
		v.found[0], v.found[v.count] = v.found[v.count], v.found[0]
		sliceheap.Down(v.found[:v.count], behind)
	}
	if v.count > 0 {
		return true
	}
	// A job whose record was moved may have been met twice.
	v.found = slices.CompactFunc(v.found, func(a, b listed) bool { return a.id == b.id })
	return false
}
