package queue

import (
	"iter"
	"slices"
)

// A Heap orders records by a key and, for equal keys, by id. It has four
// children to a node: half the depth of a binary heap, and a node's children
// share a cache line or two. A record knows its index (Links.Prev), so it can be
// taken from the middle.
//
// Up to blockLen entries lie in a slice that doubles and halves. Beyond that the
// slice becomes the first of a list of blocks, as it is, and one block at a time
// comes and goes: no call copies more than one block of 96 KiB.
//
// The zero Heap is empty. Its owner's lock guards it.
type Heap struct {
	small []Entry // all entries, or the whole first block of large
	large *blocks // nil while small holds all
}

// An Entry stands for a record in a Heap.
type Entry struct {
	Key uint64
	ID  uint64
	Ref Ref
}

// blocks are the entries of a large heap. Block i holds those from i*blockLen on.
type blocks struct {
	list []*[blockLen]Entry // at most one more than needed
	n    int                // entries
}

const (
	heapArity = 4
	blockBits = 12
	blockLen  = 1 << blockBits
)

func (a *Entry) before(b *Entry) bool {
	return a.Key < b.Key || a.Key == b.Key && a.ID < b.ID
}

// Len is the number of entries.
func (h *Heap) Len() int {
	if h.large != nil {
		return h.large.n
	}
	return len(h.small)
}

// room is the capacity in entries.
func (h *Heap) room() int {
	if h.large != nil {
		return len(h.large.list) << blockBits
	}
	return cap(h.small)
}

// trim gives back the room that Remove leaves to a heap of few entries.
func (h *Heap) trim() {
	switch n := len(h.small); {
	case n == 0:
		h.small = nil
	case n < cap(h.small)/4:
		h.small = append(make([]Entry, 0, cap(h.small)/2), h.small...)
	}
}

// First returns the least entry. The heap must not be empty.
func (h *Heap) First() Entry { return h.small[0] }

// At returns the entry at an index from 0 to Len()-1. Indexes are in no order,
// except that the first entry is at 0, and they change with every Push and
// Remove.
func (h *Heap) At(i int) Entry {
	if h.large != nil {
		return *h.large.at(i)
	}
	return h.small[i]
}

// Least yields the n least entries in order, fewer if there are not so many. The heap must
// not change meanwhile.
func (h *Heap) Least(n int) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		// The indexes of entries that were not yielded but whose parents were, the
		// greatest entry first: the last one is yielded next.
		var next []int
		add := func(i int) {
			e := h.At(i)
			at, _ := slices.BinarySearchFunc(next, &e, func(i int, e *Entry) int {
				if f := h.At(i); e.before(&f) {
					return -1
				}
				return 1
			})
			next = slices.Insert(next, at, i)
		}
		if h.Len() > 0 {
			add(0)
		}
		for ; n > 0 && len(next) > 0; n-- {
			i := next[len(next)-1]
			next = next[:len(next)-1]
			if !yield(h.At(i)) {
				return
			}
			for c := i*heapArity + 1; c <= (i+1)*heapArity && c < h.Len(); c++ {
				add(c)
			}
		}
	}
}

// LeastRefs is Least without what is known of the records.
func (h *Heap) LeastRefs(n int) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for e := range h.Least(n) {
			if !yield(e.Ref) {
				return
			}
		}
	}
}

// Push adds the record r, whose links are l.
func (h *Heap) Push(t Table, key uint64, r Ref, l *Links) {
	e := Entry{Key: key, ID: l.ID, Ref: r}
	n := len(h.small)
	if n == blockLen {
		h.pushLarge(t, e)
		return
	}
	if n == cap(h.small) && n >= blockLen/2 {
		h.small = append(make([]Entry, 0, blockLen), h.small...)
	}
	h.small = append(h.small, e)
	up(t, h.small, n, e)
}

