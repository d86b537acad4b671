package roster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

type entry struct {
	name  string
	place int
}

func (e *entry) Name() string { return e.name }
func (e *entry) Place() *int  { return &e.place }

// A snapshot stays as it was made, whatever comes and goes.
func TestSnapshotsDoNotChange(t *testing.T) {
	var r Roster[entry, *entry]
	var list []*entry
	rnd := rand.New(rand.NewPCG(1, 2))
	type snapshot struct {
		at    func(int) *entry
		list  []*entry
		bytes int
	}
	var snapshots []snapshot
	check := func(s snapshot) {
		size := 0
		for i, e := range s.list {
			if s.at(i) != e {
				t.Fatalf("%s stands at %d, not %s", s.at(i).name, i, e.name)
			}
			size += len(e.name)
		}
		if size != s.bytes {
			t.Fatalf("the names have %d bytes, not %d", size, s.bytes)
		}
	}
	for n := range 5000 {
		if len(list) > 0 && rnd.IntN(3) == 0 {
			i, last := rnd.IntN(len(list)), len(list)-1
			r.Remove(list[i])
			list[i], list = list[last], list[:last]
		} else {
			e := &entry{name: fmt.Sprint("entry", n)}
			if r.Add(e, len(list)) && len(list) > 0 {
				t.Fatal("an entry is added beyond the limit")
			}
			if len(list) > 0 && !r.Add(e, 0) {
				t.Fatal("an entry is not added")
			}
			list = append(list, e)
		}
		for i, e := range list {
			if e.place != i {
				t.Fatalf("the entry at %d knows %d", i, e.place)
			}
		}
		if n%500 == 0 {
			at, count, size := r.Snapshot()
			if count != len(list) || r.Len() != count {
				t.Fatalf("%d entries are listed, want %d", count, len(list))
			}
			snapshots = append(snapshots, snapshot{at, slices.Clone(list), size})
		}
	}
	for _, s := range snapshots {
		check(s)
	}
	if r.Clear(); r.Len() != 0 {
		t.Errorf("%d entries are left", r.Len())
	}
}
