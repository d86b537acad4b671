package engine

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// leaves counts the leaves and nodes of an index, without its root.
func (x *idIndex) leaves() (leaves, nodes int) {
	var walk func(n *idNode)
	walk = func(n *idNode) {
		for i := range 1 << nodeBits {
			switch {
			case n.leaves != nil && n.leaves[i].Load() != nil:
				leaves++
			case n.nodes != nil && n.nodes[i].Load() != nil:
				nodes++
				walk(n.nodes[i].Load())
			}
		}
	}
	if root := x.root.Load(); root != nil {
		walk(root)
	}
	return leaves, nodes
}

const perLeaf = 1 << leafBits

func TestALeafGoesAwayWithTheLastOfItsIDs(t *testing.T) {
	for _, base := range []uint64{0, perLeaf, 1 << (leafBits + nodeBits), math.MaxUint64 - perLeaf + 1} {
		var x idIndex
		first := max(base, 1) // id 0 is never handed out
		last := base + perLeaf - 1
		// In any order, and whether or not an id ever had a place.
		var ids []uint64
		for id := first; ; id++ {
			ids = append(ids, id)
			if id%3 != 0 {
				x.put(id, place(id%1000+1))
			}
			if id == last {
				break
			}
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for i, id := range ids {
			if leaves, _ := x.leaves(); i%500 == 0 && leaves != 1 {
				t.Fatalf("base %d: %d leaves with %d ids left", base, leaves, len(ids)-i)
			}
			x.retire(id)
			if p := x.get(id); p != 0 {
				t.Fatalf("the retired id %d has place %d", id, p)
			}
		}
		if leaves, _ := x.leaves(); leaves != 0 {
			t.Fatalf("base %d: %d leaves are left", base, leaves)
		}
	}
}

// Ids that are never seen again cost nothing, however many there were.
func TestANodeGoesAwayWithTheLastOfItsLeaves(t *testing.T) {
	var x idIndex
	retireLeaf := func(number uint64) {
		id := number*perLeaf + 1
		x.put(id, 1)
		x.leaf(id).left.Store(1) // as if the others had been retired
		x.retire(id)
	}
	const perNode = 1 << nodeBits
	for n := range uint64(perNode - 1) {
		retireLeaf(n)
	}
	x.put(perNode*perLeaf+5, 7) // the first of the next node
	if leaves, nodes := x.leaves(); leaves != 1 || nodes != 4 {
		t.Fatalf("before: %d leaves, %d nodes", leaves, nodes)
	}
	retireLeaf(perNode - 1)
	if leaves, nodes := x.leaves(); leaves != 1 || nodes != 3 {
		t.Fatalf("after: %d leaves, %d nodes", leaves, nodes)
	}
	if p := x.get(perNode*perLeaf + 5); p != 7 {
		t.Fatalf("the place of an id in the next node is %d", p)
	}
}

func TestIDsAtTheEndsOfTheirRangeAreFound(t *testing.T) {
	ids := []uint64{
		1, perLeaf - 1, perLeaf, 1<<(leafBits+nodeBits) - 1, 1 << (leafBits + nodeBits),
		1 << (leafBits + 2*nodeBits), 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64,
	}
	var x idIndex
	for i, id := range ids {
		if p := x.get(id); p != 0 {
			t.Fatalf("id %d has place %d before it is put", id, p)
		}
		x.put(id, placeOf(i, ref(maxJobRef-i)))
	}
	for i, id := range ids {
		if p := x.get(id); p.shard() != i || p.ref() != ref(maxJobRef-i) {
			t.Fatalf("id %d is in shard %d at %d", id, p.shard(), p.ref())
		}
		x.retire(id)
		if p := x.get(id); p != 0 {
			t.Fatalf("the retired id %d has place %d", id, p)
		}
	}
	if p := x.get(0); p != 0 {
		t.Fatalf("id 0 has place %d", p)
	}
}

// An id is found from when it is put until it is retired and at no other time,
// while other ids and leaves come and go.
func TestIDsAreFoundWhileOthersComeAndGo(t *testing.T) {
	const writers, readers, each = 4, 2, 5 * perLeaf
	var x idIndex
	var lastID, done atomic.Uint64
	placeFor := func(id uint64) place { return place(id*7 + 1) }
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			defer done.Add(1)
			var mine []uint64
			for range each {
				id := lastID.Add(1)
				if id%10 == 0 {
					x.retire(id) // never becomes a job
					continue
				}
				x.put(id, placeFor(id))
				mine = append(mine, id)
				if p := x.get(id); p != placeFor(id) {
					t.Errorf("id %d has place %d, want %d", id, p, placeFor(id))
					return
				}
				if len(mine) > 100 {
					x.retire(mine[0])
					mine = mine[1:]
				}
			}
			for _, id := range mine {
				x.retire(id)
			}
		})
	}
	for i := range readers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for done.Load() < writers {
				id := rnd.Uint64N(lastID.Load()+1000) + 1
				if p := x.get(id); p != 0 && p != placeFor(id) {
					t.Errorf("id %d has place %d, want %d", id, p, placeFor(id))
					return
				}
			}
		})
	}
	all.Wait()
	for id := uint64(1); id <= lastID.Load(); id++ {
		if x.get(id) != 0 {
			t.Fatalf("id %d is still there", id)
		}
	}
	// The one in which the next ids will be.
	if leaves, _ := x.leaves(); leaves != 1 {
		t.Fatalf("%d leaves are left of %d ids", leaves, lastID.Load())
	}
}

// After a restart the index is as if it had never stopped.
func TestARestoredIndexForgetsLeavesAsOneThatNeverStopped(t *testing.T) {
	rapidFlag(t, "rapid.checks", 100)
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint64{0, 3, perLeaf - 2, 3 * perLeaf}).Draw(t, "base")
		live := map[uint64]bool{}
		for range rapid.IntRange(0, 5).Draw(t, "jobs") {
			live[base+rapid.Uint64Range(1, 3*perLeaf).Draw(t, "id")] = true
		}
		next := base + 1
		var x idIndex
		for id := range live {
			x.put(id, place(id))
			next = max(next, id+1)
		}
		next += rapid.Uint64Range(0, 2*perLeaf).Draw(t, "unused")
		x.restored(next)
		for id := range live {
			if x.get(id) != place(id) {
				t.Fatalf("id %d is lost", id)
			}
			x.retire(id)
		}
		end := (next/perLeaf + 2) * perLeaf
		for id := next; id < end; id++ {
			if id%2 == 0 {
				x.put(id, 1)
			}
			x.retire(id)
		}
		if leaves, _ := x.leaves(); leaves != 0 {
			t.Fatalf("%d leaves are left", leaves)
		}
		n := x.root.Load()
		for shift := topShift; shift > leafBits; shift -= nodeBits {
			n = n.nodes[0].Load()
		}
		if want := 1<<nodeBits - int(end/perLeaf); n.left != want {
			t.Fatalf("a node has %d slots to come, want %d", n.left, want)
		}
	})
}
