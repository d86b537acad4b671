package engine

import (
	"cmp"
	"time"
)

// TubeOrder is an order of tubes. By name it is ascending; by a number the greatest comes
// first, and tubes with the same number are in the order of their names.
type TubeOrder uint8

// The orders.
const (
	TubesByName TubeOrder = iota
	TubesByReady
	TubesByReserved
	TubesByDelayed
	TubesByBuried
	TubesByWaiting
	TubesByOldestReady
	// NumTubeOrders is the number of orders. It is no order itself.
	NumTubeOrders
)

var tubeOrders = [NumTubeOrders]struct {
	name   string
	number func(t *TubeSnapshot) int
}{
	TubesByName:        {"name", func(*TubeSnapshot) int { return 0 }},
	TubesByReady:       {"current-jobs-ready", func(t *TubeSnapshot) int { return t.Ready }},
	TubesByReserved:    {"current-jobs-reserved", func(t *TubeSnapshot) int { return t.Reserved }},
	TubesByDelayed:     {"current-jobs-delayed", func(t *TubeSnapshot) int { return t.Delayed }},
	TubesByBuried:      {"current-jobs-buried", func(t *TubeSnapshot) int { return t.Buried }},
	TubesByWaiting:     {"current-waiting", func(t *TubeSnapshot) int { return t.Waiting }},
	TubesByOldestReady: {"oldest-ready-age", func(t *TubeSnapshot) int { return int(t.OldestReady / time.Microsecond) }},
}

// String returns the key of stats-tube by which tubes are ordered, and "oldest-ready-age",
// which stats-tube does not have.
func (o TubeOrder) String() string { return tubeOrders[o].name }

// TubeQuery asks for the first tubes in an order.
type TubeQuery struct {
	Order TubeOrder
	// Limit is how many tubes to return at most. They are in memory all at once.
	Limit int
	// Match tells of a tube's name whether the tube is asked for; nil means all tubes.
	// It is called once for each tube that there is, on the goroutine of the caller and
	// with no lock held.
	Match func(name string) bool
}

// FoundTubes answers a [TubeQuery].
type FoundTubes struct {
	Tubes []TubeSnapshot // the first ones
	Sums  TubeSums       // of all that were asked for, also of those that are not among Tubes
}

// FindTubes looks for tubes. It looks at every tube of the server in slices, as
// [Engine.EachTube] does, which takes a fraction of a second for a million of them.
// Any goroutine may call it.
func (e *Engine) FindTubes(q *TubeQuery, now Time) *FoundTubes {
	number := tubeOrders[q.Order].number
	sel := NewTubeSelection(q.Limit, func(a, b *TubeSnapshot) int {
		if n := cmp.Compare(number(b), number(a)); n != 0 {
			return n
		}
		return cmp.Compare(a.Name, b.Name)
	})
	e.EachTube(now, func(t *TubeSnapshot) {
		if q.Match == nil || q.Match(t.Name) {
			sel.Add(t)
		}
	})
	found := new(FoundTubes)
	found.Tubes, found.Sums = sel.End()
	for i := range found.Tubes {
		found.Sums.Add(&found.Tubes[i])
	}
	return found
}
