package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"trellis/engine"
)

func TestTheTubesThatAreShownAreTheFirstByJobsThenByWhatWasShownThenByName(t *testing.T) {
	type candidate struct {
		engine.TubeSnapshot
		jobs, before int
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		before := map[string]struct{}{}
		limit := 1 + r.IntN(20)
		sel := engine.NewTubeSelection(limit, showFirst(before))
		var all []candidate
		for i := range r.IntN(60) {
			c := candidate{TubeSnapshot: engine.TubeSnapshot{Name: fmt.Sprint("t", i), Ready: r.IntN(4), Buried: r.IntN(2)}}
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
			sel.Add(&all[i].TubeSnapshot)
		}
		slices.SortFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.jobs, a.jobs), cmp.Compare(b.before, a.before), cmp.Compare(a.Name, b.Name))
		})
		var want []engine.TubeSnapshot
		var sums engine.TubeSums
		for i := range all {
			if i < limit {
				want = append(want, all[i].TubeSnapshot)
			} else {
				sums.Add(&all[i].TubeSnapshot)
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
