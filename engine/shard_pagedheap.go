package engine

// A pagedHeap has entries in an order, with four children to a node. It lies in pages, which come
// and go one at a time: no call copies more than one of them, or a list of all. What an entry is of
// knows the entry's index. The zero pagedHeap is empty.
type pagedHeap[E any, P heapEntry[E]] struct {
	pages [][]E // at most one more than needed
	count int
}

type heapEntry[E any] interface {
	*E
	before(*E) bool
	// stand notes the entry's index.
	stand(i int)
}

const (
	pageBits   = 9
	pageLen    = 1 << pageBits
	pagedArity = 4
)

// at returns the entry at an index. The first of all is at 0.
func (h *pagedHeap[E, P]) at(i int) P { return &h.pages[i>>pageBits][i&(pageLen-1)] }

// push adds an entry.
func (h *pagedHeap[E, P]) push(e E) {
	if h.count == len(h.pages)<<pageBits {
		var page []E
		if h.count > 0 { // a heap of few has a small page
			page = make([]E, 0, pageLen)
		}
		h.pages = append(h.pages, page)
	}
	last := &h.pages[h.count>>pageBits]
	*last = append(*last, e)
	h.count++
	h.put(h.count-1, e)
}

// remove takes out the entry at an index.
func (h *pagedHeap[E, P]) remove(i int) {
	h.count--
	page := &h.pages[h.count>>pageBits]
	last, rest := *h.at(h.count), h.count&(pageLen-1)
	clear((*page)[rest:])
	*page = (*page)[:rest]
	if n := len(h.pages); h.count <= (n-2)<<pageBits {
		h.pages[n-1] = nil
		h.pages = h.pages[:n-1]
	}
	if i < h.count {
		h.put(i, last)
	}
}

// put puts an entry at an index or, as far as it must, nearer to the first or the last.
func (h *pagedHeap[E, P]) put(i int, e E) {
	at := h.at(i)
	*at = e // where it is compared, it is not moved to Go's heap
	for i > 0 {
		above := (i - 1) / pagedArity
		parent := h.at(above)
		if !at.before(parent) {
			break
		}
		*at, *parent = *parent, *at
		at.stand(i)
		i, at = above, parent
	}
	for {
		first := i*pagedArity + 1
		if first >= h.count {
			break
		}
		least, child := first, h.at(first)
		for c := first + 1; c < min(first+pagedArity, h.count); c++ {
			if x := h.at(c); x.before(child) {
				least, child = c, x
			}
		}
		if !child.before(at) {
			break
		}
		*at, *child = *child, *at
		at.stand(i)
		i, at = least, child
	}
	at.stand(i)
}
