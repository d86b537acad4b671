package settings

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"trellis/binlog/journal"
)

func TestSettingsLieInPagesInTheOrderOfTheirNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var g List
	want := map[string]uint32{}
	check := func(list Cursor, want map[string]uint32) {
		t.Helper()
		n, last := 0, ""
		for x := list.Next(); x != nil; x = list.Next() {
			if n++; x.Tube <= last || want[x.Tube] != x.Attempts {
				t.Fatalf("%q with %d behind %q, want %d", x.Tube, x.Attempts, last, want[x.Tube])
			}
			last = x.Tube
		}
		if n != len(want) {
			t.Fatalf("%d settings, want %d", n, len(want))
		}
	}
	for round := range 40 {
		before, _ := g.Snapshot()
		was := maps.Clone(want)
		for range rnd.IntN(3 * pageLen) {
			s := journal.DeadLetters(fmt.Sprint(rnd.IntN(2000)), rnd.Uint32N(2)*uint32(round+1), "d")
			if round%10 >= 8 { // until all are gone
				s.Attempts = 0
			}
			if s.Attempts == 0 {
				s.Dead = ""
			}
			if g.Keep(&s, false, 0); s.IsDefault() {
				delete(want, s.Tube)
			} else {
				want[s.Tube] = s.Attempts
			}
		}
		check(before, was)
		now, _ := g.Snapshot()
		if check(now, want); g.Size() != len(want) {
			t.Fatalf("%d are counted, want %d", g.Size(), len(want))
		}
	}
}
