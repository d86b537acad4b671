package engine

import (
	"sync"
	"sync/atomic"
)

// A place is a job's shard, in the high bits, and its ref there. The zero place
// is none.
type place uint32

const (
	maxShards = 16
	refBits   = 28 // 268 million jobs in a shard
	maxJobRef = 1<<refBits - 1
)

func placeOf(shard int, r ref) place { return place(shard)<<refBits | place(r) }

func (p place) shard() int { return int(p >> refBits) }
func (p place) ref() ref   { return ref(p) & maxJobRef }

// idIndex finds a job's place by its id, without a lock.
//
// Ids are handed out in order, so the index is a tree of arrays with a leaf for
// every 256 ids: a job that outlives all others keeps a kilobyte. An entry is
// written under the lock of the job's shard; whoever read one without that lock
// reads it again under it. A leaf goes away when each of its ids has been retired,
// which happens to every id exactly once: when its job is deleted, or when it turns
// out never to become a job. Each shard may keep one leaf longer, whose last ids it
// has not yet counted. A node goes away when each of its slots has had its time.
type idIndex struct {
	root atomic.Pointer[idNode]
	mu   sync.Mutex // held to add and remove nodes
}

const (
	leafBits = 8
	nodeBits = 14
	topShift = 64 - nodeBits // 64 is 8 bits in a leaf and 14 in each of 4 nodes
)

// idNode points to nodes, or in the lowest level to leaves.
type idNode struct {
	nodes  *[1 << nodeBits]atomic.Pointer[idNode]
	leaves *[1 << nodeBits]atomic.Pointer[idLeaf]
	left   int // slots with ids that are not yet retired; guarded by idIndex.mu
}

type idLeaf struct {
	places [1 << leafBits]atomic.Uint32
	left   atomic.Int32 // ids not yet retired
}

func newIDNode(shift int) *idNode {
	if shift == leafBits {
		return &idNode{leaves: new([1 << nodeBits]atomic.Pointer[idLeaf]), left: 1 << nodeBits}
	}
	return &idNode{nodes: new([1 << nodeBits]atomic.Pointer[idNode]), left: 1 << nodeBits}
}

// leafSlot spreads ids that follow each other over the cache lines of a leaf: they
// are often put by different loops at the same time.
func leafSlot(id uint64) uint64 { return id&15<<4 | id>>4&15 }

func nodeSlot(id uint64, shift int) uint64 { return id >> shift & (1<<nodeBits - 1) }

// get returns the place of a job, zero if there is none.
func (x *idIndex) get(id uint64) place {
	leaf := x.leaf(id)
	if leaf == nil {
		return 0
	}
	return place(leaf.places[leafSlot(id)].Load())
}

func (x *idIndex) leaf(id uint64) *idLeaf {
	n := x.root.Load()
	for shift := topShift; n != nil; shift -= nodeBits {
		if shift == leafBits {
			return n.leaves[nodeSlot(id, shift)].Load()
		}
		n = n.nodes[nodeSlot(id, shift)].Load()
	}
	return nil
}

// put sets the place of an id that has been handed out and not been retired.
func (x *idIndex) put(id uint64, p place) {
	leaf := x.leaf(id)
	if leaf == nil {
		leaf = x.addLeaf(id)
	}
	leaf.places[leafSlot(id)].Store(uint32(p))
}

func (x *idIndex) addLeaf(id uint64) *idLeaf {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.root.Load() == nil {
		x.root.Store(newIDNode(topShift))
	}
	n := x.root.Load()
	for shift := topShift; shift > leafBits; shift -= nodeBits {
		slot := &n.nodes[nodeSlot(id, shift)]
		if slot.Load() == nil {
			slot.Store(newIDNode(shift - nodeBits))
		}
		n = slot.Load()
	}
	slot := &n.leaves[nodeSlot(id, leafBits)]
	if slot.Load() == nil {
		leaf := new(idLeaf)
		leaf.left.Store(1 << leafBits)
		if id < 1<<leafBits {
			leaf.left.Add(-1) // id 0 is never handed out
		}
		slot.Store(leaf)
	}
	return slot.Load()
}

// retire says that an id which had been handed out is done with.
func (x *idIndex) retire(id uint64) {
	leaf := x.leaf(id)
	if leaf == nil {
		leaf = x.addLeaf(id)
	}
	leaf.places[leafSlot(id)].Store(0)
	x.count(leaf, id, 1)
}

// count counts n ids of a leaf, of which id is one, as retired.
func (x *idIndex) count(leaf *idLeaf, id uint64, n int32) {
	if leaf.left.Add(-n) > 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.root.Load().prune(id, topShift)
}

// A retirement is ids of one leaf that are done with, but not counted yet: counting
// each of them when it is would keep the processors passing the count around. Its
// owner's lock guards it.
type retirement struct {
	leaf *idLeaf
	id   uint64 // one of them
	n    int32
}

// retire says that an id which has a place is done with.
func (r *retirement) retire(x *idIndex, id uint64) {
	leaf := x.leaf(id)
	leaf.places[leafSlot(id)].Store(0)
	if leaf != r.leaf {
		r.flush(x)
		r.leaf, r.id = leaf, id
	}
	r.n++
}

func (r *retirement) flush(x *idIndex) {
	if r.leaf != nil {
		x.count(r.leaf, r.id, r.n)
	}
	*r = retirement{}
}

// prune takes the leaf of id off, and every node under n that it was the last
// one of. It tells whether n itself is such a node.
func (n *idNode) prune(id uint64, shift int) bool {
	slot := nodeSlot(id, shift)
	if shift == leafBits {
		n.leaves[slot].Store(nil)
	} else {
		if !n.nodes[slot].Load().prune(id, shift-nodeBits) {
			return false
		}
		n.nodes[slot].Store(nil)
	}
	n.left--
	return n.left == 0
}

// restored says that of the ids below next only those with a place are in use.
// Nobody else may use the index meanwhile.
func (x *idIndex) restored(next uint64) {
	if x.leaf(next) == nil {
		x.addLeaf(next)
	}
	if root := x.root.Load(); root != nil {
		root.recount(topShift, 0, next)
	}
}

// recount sets what is left of each leaf and node under a node whose first id is
// base, takes off those of which nothing is, and tells whether that is so of n.
func (n *idNode) recount(shift int, base, next uint64) bool {
	n.left = 0
	for i := range 1 << nodeBits {
		first := base | uint64(i)<<shift
		last := first | (1<<shift - 1)
		switch {
		case shift == leafBits && n.leaves[i].Load() != nil:
			if n.leaves[i].Load().recount(first, next) {
				n.leaves[i].Store(nil)
				continue
			}
		case shift > leafBits && n.nodes[i].Load() != nil:
			if n.nodes[i].Load().recount(shift-nodeBits, first, next) {
				n.nodes[i].Store(nil)
				continue
			}
		case last < next:
			continue
		}
		n.left++
	}
	return n.left == 0
}

func (l *idLeaf) recount(base, next uint64) bool {
	left := int32(0)
	for k := range uint64(1 << leafBits) {
		if l.places[leafSlot(k)].Load() != 0 || base+k >= next {
			left++
		}
	}
	l.left.Store(left)
	return left == 0
}
