package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// check looks at all that the table keeps.
func (t *hashTable[E, H]) check() error {
	var h H
	count, room := 0, 0
	for i := range t.buckets {
		for e := *t.bucket(i); e != nil; e = *h.next(e) {
			if at := t.bucketOf(h.hash(e)); at != i {
				return fmt.Errorf("an entry of bucket %d stands in bucket %d", at, i)
			}
			count++
		}
	}
	for _, page := range t.pages {
		room += len(page)
	}
	if count != t.count || room != t.buckets || t.buckets < t.count || t.count == 0 && t.pages != nil || t.count > 0 && t.buckets > max(1, 2*t.count+1) {
		return fmt.Errorf("%d entries are counted in %d buckets, there are %d in %d", t.count, t.buckets, count, room)
	}
	return nil
}

// longest is how many entries the bucket has that has most.
func (t *hashTable[E, H]) longest() (most int) {
	var h H
	for i := range t.buckets {
		in := 0
		for e := *t.bucket(i); e != nil; e = *h.next(e) {
			in++
		}
		most = max(most, in)
	}
	return most
}

// keyedOfID is what a table has of an id.
func keyedOfID(t *hashTable[keyed, byJobID], id uint64) *keyed {
	for k := t.first(hashOfID(id)); k != nil; k = k.nextByID {
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
		var table hashTable[keyed, byJobID]
		want := map[uint64]*keyed{}
		var ids []uint64
		for _, target := range []int{3, 700, 0, 5000, 10, 2000, 0} {
			for len(ids) != target {
				if len(ids) > target || rnd.IntN(4) == 0 && len(ids) > 0 {
					i := rnd.IntN(len(ids))
					table.remove(want[ids[i]])
					delete(want, ids[i])
					ids[i] = ids[len(ids)-1]
					ids = ids[:len(ids)-1]
					continue
				}
				k := &keyed{id: rnd.Uint64N(1<<20) * spread}
				if want[k.id] == nil {
					want[k.id] = k
					ids = append(ids, k.id)
					table.insert(k)
				}
			}
			if err := table.check(); err != nil {
				t.Fatal(err)
			}
			if table.count != len(want) {
				t.Fatalf("%d entries, want %d", table.count, len(want))
			}
			for id, k := range want {
				if got := keyedOfID(&table, id); got != k {
					t.Fatalf("id %d: found %v", id, got)
				}
			}
			if got := keyedOfID(&table, 3); got != want[3] {
				t.Errorf("an id that is not there was found")
			}
		}
	}
}

// No insertion and no removal does much: it looks at a few entries and makes or drops one page of buckets.
func TestAHashTableGrowsAndShrinksABucketAtATime(t *testing.T) {
	const n = 100_000
	var table hashTable[keyed, byJobID]
	all := make([]keyed, n)
	for i := range all {
		all[i].id = uint64(i + 1)
		before := table.buckets
		table.insert(&all[i])
		if made := table.buckets - before; made < 0 || made > 1 {
			t.Fatalf("an insertion made %d buckets", made)
		}
	}
	if got := table.longest(); got > 16 {
		t.Errorf("%d entries share a bucket", got)
	}
	for i := range all {
		before := table.buckets
		table.remove(&all[i])
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

// Ids that are the same in their lower bits are spread over the buckets all the same.
func TestIDsAtAnyDistanceFromEachOtherDoNotShareABucket(t *testing.T) {
	const n = 5000
	for shift := range 40 {
		var table hashTable[keyed, byJobID]
		for i := range n {
			table.insert(&keyed{id: uint64(i+1)<<shift + 7})
		}
		if got := table.longest(); got > 16 {
			t.Errorf("of ids that are 2^%d apart, %d share a bucket", shift, got)
		}
	}
}
