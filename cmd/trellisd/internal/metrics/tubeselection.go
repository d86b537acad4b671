package metrics

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
	"time"

	"trellis/engine/stats"
)

// tubeSums are the sums over some tubes of what their snapshots tell.
type tubeSums struct {
	Tubes, Paused                    int
	Ready, Reserved, Delayed, Buried int
	Urgent, Orphaned                 int
	Using, Watching, Waiting         int           // a connection counts for each of its tubes
	OldestReady                      time.Duration // the greatest of all tubes
}

// Add adds a tube.
func (s *tubeSums) Add(t *stats.Tube) {
	s.Tubes++
	if t.PauseLeft > 0 {
		s.Paused++
	}
	s.Ready += t.Ready
	s.Reserved += t.Reserved
	s.Delayed += t.Delayed
	s.Buried += t.Buried
	s.Urgent += t.Urgent
	s.Orphaned += t.Orphaned
	s.Using += t.Using
	s.Watching += t.Watching
	s.Waiting += t.Waiting
	s.OldestReady = max(s.OldestReady, t.OldestReady)
}

// A tubeSelection divides the tubes that are added to it into the first ones in some
// order, which it keeps, and the rest, which it only sums up. However many are added, it
// takes the memory of those that it keeps. One goroutine may use it
// at a time.
type tubeSelection struct {
	chosen tubeHeap
	limit  int
	rest   tubeSums
}

// newTubeSelection makes a selection that keeps up to limit tubes. compare is negative if
// a comes before b; it must tell tubes of different names apart.
func newTubeSelection(limit int, compare func(a, b *stats.Tube) int) *tubeSelection {
	return &tubeSelection{limit: limit, chosen: tubeHeap{compare: compare}}
}

// Add takes what it needs of t.
func (s *tubeSelection) Add(t *stats.Tube) {
	h := &s.chosen
	switch {
	case len(h.tubes) < s.limit:
		heap.Push(h, *t)
	case s.limit > 0 && h.compare(t, &h.tubes[0]) < 0:
		s.rest.Add(&h.tubes[0])
		h.tubes[0] = *t
		heap.Fix(h, 0)
	default:
		s.rest.Add(t)
	}
}

// End returns the first tubes in their order, each name once, and the sums of the rest.
// Nothing may be added afterwards.
func (s *tubeSelection) End() (first []stats.Tube, rest tubeSums) {
	sort.Sort(sort.Reverse(&s.chosen))
	first = s.chosen.tubes
	seen := make(map[string]struct{}, len(first))
	first = slices.DeleteFunc(first, func(t stats.Tube) bool {
		// A tube that goes and comes back while others are looked at is seen twice.
		_, twice := seen[t.Name]
		seen[t.Name] = struct{}{}
		return twice
	})
	return first, s.rest
}

// tubeHeap has the tube that comes last on top.
type tubeHeap struct {
	tubes   []stats.Tube
	compare func(a, b *stats.Tube) int
}

func (h *tubeHeap) Len() int           { return len(h.tubes) }
func (h *tubeHeap) Less(i, j int) bool { return h.compare(&h.tubes[i], &h.tubes[j]) > 0 }
func (h *tubeHeap) Swap(i, j int)      { h.tubes[i], h.tubes[j] = h.tubes[j], h.tubes[i] }

// Push implements [heap.Interface].
func (h *tubeHeap) Push(x any) { h.tubes = append(h.tubes, x.(stats.Tube)) }

// Pop implements [heap.Interface].
func (h *tubeHeap) Pop() any {
	last := h.tubes[len(h.tubes)-1]
	h.tubes = h.tubes[:len(h.tubes)-1]
	return last
}

// defaultTube always exists and is always shown.
const defaultTube = "default"

// showFirst is the order in which tubes are chosen to be shown one by one: the default
// tube, and then those with the most jobs. Of equals, those that were shown last time come
// first, so that the series do not change with each scrape, and then the first by name.
func showFirst(before map[string]struct{}) func(a, b *stats.Tube) int {
	return func(a, b *stats.Tube) int {
		if a.Name == defaultTube || b.Name == defaultTube {
			return cmp.Compare(oneIf(b.Name == defaultTube), oneIf(a.Name == defaultTube))
		}
		if n := cmp.Compare(jobsOf(b), jobsOf(a)); n != 0 {
			return n
		}
		_, aBefore := before[a.Name]
		_, bBefore := before[b.Name]
		if aBefore != bBefore {
			return cmp.Compare(oneIf(bBefore), oneIf(aBefore))
		}
		return cmp.Compare(a.Name, b.Name)
	}
}

func jobsOf(t *stats.Tube) int { return t.Ready + t.Reserved + t.Delayed + t.Buried }
