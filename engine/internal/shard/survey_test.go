package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Whoever may read a small tube must not be able to keep the shard busy with what others have:
// the first look is the last, however many jobs the shard has.
func TestTheFirstPageOfASmallTubeCostsWhatTheTubeHolds(t *testing.T) {
	s := newSim(100, 1)
	other, c := s.open(), s.open()
	big := s.engine.defaultTube.shard
	var puts strings.Builder
	for range 20 * scanSlice {
		puts.WriteString("put 5 0 9 1\r\nx\r\n")
	}
	other.ask(t, "%s", puts.String())
	small := ""
	for i := 0; small == ""; i++ {
		if name := fmt.Sprint("small", i); s.engine.shardFor([]byte(name)) == big {
			small = name
		}
	}
	c.expect(t, "USING "+small+"\r\nWATCHING 2\r\nWATCHING 1\r\n", "use %s\r\nwatch %s\r\nignore default\r\n", small, small)
	want := map[state][]uint64{}
	var ids []uint64
	last := func(cmd string) uint64 {
		var id uint64
		if _, err := fmt.Sscanf(c.ask(t, "%s", cmd), "INSERTED %d", &id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	for i := range 2 * scanSlice {
		pri := (i * 7) % 40 // more priorities than there are runs for, in no order
		ids = append(ids, last(fmt.Sprintf("put %d 0 999 1\r\nx\r\n", pri)))
	}
	ordered := slices.Clone(ids)
	slices.SortStableFunc(ordered, func(a, b uint64) int {
		return int((a-ids[0])*7%40) - int((b-ids[0])*7%40)
	})
	want[ready] = ordered[3:]
	for range 3 {
		c.ask(t, "reserve\r\n")
	}
	want[reserved] = slices.Sorted(slices.Values(ordered[:3]))
	for i := range 2 * scanSlice {
		want[delayed] = append(want[delayed], last(fmt.Sprintf("put 1 %d 9 1\r\nx\r\n", 1000+i)))
	}
	for range 2 * scanSlice {
		id := last("put 0 0 999 1\r\nx\r\n")
		c.ask(t, "reserve-job %d\r\nbury %d 0\r\n", id, id)
		want[buried] = append(want[buried], id)
	}
	for of, ids := range want {
		for _, n := range []int{1, 2, 99, firstPage} {
			v := newSurvey(big, small, of, n)
			if !v.look(big.byName[small]) {
				t.Errorf("state %d, %d jobs: one look does not do", of, n)
				continue
			}
			for v.sort(sortSlice) {
			}
			var got []uint64
			for i := range v.found {
				got = append(got, v.found[i].id)
			}
			if want := ids[:min(n, len(ids))]; !slices.Equal(got, want) {
				t.Errorf("state %d, %d jobs: %v, want %v", of, n, got, want)
			}
		}
	}
}
