package hashtable

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

type entry struct {
	id   uint64
	next *entry
}

type byID struct{}

func (byID) Hash(e *entry) uint64  { return hashOf(e.id) }
func (byID) Next(e *entry) **entry { return &e.next }

func hashOf(id uint64) uint64 {
	hi, lo := bits.Mul64(id^0x5851F42D4C957F2D, 0x9E3779B97F4A7C15)
	return hi ^ lo
}

// find is what a table has of an id.
func find(t *Table[entry, byID], id uint64) *entry {
	for k := t.First(hashOf(id)); k != nil; k = k.next {
		if k.id == id {
			return k
		}
	}
	return nil
}

// Entries come and go at random: the table has those of a map, and no more room than for twice as many.
func TestAHashTableHasWhatWasInsertedAndNotRemoved(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []uint64{1, 16, 1 << 20, 1 << 40} {
		var table Table[entry, byID]
		want := map[uint64]*entry{}
		var ids []uint64
		for _, target := range []int{3, 700, 0, 5000, 10, 2000, 0} {
			for len(ids) != target {
				if len(ids) > target || rnd.IntN(4) == 0 && len(ids) > 0 {
					i := rnd.IntN(len(ids))
					table.Remove(want[ids[i]])
					delete(want, ids[i])
					ids[i] = ids[len(ids)-1]
					ids = ids[:len(ids)-1]
					continue
				}
				k := &entry{id: rnd.Uint64N(1<<20) * spread}
				if want[k.id] == nil {
					want[k.id] = k
					ids = append(ids, k.id)
					table.Insert(k)
				}
			}
			if err := table.Check(); err != nil {
				t.Fatal(err)
			}
			if table.count != len(want) {
				t.Fatalf("%d entries, want %d", table.count, len(want))
			}
			for id, k := range want {
				if got := find(&table, id); got != k {
					t.Fatalf("id %d: found %v", id, got)
				}
			}
			if got := find(&table, 3); got != want[3] {
				t.Errorf("an id that is not there was found")
			}
		}
	}
}

// No insertion and no removal does much: it looks at a few entries and makes or drops one page of buckets.
func TestAHashTableGrowsAndShrinksABucketAtATime(t *testing.T) {
	const n = 100_000
	var table Table[entry, byID]
	all := make([]entry, n)
	for i := range all {
		all[i].id = uint64(i + 1)
		before := table.buckets
		table.Insert(&all[i])
		if made := table.buckets - before; made < 0 || made > 1 {
			t.Fatalf("an insertion made %d buckets", made)
		}
	}
	if got := table.Longest(); got > 16 {
		t.Errorf("%d entries share a bucket", got)
	}
	for i := range all {
		before := table.buckets
		table.Remove(&all[i])
		if gone := before - table.buckets; gone < 0 || gone > 2 {
			t.Fatalf("a removal dropped %d buckets", gone)
		}
		if table.buckets > 2*table.count+1 {
			t.Fatalf("%d buckets for %d entries", table.buckets, table.count)
		}
	}
	if table.pages != nil {
		t.Error("an empty table has pages")
	}
}
