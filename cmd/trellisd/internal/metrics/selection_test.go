package metrics

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"trellis/engine"
)

func TestTheSelectionIsThatOfAllTubesSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		sel := selection{limit: 1 + r.IntN(20), before: map[string]struct{}{}}
		var all []candidate
		for i := range r.IntN(60) {
			tube := engine.TubeSnapshot{Name: fmt.Sprint("t", i), Ready: r.IntN(4), Buried: r.IntN(2)}
			c := candidate{tube, tube.Ready + tube.Buried, r.IntN(2) == 0}
			if c.before {
				sel.before[tube.Name] = struct{}{}
			}
			all = append(all, c)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i := range all {
			sel.add(&all[i].TubeSnapshot)
		}
		slices.SortFunc(all, func(a, b candidate) int { return compare(&b, &a) })
		want, rest := otherTubes{}, all[min(sel.limit, len(all)):]
		for i := range rest {
			want.add(&rest[i].TubeSnapshot)
		}
		slices.SortFunc(sel.shown, func(a, b candidate) int { return compare(&b, &a) })
		if !slices.Equal(sel.shown, all[:len(all)-len(rest)]) || sel.rest != want {
			t.Fatalf("shows %v and sums up %v; all: %v, limit %d", sel.shown, sel.rest, all, sel.limit)
		}
	}
}

func TestATubeThatIsSeenTwiceIsShownOnce(t *testing.T) {
	sel := selection{limit: 3}
	for _, tube := range []engine.TubeSnapshot{{Name: "a", Ready: 2}, {Name: "b", Ready: 1}, {Name: "a"}} {
		sel.add(&tube)
	}
	if names := sel.end(); len(names) != 2 || len(sel.shown) != 2 {
		t.Errorf("shows %v", sel.shown)
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
