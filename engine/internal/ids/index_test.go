package ids

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"trellis/engine/internal/arena"
)

// leaves counts the leaves and nodes of an index, without its root.
func (x *Index) leaves() (leaves, nodes int) {
	var walk func(n *node)
	walk = func(n *node) {
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
		var x Index
		first := max(base, 1) // id 0 is never handed out
		last := base + perLeaf - 1
		// In any order, and whether or not an id ever had a place.
		var ids []uint64
		for id := first; ; id++ {
			ids = append(ids, id)
			if id%3 != 0 {
				x.Put(id, Place(id%1000+1))
			}
			if id == last {
				break
			}
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for i, id := range ids {
			if i%500 == 0 {
				if leaves, _ := x.leaves(); leaves != 1 {
					t.Fatalf("base %d: %d leaves with %d ids left", base, leaves, len(ids)-i)
				}
			}
			x.Retire(id)
			if p := x.Get(id); p != 0 {
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
	var x Index
	retireLeaf := func(number uint64) {
		id := number*perLeaf + 1
		x.Put(id, 1)
		x.leaf(id).left.Store(1) // as if the others had been retired
		x.Retire(id)
	}
	for n := range uint64(perNode - 1) {
		retireLeaf(n)
	}
	x.Put(perNode*perLeaf+5, 7) // the first of the next node
	if leaves, nodes := x.leaves(); leaves != 1 || nodes != 2 {
		t.Fatalf("before: %d leaves, %d nodes", leaves, nodes)
	}
	retireLeaf(perNode - 1)
	if leaves, nodes := x.leaves(); leaves != 1 || nodes != 1 {
		t.Fatalf("after: %d leaves, %d nodes", leaves, nodes)
	}
	if p := x.Get(perNode*perLeaf + 5); p != 7 {
		t.Fatalf("the place of an id in the next node is %d", p)
	}
}

func TestIDsAtTheEndsOfTheirRangeAreFound(t *testing.T) {
	ids := []uint64{
		1, perLeaf - 1, perLeaf, 1<<(leafBits+nodeBits) - 1, 1 << (leafBits + nodeBits),
		1 << (leafBits + 2*nodeBits), 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64,
	}
	var x Index
	for i, id := range ids {
		if p := x.Get(id); p != 0 {
			t.Fatalf("id %d has place %d before it is put", id, p)
		}
		x.Put(id, PlaceOf(i, arena.Ref(MaxRef-i)))
	}
	for i, id := range ids {
		if p := x.Get(id); p.Shard() != i || p.Ref() != arena.Ref(MaxRef-i) {
			t.Fatalf("id %d is in shard %d at %d", id, p.Shard(), p.Ref())
		}
		x.Retire(id)
		if p := x.Get(id); p != 0 {
			t.Fatalf("the retired id %d has place %d", id, p)
		}
	}
	if p := x.Get(0); p != 0 {
		t.Fatalf("id 0 has place %d", p)
	}
}

// An id is found from when it is put until it is retired and at no other time,
// while other ids and leaves come and go.
func TestIDsAreFoundWhileOthersComeAndGo(t *testing.T) {
	const writers, readers, each = 4, 2, 5 * perLeaf
	var x Index
	var lastID, done atomic.Uint64
	placeFor := func(id uint64) Place { return Place(id*7 + 1) }
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			defer done.Add(1)
			var mine []uint64
			for range each {
				id := lastID.Add(1)
				if id%10 == 0 {
					x.Retire(id) // never becomes a job
					continue
				}
				x.Put(id, placeFor(id))
				mine = append(mine, id)
				if p := x.Get(id); p != placeFor(id) {
					t.Errorf("id %d has place %d, want %d", id, p, placeFor(id))
					return
				}
				if len(mine) > 100 {
					x.Retire(mine[0])
					mine = mine[1:]
				}
			}
			for _, id := range mine {
				x.Retire(id)
			}
		})
	}
	for i := range readers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for done.Load() < writers {
				id := rnd.Uint64N(lastID.Load()+1000) + 1
				if p := x.Get(id); p != 0 && p != placeFor(id) {
					t.Errorf("id %d has place %d, want %d", id, p, placeFor(id))
					return
				}
			}
		})
	}
	all.Wait()
	for id := uint64(1); id <= lastID.Load(); id++ {
		if x.Get(id) != 0 {
			t.Fatalf("id %d is still there", id)
		}
	}
	// The one in which the next ids will be.
	if leaves, _ := x.leaves(); leaves != 1 {
		t.Fatalf("%d leaves are left of %d ids", leaves, lastID.Load())
	}
}

