package hashtable

import "fmt"

// Check looks at all that the table keeps, and returns what does not fit together.
func (t *Table[E, H]) Check() error {
	var h H
	count, room := 0, 0
	for i := range t.buckets {
		for e := *t.bucket(i); e != nil; e = *h.Next(e) {
			if at := t.bucketOf(h.Hash(e)); at != i {
				return fmt.Errorf("an entry of bucket %d stands in bucket %d", at, i)
			}
			count++
		}
	}
	for _, page := range t.pages {
		room += len(page)
	}
	if count != t.count || room != t.buckets || t.buckets < t.count || t.count == 0 && t.pages != nil ||
		t.count > 0 && t.buckets > max(1, 2*t.count+1) {
		return fmt.Errorf("%d entries are counted in %d buckets, there are %d in %d", t.count, t.buckets, count, room)
	}
	return nil
}

// Longest is how many entries the bucket has that has most.
func (t *Table[E, H]) Longest() (most int) {
	var h H
	for i := range t.buckets {
		in := 0
		for e := *t.bucket(i); e != nil; e = *h.Next(e) {
			in++
		}
		most = max(most, in)
	}
	return most
}
