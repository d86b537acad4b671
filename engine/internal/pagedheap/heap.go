// Package pagedheap is a heap that lies in pages, which come and go one at a time: no call copies more
// than one of them, or a list of all. Who owns an entry knows its index, and can take it out by that.
package pagedheap

import "fmt"

// A Heap has entries in an order, with four children to a node. The zero Heap is empty. It is for one goroutine at
// a time.
type Heap[E any, P Entry[E]] struct {
	pages [][]E // At most one more than needed
	count int
}

// Entry is what a Heap asks of its entries.
type Entry[E any] interface {
	*E
	Before(*E) bool
	// Stand notes the entry's index.
	Stand(i int)
}

// PageLen is how many entries a page has.
const PageLen = 1 << pageBits

const (
	pageBits = 9
	arity    = 4
)

// Pages is how many pages there are, at most one more than needed.
func (h *Heap[E, P]) Pages() int { return len(h.pages) }

// Len is the number of entries.
func (h *Heap[E, P]) Len() int { return h.count }

// At returns the entry at an index. The first of all is at 0.
func (h *Heap[E, P]) At(i int) P { return &h.pages[i>>pageBits][i&(PageLen-1)] }

// Push adds an entry.
func (h *Heap[E, P]) Push(e E) {
	if h.count == len(h.pages)<<pageBits {
		var page []E
		if h.count > 0 { // a heap of few has a small page
			page = make([]E, 0, PageLen)
		}
		h.pages = append(h.pages, page)
	}
	last := &h.pages[h.count>>pageBits]
	*last = append(*last, e)
	h.count++
	h.Put(h.count-1, e)
}

// Remove takes out the entry at an index.
func (h *Heap[E, P]) Remove(i int) {
	h.count--
	page := &h.pages[h.count>>pageBits]
	last, rest := *h.At(h.count), h.count&(PageLen-1)
	clear((*page)[rest:])
	*page = (*page)[:rest]
	if n := len(h.pages); h.count <= (n-2)<<pageBits {
		h.pages[n-1] = nil
		h.pages = h.pages[:n-1]
	}
	if i < h.count {
		h.Put(i, last)
	}
}

// Put puts an entry at an index or, as far as it must, nearer to the first or the last.
func (h *Heap[E, P]) Put(i int, e E) {
	at := h.At(i)
	*at = e // where it is compared, it is not moved to Go's heap
	for i > 0 {
		above := (i - 1) / arity
		parent := h.At(above)
		if !at.Before(parent) {
			break
		}
		*at, *parent = *parent, *at
		at.Stand(i)
		i, at = above, parent
	}
	for {
		first := i*arity + 1
		if first >= h.count {
			break
		}
		least, child := first, h.At(first)
		for c := first + 1; c < min(first+arity, h.count); c++ {
			if x := h.At(c); x.Before(child) {
				least, child = c, x
			}
		}
		if !child.Before(at) {
			break
		}
		*at, *child = *child, *at
		at.Stand(i)
		i, at = least, child
	}
	at.Stand(i)
}

// Check looks at all that the heap keeps, and returns what does not fit together.
func (h *Heap[E, P]) Check() error {
	if n := len(h.pages); n > 0 && h.count <= (n-2)<<pageBits || n<<pageBits < h.count {
		return fmt.Errorf("%d entries lie on %d pages", h.count, n)
	}
	for i := 1; i < h.count; i++ {
		if h.At(i).Before(h.At((i - 1) / arity)) {
			return fmt.Errorf("entry %d stands behind one that it comes before", i)
		}
	}
	return nil
}
