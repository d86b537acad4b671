package engine

// A heap orders jobs by a key and, for equal keys, by id. It has four children
// to a node: half the depth of a binary one, and a node's children share a
// cache line or two. A job in a heap knows its place in it (job.prev), so it can
// be taken from the middle. The shard's lock guards it.
type heap []heapEntry

type heapEntry struct {
	key uint64
	id  uint64
	ref ref
}

const heapArity = 4

func (a heapEntry) before(b heapEntry) bool {
	return a.key < b.key || a.key == b.key && a.id < b.id
}

func (h *heap) push(sh *shard, e heapEntry) {
	*h = append(*h, e)
	h.up(sh, len(*h)-1)
}

// remove takes the entry at a place out.
func (h *heap) remove(sh *shard, i int) {
	s := *h
	last := len(s) - 1
	e := s[last]
	s[last] = heapEntry{}
	*h = s[:last]
	if i < last {
		s[i] = e
		if !h.down(sh, i) {
			h.up(sh, i)
		}
	}
	if c := cap(s); c > 64 && last < c/4 {
		*h = append(make(heap, 0, c/2), s[:last]...)
	}
}

func (h heap) up(sh *shard, i int) {
	e := h[i]
	for i > 0 {
		parent := (i - 1) / heapArity
		if !e.before(h[parent]) {
			break
		}
		h.put(sh, i, h[parent])
		i = parent
	}
	h.put(sh, i, e)
}

func (h heap) down(sh *shard, i int) (moved bool) {
	e := h[i]
	for {
		first := i*heapArity + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+heapArity, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(e) {
			break
		}
		h.put(sh, i, h[least])
		i, moved = least, true
	}
	h.put(sh, i, e)
	return moved
}

func (h heap) put(sh *shard, i int, e heapEntry) {
	h[i] = e
	sh.job(e.ref).prev = uint32(i)
}
