package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"trellis/engine/stats"
)

func TestTheTubesThatAreShownAreTheFirstByJobsThenByWhatWasShownThenByName(t *testing.T) {
	type candidate struct {
		stats.Tube
		jobs, before int
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		before := map[string]struct{}{}
		limit := 1 + r.IntN(20)
		sel := newTubeSelection(limit, showFirst(before))
		var all []candidate
		for i := range r.IntN(60) {
			c := candidate{Tube: stats.Tube{Name: fmt.Sprint("t", i), Ready: r.IntN(4), Buried: r.IntN(2)}}
			if i == 7 {
				c.Name = defaultTube
			}
			c.jobs = c.Ready + c.Buried
			if c.Name == defaultTube {
				c.jobs = math.MaxInt
			}
			if c.before = r.IntN(2); c.before == 1 {
				before[c.Name] = struct{}{}
			}
			all = append(all, c)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i := range all {
			sel.Add(&all[i].Tube)
		}
		slices.SortFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.jobs, a.jobs), cmp.Compare(b.before, a.before), cmp.Compare(a.Name, b.Name))
		})
		var want []stats.Tube
		var sums tubeSums
		for i := range all {
			if i < limit {
				want = append(want, all[i].Tube)
			} else {
				sums.Add(&all[i].Tube)
			}
		}
		if shown, rest := sel.End(); !slices.Equal(shown, want) || rest != sums {
			t.Fatalf("shows %v and sums up %v; all: %v, limit %d", shown, rest, all, limit)
		}
	}
}

func TestTubesThatComeAndGoDoNotReplaceEqualOnes(t *testing.T) {
	r := newRig(t)
	registry := pedantic(r.sources(), Options{Tubes: 3})
	c := r.dial()
	shows := func(want ...string) {
		t.Helper()
		shown := series(gather(t, registry), "beanstalkd_tube_current_using")
		if got := slices.Sorted(maps.Keys(shown)); !slices.Equal(got, want) {
			t.Fatalf("shows %v, want %v", got, want)
		}
	}
	c.put("c", "1", "0")
	c.put("d", "1", "0")
	shows("c", "d", "default")
	c.put("a", "1", "0")
	c.put("e", "1", "0")
	shows("c", "d", "default")
	c.put("e", "1", "0") // 5
	shows("c", "default", "e")
	c.do("delete 5\r\n")
	shows("c", "default", "e")
}

// byReady puts tubes with many ready jobs first, and those with as many by name.
func byReady(a, b *stats.Tube) int {
	return cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(a.Name, b.Name))
}

// crowd makes snapshots of tubes of which each has its own numbers.
func crowd(tubes int) (all []stats.Tube) {
	r := rand.New(rand.NewPCG(1, uint64(tubes)))
	for i := range tubes {
		all = append(all, stats.Tube{
			Name: fmt.Sprintf("tube-%d", r.IntN(10)*tubes+i), Ready: r.IntN(4), Delayed: r.IntN(2), Reserved: r.IntN(3), Buried: r.IntN(3),
			OldestReady: time.Duration(r.IntN(1000)) * time.Second, Using: r.IntN(2), PauseLeft: time.Duration(r.IntN(2)),
		})
	}
	return all
}

// selected are the first of some tubes.
func selected(all []stats.Tube, limit int, compare func(a, b *stats.Tube) int) (first []stats.Tube, rest tubeSums) {
	sel := newTubeSelection(limit, compare)
	for i := range all {
		sel.Add(&all[i])
	}
	return sel.End()
}

func TestTheFirstTubesAreThoseOfAllTubesSorted(t *testing.T) {
	all := crowd(3000)
	for name, compare := range map[string]func(a, b *stats.Tube) int{
		"name":  func(a, b *stats.Tube) int { return cmp.Compare(a.Name, b.Name) },
		"ready": byReady,
		"oldest": func(a, b *stats.Tube) int {
			return cmp.Or(cmp.Compare(b.OldestReady, a.OldestReady), cmp.Compare(a.Name, b.Name))
		},
	} {
		want := slices.SortedFunc(slices.Values(all), func(a, b stats.Tube) int { return compare(&a, &b) })
		for _, limit := range []int{0, 1, 10, 1000, 10_000} {
			first, rest := selected(all, limit, compare)
			kept := min(limit, len(want))
			if !slices.Equal(first, want[:kept]) {
				t.Errorf("by %s, limit %d: got %v", name, limit, first)
			}
			var sums tubeSums
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
	sel := newTubeSelection(3, func(a, b *stats.Tube) int { return cmp.Compare(b.Ready, a.Ready) })
	for _, tube := range []stats.Tube{{Name: "a", Ready: 2}, {Name: "b", Ready: 1}, {Name: "a"}} {
		sel.Add(&tube)
	}
	first, rest := sel.End()
	if len(first) != 2 || first[0].Name != "a" || first[1].Name != "b" || rest != (tubeSums{}) {
		t.Errorf("got %v, %v", first, rest)
	}
}

func BenchmarkTubeSelection(b *testing.B) {
	for _, tubes := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("tubes=", tubes), func(b *testing.B) {
			all := crowd(tubes)
			b.ReportAllocs()
			for b.Loop() {
				selected(all, 50, byReady)
			}
		})
	}
}
