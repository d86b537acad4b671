package queue

import "slices"

// Ages tells how long the oldest of a tube's ready jobs has been ready, without a
// list of them in that order: it counts those that became ready within a short
// span of each other. It tells at most ageSpan too much, or 1/256 of the longest
// time that any job was ready since Ages was last empty.
//
// The zero Ages is empty. Its owner's lock guards it.
type Ages struct {
	marks []ageMark // ascending; the first has jobs
	last  int64     // when Add was last called: jobs of one moment share a mark
}

type ageMark struct {
	since int64 // nanoseconds
	jobs  int   // still ready, of those that became ready from since to the next mark
}

const (
	ageSpan  = 1e9 / 10 // nanoseconds
	ageMarks = 1024     // more are merged in pairs
)

// Add counts a job that becomes ready now, which must not be less than at the
// call before.
func (a *Ages) Add(now int64) {
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

func (a *Ages) merge() {
	for i := range ageMarks / 2 {
		first, second := a.marks[2*i], a.marks[2*i+1]
		a.marks[i] = ageMark{first.since, first.jobs + second.jobs}
	}
	a.marks = a.marks[:ageMarks/2]
}

// Remove counts a job off that became ready at since.
func (a *Ages) Remove(since int64) {
	i := len(a.marks) - 1
	if a.marks[i].since > since {
		i, _ = slices.BinarySearchFunc(a.marks, since+1, func(m ageMark, t int64) int {
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

// Oldest is how many nanoseconds the oldest job has been ready, 0 if there is
// none.
func (a *Ages) Oldest(now int64) int64 {
	if len(a.marks) == 0 {
		return 0
	}
	return max(0, now-a.marks[0].since)
}
