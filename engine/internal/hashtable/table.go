package hashtable

import (
	"iter"
	"math/bits"
)

// A Table finds entries of type E by their hash, which H tells. The zero Table is empty. It is for one goroutine
// at a time.
type Table[E any, H Hashing[E]] struct {
	pages   [][]*E // of buckets, each with the first of its entries; only the last page is not full
	buckets int    // at least count, at most 2*count+1
	count   int    // entries
}

// Hashing tells a Table of its entries. It has no state.
type Hashing[E any] interface {
	Hash(*E) uint64 // All of its bits depend on the key
	Next(*E) **E    // the field for the next entry of the bucket
}

// Len is the number of entries.
func (t *Table[E, H]) Len() int { return t.count }

// Buckets is how many buckets the table has: none if it is empty, and otherwise at least Len and at most
// 2*Len+1.
func (t *Table[E, H]) Buckets() int { return t.buckets }

// pageBuckets is how many buckets a page has.
const pageBuckets = 512

func (t *Table[E, H]) bucket(i int) **E { return &t.pages[i/pageBuckets][i%pageBuckets] }

// bucketOf returns the bucket of the entries with a hash. There is at least one bucket.
func (t *Table[E, H]) bucketOf(hash uint64) int {
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

// First returns the first of the entries that may have a hash. The others follow by
// Hashing.Next.
func (t *Table[E, H]) First(hash uint64) *E {
	if t.buckets == 0 {
		return nil
	}
	return *t.bucket(t.bucketOf(hash))
}

// All yields all entries, in no order. The table must not change meanwhile.
func (t *Table[E, H]) All() iter.Seq[*E] {
	return func(yield func(*E) bool) {
		var h H
		for i := range t.buckets {
			for e := *t.bucket(i); e != nil; e = *h.Next(e) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Insert adds an entry, which is in no table of this kind.
func (t *Table[E, H]) Insert(e *E) {
	if t.count >= t.buckets {
		t.grow()
	}
	var h H
	b := t.bucket(t.bucketOf(h.Hash(e)))
	*h.Next(e), *b = *b, e
	t.count++
}

// Remove takes an entry out, which must be in.
func (t *Table[E, H]) Remove(e *E) {
	var h H
	p := t.bucket(t.bucketOf(h.Hash(e)))
	for *p != e {
		p = h.Next(*p)
	}
	*p, *h.Next(e) = *h.Next(e), nil
	if t.count--; t.count == 0 {
		*t = Table[E, H]{}
		return
	}
	for n := 0; n < 2 && t.buckets > 2*t.count; n++ {
		t.shrink()
	}
}

// grow adds a bucket.
func (t *Table[E, H]) grow() {
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
		if t.bucketOf(h.Hash(e)) != i {
			p = h.Next(e)
			continue
		}
		*p, *h.Next(e), *added = *h.Next(e), *added, e
	}
}

// shrink takes the last bucket away.
func (t *Table[E, H]) shrink() {
	t.buckets--
	i := t.buckets
	var h H
	p := t.bucket(parent(i))
	for *p != nil {
		p = h.Next(*p)
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
