package metrics

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"trellis/engine"
)

// defaultTube always exists and is always shown.
const defaultTube = "default"

// selection divides tubes into those that are shown one by one, the default tube
// and those with the most jobs, and the rest, which is only summed up. Of equals
// those are shown that were last time, so that tubes that come and go do not make
// new series of old ones, and then the first by name.
type selection struct {
	limit  int                 // the most tubes that are shown, at least 1
	before map[string]struct{} // shown last time
	shown  candidates
	rest   otherTubes
}

type candidate struct {
	engine.TubeSnapshot
	jobs   int // that it holds; the default tube has more than any other
	before bool
}

// add takes what it needs of t.
func (s *selection) add(t *engine.TubeSnapshot) {
	full := len(s.shown) == s.limit
	jobs := t.Ready + t.Reserved + t.Delayed + t.Buried
	if t.Name == defaultTube {
		jobs = math.MaxInt
	}
	if full && jobs < s.shown[0].jobs {
		s.rest.add(t)
		return
	}
	_, before := s.before[t.Name]
	c := candidate{*t, jobs, before}
	switch {
	case !full:
		heap.Push(&s.shown, c)
	case compare(&s.shown[0], &c) < 0:
		s.rest.add(&s.shown[0].TubeSnapshot)
		s.shown[0] = c
		heap.Fix(&s.shown, 0)
	default:
		s.rest.add(t)
	}
}

// end returns the names of the tubes that are shown. Nothing is added afterwards.
func (s *selection) end() map[string]struct{} {
	names := make(map[string]struct{}, len(s.shown))
	s.shown = slices.DeleteFunc(s.shown, func(c candidate) bool {
		// A tube that goes and comes back while others are looked at is seen twice,
		// and Prometheus takes no series twice.
		_, twice := names[c.Name]
		names[c.Name] = struct{}{}
		return twice
	})
	return names
}

// compare is positive if a is to be shown rather than b.
func compare(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(a.jobs, b.jobs),
		cmp.Compare(oneIf(a.before), oneIf(b.before)),
		cmp.Compare(b.Name, a.Name),
	)
}

// candidates are a heap. On top is the one that gives way first.
type candidates []candidate

func (c candidates) Len() int           { return len(c) }
func (c candidates) Less(i, j int) bool { return compare(&c[i], &c[j]) < 0 }
func (c candidates) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push implements [heap.Interface].
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }

// Pop implements [heap.Interface].
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// otherTubes are those that are not shown.
type otherTubes struct {
	sum           engine.TubeSnapshot // of the numbers that are gauges
	oldest        time.Duration
	tubes, paused int
}

func (o *otherTubes) add(t *engine.TubeSnapshot) {
	o.tubes++
	o.sum.Ready += t.Ready
	o.sum.Reserved += t.Reserved
	o.sum.Delayed += t.Delayed
	o.sum.Buried += t.Buried
	o.sum.Urgent += t.Urgent
	o.sum.Using += t.Using
	o.sum.Watching += t.Watching
	o.sum.Waiting += t.Waiting
	o.oldest = max(o.oldest, t.OldestReady)
	if t.PauseLeft > 0 {
		o.paused++
	}
}