// Remove takes out the record whose links are l.
func (h *Heap) Remove(t Table, l *Links) {
	i := int(l.Prev)
	if h.large != nil {
		h.removeLarge(t, i)
		return
	}
	last := len(h.small) - 1
	e := h.small[last]
	h.small = h.small[:last]
	if i < last && !down(t, h.small, i, e) {
		up(t, h.small, i, e)
	}
	if c := cap(h.small); c > 64 && last < c/4 {
		h.small = append(make([]Entry, 0, c/2), h.small...)
	}
}

// Moved tells the heap that the record with the links l is now named r.
func (h *Heap) Moved(r Ref, l *Links) {
	if h.large != nil {
		h.large.at(int(l.Prev)).Ref = r
		return
	}
	h.small[l.Prev].Ref = r
}

// up puts e at index i or, as far as it must, nearer to the first.
func up(t Table, s []Entry, i int, e Entry) {
	for i > 0 {
		parent := (i - 1) / heapArity
		if !e.before(&s[parent]) {
			break
		}
		set(t, &s[i], i, s[parent])
		i = parent
	}
	set(t, &s[i], i, e)
}

// down puts e at an index below i if it must stand there, and reports whether it
// did. If not, it leaves index i as it is.
func down(t Table, s []Entry, i int, e Entry) (moved bool) {
	for {
		first := i*heapArity + 1
		if first >= len(s) {
			break
		}
		least := first
		for c := first + 1; c < min(first+heapArity, len(s)); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if !s[least].before(&e) {
			break
		}
		set(t, &s[i], i, s[least])
		i, moved = least, true
	}
	if moved {
		set(t, &s[i], i, e)
	}
	return moved
}

// set writes e to index i, and the index into e's record.
func set(t Table, place *Entry, i int, e Entry) {
	*place = e
	t.at(e.Ref).Prev = uint32(i)
}

// pushLarge adds an entry to a heap whose slice is full.
func (h *Heap) pushLarge(t Table, e Entry) {
	b := h.large
	if b == nil {
		b = &blocks{list: []*[blockLen]Entry{(*[blockLen]Entry)(h.small)}, n: blockLen}
		h.large = b
	}
	if b.n == len(b.list)<<blockBits {
		b.list = append(b.list, new([blockLen]Entry))
	}
	b.n++
	b.up(t, b.n-1, e)
}

// removeLarge takes the i-th entry out of a heap with blocks.
func (h *Heap) removeLarge(t Table, i int) {
	b := h.large
	b.n--
	e := *b.at(b.n)
	if i < b.n && !b.down(t, i, e) {
		b.up(t, i, e)
	}
	if last := len(b.list) - 1; b.n <= (last-1)<<blockBits {
		b.list[last] = nil
		b.list = b.list[:last]
	}
	if b.n <= blockLen/2 {
		h.small, h.large = h.small[:b.n], nil
	}
}

func (b *blocks) at(i int) *Entry { return &b.list[i>>blockBits][i&(blockLen-1)] }

// up is the function up for entries in blocks.
func (b *blocks) up(t Table, i int, e Entry) {
	place := b.at(i)
	for i > 0 {
		parent := (i - 1) / heapArity
		above := b.at(parent)
		if !e.before(above) {
			break
		}
		set(t, place, i, *above)
		i, place = parent, above
	}
	set(t, place, i, e)
}

// down is the function down for entries in blocks.
func (b *blocks) down(t Table, i int, e Entry) (moved bool) {
	list, place := b.list, b.at(i)
	for {
		first := i*heapArity + 1
		if first >= b.n {
			break
		}
		least := first
		block, at := list[first>>blockBits], first&(blockLen-1)
		below := &block[at]
		if at <= blockLen-heapArity && first+heapArity <= b.n {
			children := block[at : at+heapArity]
			for c := 1; c < heapArity; c++ {
				if x := &children[c]; x.before(below) {
					least, below = first+c, x
				}
			}
		} else {
			for c := first + 1; c < min(first+heapArity, b.n); c++ {
				if x := b.at(c); x.before(below) {
					least, below = c, x
				}
			}
		}
		if !below.before(&e) {
			break
		}
		set(t, place, i, *below)
		i, place, moved = least, below, true
	}
	if moved {
		set(t, place, i, e)
	}
	return moved
}
