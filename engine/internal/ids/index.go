package ids

import (
	"iter"
	"sync"
	"sync/atomic"

	"trellis/engine/internal/arena"
)

// A Place is a job's shard, in the high bits, and its ref there. The zero Place
// is none.
type Place uint32

const (
	MaxShards = 16             // that a Place can tell apart
	refBits   = 28             // 268 million jobs in a shard
	MaxRef    = 1<<refBits - 1 // the greatest ref of a job
)

// PlaceOf is the place of a job's record in a shard.
func PlaceOf(shard int, r arena.Ref) Place { return Place(shard)<<refBits | Place(r) }

// Shard is the number of the shard.
func (p Place) Shard() int { return int(p >> refBits) }

// Ref names the job's record in the shard.
func (p Place) Ref() arena.Ref { return arena.Ref(p) & MaxRef }

// A Set is a set of shards, with a bit for each.
type Set uint16

// Index finds a job's place by its id. Readers take no lock.
//
// It is a radix tree: a leaf holds the places of 256 ids, a node has 16,384
// children. The root covers the ids seen so far and no more: a node up to id
// 4,194,303, a second level up to 68 billion.
//
// An entry is written under the lock of its job's shard. Whoever reads one without
// that lock reads it again under the lock.
//
// A leaf is pruned when all of its ids are retired. Every id that was handed out is
// retired exactly once: when its job is deleted, or when it is clear that it will
// never be a job's. A node is pruned when all of its children have been.
//
// While an engine is being restored, between BeginRestore and EndRestore, no id is
// handed out, and ids may come and go in any order, the same one repeatedly. Then a
// leaf is pruned when none of its ids has a place.
type Index struct {
	root      atomic.Pointer[node]
	restoring bool // changes only while nobody else uses the index

	_    [64]byte
	Last atomic.Uint64 // the last id that was handed out; shares no cache line with what every look-up reads

	_  [64]byte   // the lock shares no cache line with what every look-up reads
	mu sync.Mutex // held to add and to prune leaves and nodes
	_  [64]byte
}

const (
	leafBits = 8  // that select the entry in a leaf
	nodeBits = 14 // that select the child in each of 4 nodes
)

// node is an inner node. Its children are leaves in the lowest level and nodes in
// those above it.
type node struct {
	shift  int // a child covers 1<<shift ids
	leaves *[1 << nodeBits]atomic.Pointer[Leaf]
	nodes  *[1 << nodeBits]atomic.Pointer[node]
	left   int // children that are not pruned, or, while restoring, that exist; guarded by Index.mu
}

// Leaf keeps its entries in the order of the ids: the 16 ids of a block share a
// cache line, and only the loop that took the block writes there.
type Leaf struct {
	places [1 << leafBits]atomic.Uint32
	left   atomic.Int32 // ids that are not retired, or, while restoring, that have a place
}

func (x *Index) newNode(shift int) *node {
	n := &node{shift: shift}
	if shift == leafBits {
		n.leaves = new([1 << nodeBits]atomic.Pointer[Leaf])
	} else {
		n.nodes = new([1 << nodeBits]atomic.Pointer[node])
	}
	if !x.restoring {
		n.left = 1 << nodeBits
	}
	return n
}

func leafSlot(id uint64) uint64 { return id & (1<<leafBits - 1) }

func (n *node) slot(id uint64) uint64 { return id >> (n.shift & 63) & (1<<nodeBits - 1) }

// covers reports whether the ids below n, a root, include id.
func (n *node) covers(id uint64) bool { return id>>(n.shift&63)>>nodeBits == 0 }

// Entry returns where the place of an id is kept, or nil if the id has no leaf. It
// stays valid when the leaf is pruned: then it holds no place.
func (x *Index) Entry(id uint64) *atomic.Uint32 {
	leaf := x.leaf(id)
	if leaf == nil {
		return nil
	}
	return &leaf.places[leafSlot(id)]
}

// Get returns the place of a job, zero if there is none.
func (x *Index) Get(id uint64) Place {
	e := x.Entry(id)
	if e == nil {
		return 0
	}
	return Place(e.Load())
}

// Discard empties the index.
func (x *Index) Discard() { x.root.Store(nil) }

// From yields the ids from that one on that have a place, in their order, with true. Where a leaf has none, which takes
// time as well, it yields the last id of that with false. Ids may come and go meanwhile.
func (x *Index) From(from uint64) iter.Seq2[uint64, bool] {
	return func(yield func(uint64, bool) bool) {
		for root := x.root.Load(); root != nil && root.covers(from); root = x.root.Load() {
			leaf, first := root.leafFrom(from, 0)
			if leaf == nil {
				return
			}
			last, some := first+1<<leafBits-1, false
			for slot := max(from, first) - first; slot < 1<<leafBits; slot++ {
				if leaf.places[slot].Load() != 0 {
					if some = true; !yield(first+slot, true) {
						return
					}
				}
			}
			if !some && !yield(last, false) {
				return
			}
			if from = last + 1; from == 0 {
				return
			}
		}
	}
}

// leafFrom returns the first leaf under n that has an id of at least from, and the first of its ids; nil if there is
// none. base is the first id under n.
func (n *node) leafFrom(from, base uint64) (leaf *Leaf, first uint64) {
	for slot := n.slot(from); slot < 1<<nodeBits; slot++ {
		first = base + slot<<(n.shift&63)
		if n.leaves != nil {
			if leaf = n.leaves[slot].Load(); leaf != nil {
				return leaf, first
			}
		} else if child := n.nodes[slot].Load(); child != nil {
			if leaf, first = child.leafFrom(max(from, first), first); leaf != nil {
				return leaf, first
			}
		}
	}
	return nil, 0
}

