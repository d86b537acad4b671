package ids

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func twoBlocks(lastID uint64) (x *Index, a, b *Block) {
	x = new(Index)
	x.Last.Store(lastID)
	return x, &Block{Index: x}, &Block{Index: x}
}

func TestALoopAloneHandsOutIDsWithoutGapsOverBatchesOfAnyLength(t *testing.T) {
	x, a, _ := twoBlocks(0)
	want := uint64(1)
	for batch := range 100 {
		for range batch {
			if id := a.Take(want - 1); id != want {
				t.Fatalf("batch of %d: id %d, want %d", batch, id, want)
			}
			want++
		}
		a.GiveBack()
		if last := x.Last.Load(); last != want-1 {
			t.Fatalf("after a batch of %d the last id is %d, want %d", batch, last, want-1)
		}
	}
}

func TestALongBatchTakesIDsByLinesOfTheIndex(t *testing.T) {
	x, a, _ := twoBlocks(0)
	const n = 1000
	asked := 0
	for last := uint64(0); a.last < n; {
		a.Take(0)
		if now := x.Last.Load(); now != last {
			last = now
			asked++
			if asked > 3 && (now+1)%idsInLine != 0 {
				t.Fatalf("a block ends with id %d", now)
			}
		}
	}
	if asked > n/idsInLine+3 {
		t.Fatalf("the counter was asked %d times for %d ids", asked, n)
	}
}

// What a loop has left when its batch ends and another one has taken ids since is
// handed out to nobody, and the index forgets it.
func TestIDsThatCannotBeGivenBackAreRetired(t *testing.T) {
	const end = 2 * perLeaf
	x, a, b := twoBlocks(perLeaf - 10)
	for id := uint64(1); id <= perLeaf-10; id++ {
		x.Retire(id)
	}
	handedOut := map[uint64]bool{}
	for x.Last.Load() < end {
		for range 6 {
			handedOut[a.Take(0)] = true
		}
		handedOut[b.Take(0)] = true
		a.GiveBack()
		b.GiveBack()
	}
	last := x.Last.Load()
	for id := range handedOut {
		x.Retire(id)
	}
	for id := last + 1; leafSlot(id) != 0; id++ {
		x.Retire(id)
	}
	if leaves, _ := x.leaves(); leaves != 0 {
		t.Fatalf("%d leaves are left after %d of %d ids", leaves, len(handedOut), last)
	}
}

// A put that finds jobs with greater ids in its shard gets a greater one, and the loop
// takes no more blocks in that batch.
func TestAnIDIsGreaterThanThoseOfEarlierPutsIntoTheShard(t *testing.T) {
	x, a, b := twoBlocks(0)
	for range 3 {
		a.Take(0)
	}
	after := b.Take(0)
	for range 20 {
		id := a.Take(after)
		if id != after+1 || x.Last.Load() != id {
			t.Fatalf("id %d after %d, and the last one of all is %d", id, after, x.Last.Load())
		}
		after = id
	}
}

// Whatever loops do, no id is handed out twice, those of a loop grow, and a put that
// begins after another one was answered has the greater id.
func TestIDsOfSeveralLoopsGrowWithTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, a, b := twoBlocks(0)
		loops := []*Block{a, b, {Index: x}}
		began := make([]uint64, len(loops)) // the greatest id answered when the loop's batch began
		inBatch := make([]bool, len(loops))
		last := make([]uint64, len(loops))
		seen := map[uint64]bool{}
		answered := uint64(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			i := rapid.IntRange(0, len(loops)-1).Draw(t, "loop")
			if !inBatch[i] {
				inBatch[i], began[i] = true, answered
			}
			for range rapid.IntRange(1, 40).Draw(t, "puts") {
				id := loops[i].Take(0)
				if seen[id] || id <= last[i] || id <= began[i] || id > x.Last.Load() {
					t.Fatalf("loop %d: id %d after its own %d; %d was answered before; seen: %v", i, id, last[i], began[i], seen[id])
				}
				seen[id], last[i] = true, id
			}
			if rapid.Bool().Draw(t, "end") {
				loops[i].GiveBack()
				inBatch[i] = false
				answered = max(answered, last[i])
			}
		}
	})
}

func TestLoopsThatTakeIDsAtOnceShareNone(t *testing.T) {
	const loops, batches = 4, 2000
	x := new(Index)
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var all sync.WaitGroup
	for i := range loops {
		all.Go(func() {
			block := &Block{Index: x}
			var mine []uint64
			for n := range batches {
				for range (n+i)%30 + 1 {
					mine = append(mine, block.Take(0))
				}
				block.GiveBack()
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range mine {
				if seen[id] {
					t.Errorf("id %d was handed out twice", id)
				}
				seen[id] = true
				x.Retire(id)
			}
		})
	}
	all.Wait()
	// All others were retired: only the leaf in which the next ids will be is there.
	if leaves, _ := x.leaves(); leaves > 1 {
		t.Fatalf("%d leaves are left of %d ids", leaves, x.Last.Load())
	}
}
