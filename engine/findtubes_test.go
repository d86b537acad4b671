package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/codec"
)

// crowd makes an engine with tubes of which each has its own numbers, and returns their
// snapshots by name.
func crowd(t testing.TB, tubes int) (*Engine, Time, map[string]TubeSnapshot) {
	s := newSim(100, 1)
	t.Cleanup(s.engine.Discard)
	r := rand.New(rand.NewPCG(1, uint64(tubes)))
	c := s.open()
	want := map[string]TubeSnapshot{defaultTube: {Name: defaultTube, Using: 1, Watching: 1}}
	id := 0
	put := func(delay int) {
		c.say(fmt.Sprintf("put 2000 %d 1000000 0", delay), "")
		id++
	}
	for i := range tubes {
		tube := TubeSnapshot{Name: fmt.Sprintf("tube-%d", r.IntN(10)*tubes+i)}
		c.say("use " + tube.Name)
		for range r.IntN(4) {
			put(0)
			tube.Ready++
			tube.OldestReady = time.Duration(s.now)
		}
		if r.IntN(3) == 0 {
			put(1_000_000)
			tube.Delayed++
		}
		for range r.IntN(3) {
			put(0)
			c.say(fmt.Sprint("reserve-job ", id))
			if r.IntN(2) == 0 {
				tube.Reserved++
				continue
			}
			c.say(fmt.Sprint("bury ", id, " 0"))
			tube.Buried++
		}
		if tube.Puts = uint64(tube.Ready + tube.Delayed + tube.Reserved + tube.Buried); tube.Puts > 0 {
			want[tube.Name] = tube
		}
		if i%100 == 0 {
			s.Wait(time.Second)
		}
	}
	c.say("use default")
	for name, tube := range want {
		if tube.Ready > 0 {
			tube.OldestReady = time.Duration(s.now) - tube.OldestReady
			want[name] = tube
		}
	}
	return s.engine, s.now, want
}

func TestEachTubeMeetsEveryTubeOnce(t *testing.T) {
	for _, tubes := range []int{0, 1, 100, 16*tubeSlice + 1000} {
		e, now, want := crowd(t, tubes)
		got := map[string]TubeSnapshot{}
		e.EachTube(now, func(tube *TubeSnapshot) {
			if _, twice := got[tube.Name]; twice {
				t.Errorf("%s is met twice", tube.Name)
			}
			got[tube.Name] = *tube
		})
		if !maps.Equal(got, want) {
			t.Errorf("met %d tubes, want %d", len(got), len(want))
			for name, tube := range want {
				if got[name] != tube {
					t.Fatalf("%s: %+v, want %+v", name, got[name], tube)
				}
			}
		}
	}
}

func TestTheFirstTubesAreThoseOfAllTubesSorted(t *testing.T) {
	e, now, all := crowd(t, 3000)
	number := map[TubeOrder]func(t *TubeSnapshot) int64{
		TubesByName:        func(*TubeSnapshot) int64 { return 0 },
		TubesByReady:       func(t *TubeSnapshot) int64 { return int64(t.Ready) },
		TubesByReserved:    func(t *TubeSnapshot) int64 { return int64(t.Reserved) },
		TubesByDelayed:     func(t *TubeSnapshot) int64 { return int64(t.Delayed) },
		TubesByBuried:      func(t *TubeSnapshot) int64 { return int64(t.Buried) },
		TubesByWaiting:     func(t *TubeSnapshot) int64 { return int64(t.Waiting) },
		TubesByOldestReady: func(t *TubeSnapshot) int64 { return int64(t.OldestReady) },
	}
	contains := func(name string) bool { return strings.Contains(name, "7") }
	for order := range NumTubeOrders {
		for _, match := range []func(string) bool{nil, contains, func(string) bool { return false }} {
			var want []TubeSnapshot
			var sums TubeSums
			for name, tube := range all {
				if match == nil || match(name) {
					want = append(want, tube)
					sums.Add(&tube)
				}
			}
			slices.SortFunc(want, func(a, b TubeSnapshot) int {
				return cmp.Or(cmp.Compare(number[order](&b), number[order](&a)), cmp.Compare(a.Name, b.Name))
			})
			for _, limit := range []int{0, 1, 10, 1000, 10_000} {
				got := e.FindTubes(&TubeQuery{Order: order, Limit: limit, Match: match}, now)
				if !slices.Equal(got.Tubes, want[:min(limit, len(want))]) {
					t.Errorf("by %v, limit %d: got %v", order, limit, got.Tubes)
				}
				if got.Sums != sums {
					t.Errorf("by %v, limit %d: sums %+v, want %+v", order, limit, got.Sums, sums)
				}
			}
		}
	}
}

func TestEveryOrderOfTubesHasItsOwnName(t *testing.T) {
	names := map[string]bool{}
	for order := range NumTubeOrders {
		names[order.String()] = true
	}
	if len(names) != int(NumTubeOrders) || names[""] {
		t.Errorf("%v", names)
	}
}

func TestASelectionHasATubeThatWasSeenTwiceOnce(t *testing.T) {
	sel := NewTubeSelection(3, func(a, b *TubeSnapshot) int { return cmp.Compare(b.Ready, a.Ready) })
	for _, tube := range []TubeSnapshot{{Name: "a", Ready: 2}, {Name: "b", Ready: 1}, {Name: "a"}} {
		sel.Add(&tube)
	}
	first, rest := sel.End()
	if len(first) != 2 || first[0].Name != "a" || first[1].Name != "b" || rest != (TubeSums{}) {
		t.Errorf("got %v, %v", first, rest)
	}
}

// Tubes come and go meanwhile.
func TestTubesAreFoundWhileLoopsRun(t *testing.T) {
	c := newCrew(t, 2, 4)
	defer c.stop()
	owner := c.hire()
	defer owner.close()
	defer owner.with(codec.OpDelete, owner.put(0, 0, 1, ""))
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 2 {
		h := c.hire()
		busy.Go(func() {
			defer h.close()
			var left uint64
			for n := 0; !stop.Load(); n++ {
				h.use(fmt.Sprint("t", n%2000))
				id := h.put(1, 0, 1, "")
				h.with(codec.OpDelete, left)
				left = id
			}
			h.with(codec.OpDelete, left)
		})
	}
	c.within(func() {
		for range 200 {
			found := c.engine.FindTubes(&TubeQuery{Order: TubesByReady, Limit: 10}, c.now())
			if found.Sums.Tubes < 1 || found.Sums.Ready < 1 || len(found.Tubes) < 1 || len(found.Tubes) > 10 {
				t.Errorf("found %+v", found)
			}
		}
	})
	stop.Store(true)
	busy.Wait()
}

func BenchmarkFindTubes(b *testing.B) {
	for _, tubes := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("tubes=", tubes), func(b *testing.B) {
			e, now, _ := crowd(b, tubes)
			q := TubeQuery{Order: TubesByReady, Limit: 50, Match: func(name string) bool { return strings.Contains(name, "7") }}
			b.ReportAllocs()
			for b.Loop() {
				e.FindTubes(&q, now)
			}
		})
	}
}
