package engine

import (
	"iter"
	"slices"
)

// A survey finds the first jobs of a tube in one state, in the order in which they would
// be taken, a slice under each lock. Reserved jobs are in the order of their ids. A job
// that keeps its state and its sort key while the survey is made is found, if enough
// are asked for.
type survey struct {
	scan
	state state
	most  int
	after sortKey

	begun bool
	found []listed // a heap, the last in order first, until it is sorted
	count int      // of found, those that are still a heap
	cost  int      // of changes of the heap since the last takeCost
}

// sortKey is a position in the order of a tube's jobs in one state. The zero sortKey is
// before all.
type sortKey struct{ key, id uint64 }

func (p sortKey) before(q sortKey) bool { return p.key < q.key || p.key == q.key && p.id < q.id }

// listed is what a list shows of a job.
type listed struct {
	sortKey
	pri, size   uint32
	created, at Time
}

// sortKey is the job's in the order of the tube's jobs in the same state.
func (j *job) sortKey() sortKey {
	p := sortKey{id: j.ID}
	switch j.state {
	case ready:
		p.key = uint64(j.pri)
	case delayed, held:
		p.key = j.at().key()
	case buried:
		p.key = uint64(j.At)
	}
	return p
}

// newSurvey begins a survey for at most `most` jobs of the tube of that name.
func newSurvey(sh *shard, name string, of state, most int) *survey {
	return &survey{scan: scanOf(sh, name), state: of, most: most}
}

// look looks at the next slice of the jobs of t, the tube as it is now, or nil. It
// returns true at the end. The shard is locked.
func (v *survey) look(t *tube) (done bool) {
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
func (v *survey) directly(t *tube) iter.Seq[ref] {
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
func (v *survey) see(j *job) {
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
		heapUp(v.found, behind)
	case p.before(v.found[0].sortKey):
		v.cost++
		v.found[0] = e
		heapDown(v.found[:v.count], behind)
	}
}

// takeCost returns what was spent on jobs that were found since it was last
// called.
func (v *survey) takeCost() (n int) {
	n, v.cost = v.cost, 0
	return n
}

// behind is the order of the heap.
func behind(a, b *listed) bool { return b.before(a.sortKey) }

// sort puts the next n jobs, from the last one on down, into order. It returns false
// when all are.
func (v *survey) sort(n int) (more bool) {
	for ; n > 0 && v.count > 0; n-- {
		v.count--
		v.found[0], v.found[v.count] = v.found[v.count], v.found[0]
		heapDown(v.found[:v.count], behind)
	}
	if v.count > 0 {
		return true
	}
	// A job whose record was moved may have been met twice.
	v.found = slices.CompactFunc(v.found, func(a, b listed) bool { return a.id == b.id })
	return false
}
