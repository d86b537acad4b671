package engine

import (
	"iter"
	"math/bits"
)

// A hashTable finds entries by their hash. It is a table with linear hashing (W. Litwin,
// 1980): an insertion adds at most one bucket and a removal takes away at most two, so that no call
// rehashes more than a few entries. A table whose entries have gone takes no memory. Go's map
// takes more than twice as much for a key, and keeps all of it when entries go.
//
// Entries that share a bucket are linked by a field of their own. The zero table is empty.
// Its owner's lock guards it.
type hashTable[E any, H hashing[E]] struct {
	pages   [][]*E // of buckets, each with the first of its entries; only the last page is not full
	buckets int    // at least count, at most 2*count+1
	count   int    // entries
}

// hashing tells a hashTable of its entries. It has no state.
type hashing[E any] interface {
	hash(*E) uint64 // all of its bits depend on the key
	next(*E) **E    // the field for the next entry of the bucket
}

// pageBuckets is how many buckets a page has.
const pageBuckets = 512

func (t *hashTable[E, H]) bucket(i int) **E { return &t.pages[i/pageBuckets][i%pageBuckets] }

// bucketOf returns the bucket of the entries with a hash. There is at least one bucket.
func (t *hashTable[E, H]) bucketOf(hash uint64) int {
	mask := 1<<bits.Len(uint(t.buckets-1)) - 1
	i := int(hash) & mask
	if i >= t.buckets {
		i &= mask >> 1
	}
	return i
}

// parent is the bucket that hands some of its entries to a bucket that is added, and takes
// them back when that is taken away.
func parent(bucket int) int { return bucket &^ (1 << (bits.Len(uint(bucket)) - 1)) }

// first returns the first of the entries that may have a hash. The others follow by
// hashing.next.
func (t *hashTable[E, H]) first(hash uint64) *E {
	if t.buckets == 0 {
		return nil
	}
	return *t.bucket(t.bucketOf(hash))
}

// all yields all entries, in no order. The table must not change meanwhile.
func (t *hashTable[E, H]) all() iter.Seq[*E] {
	return func(yield func(*E) bool) {
		var h H
		for i := range t.buckets {
			for e := *t.bucket(i); e != nil; e = *h.next(e) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// insert adds an entry, which is in no table of this kind.
func (t *hashTable[E, H]) insert(e *E) {
	if t.count >= t.buckets {
		t.grow()
	}
	var h H
	b := t.bucket(t.bucketOf(h.hash(e)))
	*h.next(e), *b = *b, e
	t.count++
}

// remove takes an entry out, which must be in.
func (t *hashTable[E, H]) remove(e *E) {
	var h H
	p := t.bucket(t.bucketOf(h.hash(e)))
	for *p != e {
		p = h.next(*p)
	}
	*p, *h.next(e) = *h.next(e), nil
	if t.count--; t.count == 0 {
		*t = hashTable[E, H]{}
		return
	}
	for n := 0; n < 2 && t.buckets > 2*t.count; n++ {
		t.shrink()
	}
}

// grow adds a bucket.
func (t *hashTable[E, H]) grow() {
	i := t.buckets
	if i%pageBuckets == 0 {
		var page []*E
		if i > 0 { // a table with few entries has a small page
			page = make([]*E, 0, pageBuckets)
		}
		t.pages = append(t.pages, page)
	}
	last := &t.pages[i/pageBuckets]
	*last = append(*last, nil)
	t.buckets++
	if i == 0 {
		return
	}
	var h H
	added := t.bucket(i)
	for p := t.bucket(parent(i)); *p != nil; {
		e := *p
		if t.bucketOf(h.hash(e)) != i {
			p = h.next(e)
			continue
		}
		*p, *h.next(e), *added = *h.next(e), *added, e
	}
}

// shrink takes the last bucket away.
func (t *hashTable[E, H]) shrink() {
	t.buckets--
	i := t.buckets
	var h H
	p := t.bucket(parent(i))
	for *p != nil {
		p = h.next(*p)
	}
	*p = *t.bucket(i)
	last := i / pageBuckets
	t.pages[last][i%pageBuckets] = nil
	t.pages[last] = t.pages[last][:i%pageBuckets]
	if i%pageBuckets == 0 {
		t.pages[last] = nil
		t.pages = t.pages[:last]
	}
}