func (x *Index) leaf(id uint64) *Leaf {
	n := x.root.Load()
	if n == nil || !n.covers(id) {
		return nil
	}
	for n.leaves == nil {
		if n = n.nodes[n.slot(id)].Load(); n == nil {
			return nil
		}
	}
	return n.leaves[n.slot(id)].Load()
}

// Put sets the place of an id that has been handed out and is not retired.
func (x *Index) Put(id uint64, p Place) {
	leaf := x.leaf(id)
	if leaf == nil {
		leaf = x.addLeaf(id)
	}
	entry := &leaf.places[leafSlot(id)]
	if x.restoring && entry.Load() == 0 {
		leaf.left.Add(1)
	}
	entry.Store(uint32(p))
}

func (x *Index) addLeaf(id uint64) *Leaf {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.grow(id)
	for n.leaves == nil {
		slot := &n.nodes[n.slot(id)]
		if slot.Load() == nil {
			if x.restoring {
				n.left++
			}
			slot.Store(x.newNode(n.shift - nodeBits))
		}
		n = slot.Load()
	}
	slot := &n.leaves[n.slot(id)]
	if slot.Load() == nil {
		leaf := new(Leaf)
		switch {
		case x.restoring:
			n.left++
		case id < 1<<leafBits:
			leaf.left.Store(1<<leafBits - 1) // id 0 is never handed out
		default:
			leaf.left.Store(1 << leafBits)
		}
		slot.Store(leaf)
	}
	return slot.Load()
}

// grow returns the root, after it has made one that covers id. The caller holds mu.
func (x *Index) grow(id uint64) *node {
	root := x.root.Load()
	if root != nil && root.covers(id) {
		return root
	}
	if root == nil {
		shift := leafBits
		for id>>shift>>nodeBits != 0 {
			shift += nodeBits
		}
		root = x.newNode(shift)
	}
	for !root.covers(id) {
		above := x.newNode(root.shift + nodeBits)
		switch {
		case root.left == 0:
			if !x.restoring {
				above.left-- // all ids under the old root are retired
			}
		default:
			above.nodes[0].Store(root)
			if x.restoring {
				above.left++
			}
		}
		root = above
	}
	x.root.Store(root)
	return root
}

// Retire ends an id that was handed out. It may have a place or not.
func (x *Index) Retire(id uint64) {
	leaf := x.leaf(id)
	if leaf == nil {
		leaf = x.addLeaf(id)
	}
	leaf.places[leafSlot(id)].Store(0)
	x.count(leaf, id, 1)
}

// RetireUnused ends the ids from first to last, which never had a place.
func (x *Index) RetireUnused(first, last uint64) {
	for {
		end := min(last, first|(1<<leafBits-1))
		leaf := x.leaf(first)
		if leaf == nil {
			leaf = x.addLeaf(first)
		}
		x.count(leaf, first, int32(end-first+1))
		if end == last {
			return
		}
		first = end + 1
	}
}

// count counts n ids of a leaf, of which id is one, as retired.
func (x *Index) count(leaf *Leaf, id uint64, n int32) {
	if leaf.left.Add(-n) > 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.root.Load().prune(id)
}

// A Retirement holds ids of one leaf that have no place any more and are still to
// be counted as retired. Its owner's lock guards it. One count for many ids keeps the
// processors from passing the leaf's counter around. As long as there is one to be
// counted, the leaf is not pruned.
type Retirement struct {
	leaf *Leaf
	id   uint64 // one of them
	n    int32
}

// Retire ends an id that has a place.
func (r *Retirement) Retire(x *Index, id uint64) {
	if r.leaf == nil || (id^r.id)>>leafBits != 0 {
		r.flush(x)
		r.leaf, r.id = x.leaf(id), id
	}
	r.leaf.places[leafSlot(id)].Store(0)
	r.n++
}

func (r *Retirement) flush(x *Index) {
	if r.leaf != nil {
		x.count(r.leaf, r.id, r.n)
	}
	*r = Retirement{}
}

// prune removes the leaf of id, and every node under n that has lost its last child
// by that. It reports whether n has lost its last.
func (n *node) prune(id uint64) bool {
	slot := n.slot(id)
	if n.leaves != nil {
		n.leaves[slot].Store(nil)
	} else {
		if !n.nodes[slot].Load().prune(id) {
			return false
		}
		n.nodes[slot].Store(nil)
	}
	n.left--
	return n.left == 0
}

// BeginRestore lets ids have places that were never handed out. The index must be
// empty, and one goroutine alone may change it until EndRestore.
func (x *Index) BeginRestore() { x.restoring = true }

// EndRestore says that next is the first id to be handed out: the ids below it that
// have no place are retired. No id from next on may have a place. It takes time for
// one leaf and the nodes above it, however many ids there are.
func (x *Index) EndRestore(next uint64) {
	leaf := x.leaf(next)
	if leaf == nil {
		leaf = x.addLeaf(next)
	}
	x.restoring = false
	leaf.left.Add(1<<leafBits - int32(leafSlot(next)))
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := x.root.Load(); ; n = n.nodes[n.slot(next)].Load() {
		n.left += 1<<nodeBits - 1 - int(n.slot(next)) // children that are to come
		if n.leaves != nil {
			return
		}
	}
}
