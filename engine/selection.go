package engine

import (
	"container/heap"
	"slices"
	"sort"
	"time"
)

// TubeSums are the sums over some tubes of what their snapshots tell.
type TubeSums struct {
	Tubes, Paused                    int
	Ready, Reserved, Delayed, Buried int
	Urgent                           int
	Using, Watching, Waiting         int           // a connection counts for each of its tubes
	OldestReady                      time.Duration // the greatest of all tubes
}

// Add adds a tube.
func (s *TubeSums) Add(t *TubeSnapshot) {
	s.Tubes++
	if t.PauseLeft > 0 {
		s.Paused++
	}
	s.Ready += t.Ready
	s.Reserved += t.Reserved
	s.Delayed += t.Delayed
	s.Buried += t.Buried
	s.Urgent += t.Urgent
	s.Using += t.Using
	s.Watching += t.Watching
	s.Waiting += t.Waiting
	s.OldestReady = max(s.OldestReady, t.OldestReady)
}

// A TubeSelection divides the tubes that are added to it into the first ones in some
// order, which it keeps, and the rest, which it only sums up. However many are added, it
// takes the memory of those that it keeps. Make one with [NewTubeSelection]. One goroutine
// may use it at a time.
type TubeSelection struct {
	chosen tubeHeap
	limit  int
	rest   TubeSums
}

// NewTubeSelection makes a selection that keeps up to limit tubes. compare is negative if
// a comes before b; it must tell tubes of different names apart.
func NewTubeSelection(limit int, compare func(a, b *TubeSnapshot) int) *TubeSelection {
	return &TubeSelection{limit: limit, chosen: tubeHeap{compare: compare}}
}

// Add takes what it needs of t.
func (s *TubeSelection) Add(t *TubeSnapshot) {
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
func (s *TubeSelection) End() (first []TubeSnapshot, rest TubeSums) {
	sort.Sort(sort.Reverse(&s.chosen))
	first = s.chosen.tubes
	seen := make(map[string]struct{}, len(first))
	first = slices.DeleteFunc(first, func(t TubeSnapshot) bool {
		// A tube that goes and comes back while others are looked at is seen twice.
		_, twice := seen[t.Name]
		seen[t.Name] = struct{}{}
		return twice
	})
	return first, s.rest
}

// tubeHeap has the tube that comes last on top.
type tubeHeap struct {
	tubes   []TubeSnapshot
	compare func(a, b *TubeSnapshot) int
}

func (h *tubeHeap) Len() int           { return len(h.tubes) }
func (h *tubeHeap) Less(i, j int) bool { return h.compare(&h.tubes[i], &h.tubes[j]) > 0 }
func (h *tubeHeap) Swap(i, j int)      { h.tubes[i], h.tubes[j] = h.tubes[j], h.tubes[i] }

// Push implements [heap.Interface].
func (h *tubeHeap) Push(x any) { h.tubes = append(h.tubes, x.(TubeSnapshot)) }

// Pop implements [heap.Interface].
func (h *tubeHeap) Pop() any {
	last := h.tubes[len(h.tubes)-1]
	h.tubes = h.tubes[:len(h.tubes)-1]
	return last
}
