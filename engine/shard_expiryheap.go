package engine

// expiryHeap orders jobs by when they expire and, in one moment, by id. It has four children to a
// node, and lies in blocks, which come and go one at a time: no call copies more than a list of
// them. A job knows its index (keyed.place). The zero expiryHeap is empty.
type expiryHeap struct {
	blocks []*[expiryBlock]expiry // at most two more than needed
	len    int
}

// An expiry stands for a job in the heap.
type expiry struct {
	at Time
	k  *keyed
}

const (
	expiryArity     = 4
	expiryBlockBits = 9
	expiryBlock     = 1 << expiryBlockBits
)

func (e *expiry) before(f *expiry) bool { return e.at < f.at || e.at == f.at && e.k.id < f.k.id }

// at returns the entry at an index. The first of all is at 0.
func (h *expiryHeap) at(i int) *expiry { return &h.blocks[i>>expiryBlockBits][i&(expiryBlock-1)] }

// set writes e to index i, and the index into e's job.
func (h *expiryHeap) set(i int, e expiry) {
	*h.at(i) = e
	e.k.place = uint32(i) + 1
}

// push adds a job that is not in the heap.
func (h *expiryHeap) push(e expiry) {
	if h.len == len(h.blocks)<<expiryBlockBits {
		h.blocks = append(h.blocks, new([expiryBlock]expiry))
	}
	h.len++
	h.up(h.len-1, e)
}

// remove takes the job out that is at index i.
func (h *expiryHeap) remove(i int) {
	h.at(i).k.place = 0
	h.len--
	last := h.at(h.len)
	e := *last
	*last = expiry{}
	if i < h.len && !h.down(i, e) {
		h.up(i, e)
	}
	if n := len(h.blocks); h.len <= (n-2)<<expiryBlockBits {
		h.blocks[n-1] = nil
		h.blocks = h.blocks[:n-1]
	}
}

// up puts e at index i or, as far as it must, nearer to the first.
func (h *expiryHeap) up(i int, e expiry) {
	for i > 0 {
		parent := (i - 1) / expiryArity
		if !e.before(h.at(parent)) {
			break
		}
		h.set(i, *h.at(parent))
		i = parent
	}
	h.set(i, e)
}

// down puts e at an index below i if it must stand there, and reports whether it did. If not, it
// leaves index i as it is.
func (h *expiryHeap) down(i int, e expiry) (moved bool) {
	for first := i*expiryArity + 1; first < h.len; first = i*expiryArity + 1 {
		least := first
		for c := first + 1; c < min(first+expiryArity, h.len); c++ {
			if h.at(c).before(h.at(least)) {
				least = c
			}
		}
		if !h.at(least).before(&e) {
			break
		}
		h.set(i, *h.at(least))
		i, moved = least, true
	}
	if moved {
		h.set(i, e)
	}
	return moved
}
