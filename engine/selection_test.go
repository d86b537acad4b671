package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// byReady puts tubes with many ready jobs first, and those with as many by name.
func byReady(a, b *TubeSnapshot) int {
	return cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(a.Name, b.Name))
}

// selected are the first tubes of an engine.
func selected(e *Engine, now Time, limit int, compare func(a, b *TubeSnapshot) int) (first []TubeSnapshot, rest TubeSums) {
	sel := NewTubeSelection(limit, compare)
	e.EachTube(now, sel.Add)
	return sel.End()
}

func TestTheFirstTubesAreThoseOfAllTubesSorted(t *testing.T) {
	e, now, all := crowd(t, 3000)
	for name, compare := range map[string]func(a, b *TubeSnapshot) int{
		"name":  func(a, b *TubeSnapshot) int { return cmp.Compare(a.Name, b.Name) },
		"ready": byReady,
		"oldest": func(a, b *TubeSnapshot) int {
			return cmp.Or(cmp.Compare(b.OldestReady, a.OldestReady), cmp.Compare(a.Name, b.Name))
		},
	} {
		want := slices.SortedFunc(maps.Values(all), func(a, b TubeSnapshot) int { return compare(&a, &b) })
		for _, limit := range []int{0, 1, 10, 1000, 10_000} {
			first, rest := selected(e, now, limit, compare)
			kept := min(limit, len(want))
			if !slices.Equal(first, want[:kept]) {
				t.Errorf("by %s, limit %d: got %v", name, limit, first)
			}
			var sums TubeSums
			for i := range want[kept:] {
				sums.Add(&want[kept+i])
			}
			if rest != sums {
				t.Errorf("by %s, limit %d: the rest %+v, want %+v", name, limit, rest, sums)
			}
		}
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
func TestTubesAreSelectedWhileLoopsRun(t *testing.T) {
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
			first, rest := selected(c.engine, c.now(), 10, byReady)
			if len(first) < 1 || len(first) > 10 || first[0].Ready < 1 {
				t.Errorf("selected %+v, and the rest %+v", first, rest)
			}
		}
	})
	stop.Store(true)
	busy.Wait()
}

func BenchmarkTubeSelection(b *testing.B) {
	for _, tubes := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("tubes=", tubes), func(b *testing.B) {
			e, now, _ := crowd(b, tubes)
			b.ReportAllocs()
			for b.Loop() {
				selected(e, now, 50, byReady)
			}
		})
	}
}
