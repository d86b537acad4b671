package engine

import "slices"

// ages tells how long the oldest of a tube's ready jobs has been ready, without a
// list of them in that order: it counts those that became ready within a short
// span of each other. It tells at most ageSpan too much, or 1/256 of the longest
// that any job was ready since the queue was last empty. The shard's lock guards it.
type ages struct {
	marks []ageMark // ascending; the first has jobs
	last  Time      // when add was last called: jobs of one moment share a mark
}

type ageMark struct {
	since Time
	jobs  int // still ready, of those that became ready from since to the next mark
}

const (
	ageSpan  = second / 10
	ageMarks = 1024 // more are merged in pairs
)

// add counts a job that becomes ready now.
func (a *ages) add(now Time) {
	if n := len(a.marks); n > 0 {
		last := &a.marks[n-1]
		if now == a.last || now-last.since <= max(ageSpan, (now-a.marks[0].since)/(ageMarks/2)) {
			last.jobs++
			a.last = now
			return
		}
		if n == ageMarks {
			a.merge()
		}
	}
	a.last = now
	a.marks = append(a.marks, ageMark{now, 1})
}

func (a *ages) merge() {
	for i := range ageMarks / 2 {
		first, second := a.marks[2*i], a.marks[2*i+1]
		a.marks[i] = ageMark{first.since, first.jobs + second.jobs}
	}
	a.marks = a.marks[:ageMarks/2]
}

// remove counts a job off that became ready at since.
func (a *ages) remove(since Time) {
	i := len(a.marks) - 1
	if a.marks[i].since > since {
		i, _ = slices.BinarySearchFunc(a.marks, since+1, func(m ageMark, t Time) int {
			return int(max(-1, min(1, m.since-t)))
		})
		i--
	}
	a.marks[i].jobs--
	if i > 0 {
		return
	}
	for i < len(a.marks) && a.marks[i].jobs == 0 {
		i++
	}
	a.marks = slices.Delete(a.marks, 0, i)
}

// oldest is how long the oldest ready job has been ready, 0 if there is none.
func (a *ages) oldest(now Time) Time {
	if len(a.marks) == 0 {
		return 0
	}
	return max(0, now-a.marks[0].since)
}