// After a restart the index is as if it had never stopped, whatever came and went
// while it was restored.
func TestARestoredIndexForgetsLeavesAsOneThatNeverStopped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint64{0, 3, perLeaf - 2, 3 * perLeaf, perNode*perLeaf - 5, 1<<36 - 3}).Draw(t, "base")
		live := map[uint64]Place{}
		var x Index
		x.BeginRestore()
		var shards [2]Retirement
		for range rapid.IntRange(0, 30).Draw(t, "records") {
			id := base + rapid.Uint64Range(1, 3*perLeaf).Draw(t, "id")
			if live[id] != 0 && rapid.Bool().Draw(t, "delete") {
				shards[id%2].Retire(&x, id)
				delete(live, id)
				continue
			}
			live[id] = Place(rapid.Uint32Range(1, 1000).Draw(t, "place"))
			x.Put(id, live[id])
		}
		next := base + 1
		for id := range live {
			next = max(next, id+1)
		}
		next += rapid.Uint64Range(0, 2*perLeaf).Draw(t, "unused")
		if rapid.Bool().Draw(t, "counted before the end") {
			shards[0].flush(&x)
		}
		x.EndRestore(next)
		for id := base; id < next+perLeaf; id++ {
			if x.Get(id) != live[id] {
				t.Fatalf("id %d has place %d, want %d", id, x.Get(id), live[id])
			}
		}
		for id := range live {
			shards[id%2].Retire(&x, id)
		}
		end := (next/perLeaf + 2) * perLeaf
		for id := next; id < end; id++ {
			if id%2 == 0 {
				x.Put(id, 1)
			}
			x.Retire(id)
		}
		shards[0].flush(&x)
		shards[1].flush(&x)
		x.checkPruned(t, end)
	})
}

// checkPruned checks that nothing is left of the ids below end, the first of a leaf,
// and that all others are still to come.
func (x *Index) checkPruned(t *rapid.T, end uint64) {
	if leaves, _ := x.leaves(); leaves != 0 {
		t.Fatalf("%d leaves are left", leaves)
	}
	n := x.root.Load()
	if !n.covers(end) {
		if n.left != 0 {
			t.Fatalf("the root has %d children left, want none", n.left)
		}
		return
	}
	for {
		if want := 1<<nodeBits - int(n.slot(end)); n.left != want {
			t.Fatalf("a node with children of %d bits has %d left, want %d", n.shift, n.left, want)
		}
		if n.leaves != nil {
			return
		}
		if n = n.nodes[n.slot(end)].Load(); n == nil {
			return
		}
	}
}

const perNode = 1 << nodeBits

// The index agrees with a map, whatever happens to its ids in whatever order, and is
// empty in the end.
func TestTheIndexAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index
		first := rapid.SampledFrom([]uint64{1, perLeaf, perNode*perLeaf - perLeaf, 1<<36 - perLeaf, math.MaxUint64 - 4*perLeaf + 1}).Draw(t, "first")
		const n = 4*perLeaf - 1
		var inUse []uint64 // handed out and not retired
		want := map[uint64]Place{}
		var shards [3]Retirement
		shardOf := func(id uint64) *Retirement { return &shards[id%3] }
		next := first
		for next < first+n || len(inUse) > 0 {
			handOut := len(inUse) == 0 || next < first+n && rapid.IntRange(0, 9).Draw(t, "step") < 6
			if handOut {
				count := min(rapid.Uint64Range(1, 100).Draw(t, "count"), first+n-next)
				switch rapid.IntRange(0, 2).Draw(t, "use") {
				case 0:
					x.RetireUnused(next, next+count-1)
				case 1:
					for id := next; id != next+count; id++ {
						want[id] = Place(id%1000 + 1)
						x.Put(id, want[id])
						inUse = append(inUse, id)
					}
				default: // never a job's
					for id := next; id != next+count; id++ {
						inUse = append(inUse, id)
					}
				}
				next += count
				continue
			}
			for range min(len(inUse), rapid.IntRange(1, 200).Draw(t, "retired")) {
				i := rapid.IntRange(0, len(inUse)-1).Draw(t, "which")
				id := inUse[i]
				inUse[i] = inUse[len(inUse)-1]
				inUse = inUse[:len(inUse)-1]
				if want[id] != 0 && id%2 == 0 {
					shardOf(id).Retire(&x, id)
				} else {
					x.Retire(id)
				}
				delete(want, id)
			}
			for id := first; id != next; id++ {
				if x.Get(id) != want[id] {
					t.Fatalf("id %d has place %d, want %d", id, x.Get(id), want[id])
				}
			}
		}
		for i := range shards {
			shards[i].flush(&x)
		}
		// The first leaf's other ids, and the last one's.
		for id := first &^ (perLeaf - 1); id != first; id++ {
			if id != 0 {
				x.Retire(id)
			}
		}
		for id := next; leafSlot(id) != 0; id++ {
			x.Retire(id)
		}
		if leaves, _ := x.leaves(); leaves != 0 {
			t.Fatalf("%d leaves are left", leaves)
		}
	})
}

// While an engine is restored, leaves without a job go away, so that one that follows
// another for long takes no more memory than its jobs do.
func TestAnIndexThatIsRestoredForLongKeepsOnlyLeavesWithJobs(t *testing.T) {
	var x Index
	x.BeginRestore()
	var shard Retirement
	const jobs = 100
	for id := uint64(1); id < 100*perLeaf; id++ {
		x.Put(id, 1)
		if id > jobs {
			shard.Retire(&x, id-jobs)
		}
	}
	shard.flush(&x)
	if leaves, _ := x.leaves(); leaves > 2 {
		t.Fatalf("%d leaves for %d jobs", leaves, jobs)
	}
}

// BenchmarkEndRestore measures how long an engine with ten million jobs takes, once it
// is to hand out ids itself, to make its index ready.
func BenchmarkEndRestore(b *testing.B) {
	const jobs = 10_000_000
	var x Index
	x.BeginRestore()
	for id := uint64(1); id <= jobs; id++ {
		x.Put(id, 1)
	}
	next := uint64(jobs + 1)
	for b.Loop() {
		x.restoring = true
		x.EndRestore(next)
		next += perLeaf
	}
}
