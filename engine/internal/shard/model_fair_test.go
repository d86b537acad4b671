package shard

import (
	"cmp"
	"slices"
)

// What the model says of fair keys.

// modelLaps are those of the keys of a tube with fair keys. The jobs without a key have the
// key "".
type modelLaps struct {
	lap       int
	now, next map[string]int
	last      string // the key whose jobs were the last to go, as long as it is not forgotten
}

// forgetLast forgets the key whose jobs were the last to go.
func (x *modelLaps) forgetLast() {
	if x.last != "" {
		delete(x.next, x.last)
		x.last = ""
	}
}

// candidates returns the jobs of a tube that may be reserved: of those with the same limited key
// and limit only the first.
func (m *model) candidates(t *modelTube) (list []*modelJob) {
	type group struct {
		key   string
		limit uint32
	}
	seen := map[group]bool{}
	for _, j := range m.in(t, "ready", byPriority) {
		g := group{j.keys.Limited, j.keys.Limit}
		if g.key == "" || !seen[g] && !m.passedOver(j) {
			list = append(list, j)
		}
		seen[g] = true
	}
	return list
}

// forget has a tube forget keys without jobs, and all laps if no job has a key, because a job of
// it has become ready or reserved.
func (m *model) forget(t *modelTube) {
	x := &t.laps
	if m.countJobs(func(j *modelJob) bool { return j.tube == t && j.keys.Fair() == x.last }) == 0 {
		delete(x.next, x.last)
	}
	x.last = ""
	if !m.fair(t) {
		*x = modelLaps{}
	} else if m.countJobs(func(j *modelJob) bool { return j.tube == t && j.keys.Fair() == "" }) == 0 {
		delete(x.next, "")
	}
}

// fair reports whether a job of a tube has a fair key.
func (m *model) fair(t *modelTube) bool {
	return m.countJobs(func(j *modelJob) bool { return j.tube == t && j.keys.Fair() != "" }) > 0
}

// share brings the laps of a tube up to date, and reports whether it has fair keys.
func (m *model) share(t *modelTube) bool {
	jobs := m.all(func(j *modelJob) bool { return j.tube == t }, byID)
	x := &t.laps
	has, ready := map[string]bool{}, map[string]bool{}
	for _, j := range jobs {
		has[j.keys.Fair()] = true
	}
	for _, j := range m.candidates(t) {
		ready[j.keys.Fair()] = true
	}
	now, next := map[string]int{}, map[string]int{}
	before := x.last
	for k, n := range x.next { // of which one has lost its last job since, at most
		if !has[k] && k != "" && k != before && n > x.lap {
			x.last = k
		}
	}
	for _, k := range []string{"", x.last} {
		next[k] = x.next[k]
	}
	for k := range has {
		next[k] = x.next[k]
		if lap, stays := x.now[k]; ready[k] && stays {
			now[k] = lap
		} else if ready[k] {
			now[k] = max(x.next[k], x.lap)
		}
	}
	x.now, x.next = now, next
	return m.fair(t)
}

// first returns the job of a tube that is reserved next, nil if there is none.
func (m *model) first(t *modelTube) *modelJob {
	list := m.candidates(t)
	if len(list) == 0 {
		return nil
	}
	if !m.share(t) {
		return list[0]
	}
	held := func(key string) int {
		return m.countJobs(func(j *modelJob) bool { return j.tube == t && j.state == "reserved" && j.keys.Fair() == key })
	}
	return slices.MinFunc(list, func(a, b *modelJob) int {
		x, y := a.keys.Fair(), b.keys.Fair()
		return cmp.Or(cmp.Compare(a.pri, b.pri), cmp.Compare(held(x), held(y)), cmp.Compare(t.laps.now[x], t.laps.now[y]), cmp.Compare(a.id, b.id))
	})
}

// start has the key of a job start it.
func (m *model) start(j *modelJob) {
	m.forget(j.tube)
	if !m.share(j.tube) {
		return
	}
	x, k := &j.tube.laps, j.keys.Fair()
	x.lap = max(x.lap, x.now[k])
	x.next[k] = x.lap + 1
	delete(x.now, k)
}

// firstReady returns the first of all ready jobs of a tube, those that are passed over included.
func (m *model) firstReady(t *modelTube) *modelJob {
	j := m.first(t)
	passed := slices.DeleteFunc(m.in(t, "ready", byPriority), func(j *modelJob) bool { return !m.passedOver(j) })
	if len(passed) > 0 && (j == nil || byPriority(passed[0], j) < 0) {
		return passed[0]
	}
	return j
}

// firstIn returns the first job of a tube in a state, nil if there is none.
func (m *model) firstIn(t *modelTube, state string) *modelJob {
	if state == "ready" {
		return m.firstReady(t)
	}
	if list := m.listed(t, state); len(list) > 0 {
		return list[0]
	}
	return nil
}
