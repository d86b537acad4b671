package queue

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.ID, b.ID))
}

// A heapModel is a heap beside a slice of what it should hold, in no order.
type heapModel struct {
	*records
	heap Heap
	want []Entry
	last uint64 // id
}

func (m *heapModel) push(key uint64) {
	m.last++
	id := m.last * 7919 % 1_000_003 // in no order
	r := m.add(id, 0, 0)
	m.heap.Push(m.table, key, r, m.links(r))
	m.want = append(m.want, Entry{key, id, r})
}

func (m *heapModel) remove(i int) {
	r := m.want[i].Ref
	m.heap.Remove(m.table, m.links(r))
	m.slab.Free(r)
	last := len(m.want) - 1
	m.want[i] = m.want[last]
	m.want = m.want[:last]
}

func (m *heapModel) check() {
	if err := m.heap.Check(m.table); err != nil {
		m.tb.Fatal(err)
	}
	if m.heap.Len() != len(m.want) {
		m.tb.Fatalf("%d entries, want %d", m.heap.Len(), len(m.want))
	}
	if len(m.want) > 0 {
		if want := slices.MinFunc(m.want, compareEntries); m.heap.First() != want {
			m.tb.Fatalf("first is %v, want %v", m.heap.First(), want)
		}
	}
}

// drain takes out all entries, which must come in order.
func (m *heapModel) drain() {
	slices.SortFunc(m.want, compareEntries)
	for i, want := range m.want {
		if got := m.heap.First(); got != want {
			m.tb.Fatalf("entry %d is %v, want %v", i, got, want)
		}
		m.heap.Remove(m.table, m.links(want.Ref))
		m.slab.Free(want.Ref)
	}
	m.want = nil
	m.check()
	if c := cap(m.heap.small); m.heap.large != nil || c > 64 {
		m.tb.Fatalf("an empty heap has room for %d", c)
	}
}

func TestHeapIsLikeASortedSlice(t *testing.T) {
	check(t, 30, 30, func(t *rapid.T) {
		m := &heapModel{records: newRecords(t)}
		keys := rapid.SampledFrom([]uint64{1, 3, 1000, math.MaxUint64}).Draw(t, "keys")
		rnd := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.check() },
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "entries") {
					m.push(rnd.Uint64N(keys))
				}
			},
			"push very many": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{100, blockLen - len(m.want)%blockLen, blockLen + 5}).Draw(t, "entries") {
					m.push(rnd.Uint64N(keys))
				}
			},
			"remove": func(t *rapid.T) { m.remove(oneOf(t, len(m.want))) },
			"remove very many": func(t *rapid.T) {
				for range min(len(m.want), rapid.SampledFrom([]int{100, blockLen / 2, len(m.want) % blockLen, len(m.want)}).Draw(t, "entries")) {
					m.remove(rnd.IntN(len(m.want)))
				}
			},
			"move a record": func(t *rapid.T) {
				e := &m.want[oneOf(t, len(m.want))]
				e.Ref = m.move(e.Ref)
				m.heap.Moved(e.Ref, m.links(e.Ref))
			},
			"walk": func(t *rapid.T) {
				var got []Entry
				for i := range m.heap.Len() {
					got = append(got, m.heap.At(i))
				}
				slices.SortFunc(got, compareEntries)
				slices.SortFunc(m.want, compareEntries)
				if !slices.Equal(got, m.want) {
					t.Fatalf("walked over %v, want %v", got, m.want)
				}
			},
		})
		m.drain()
	})
}

func TestHeapOfEverySizeAroundABlockGivesItsEntriesInOrder(t *testing.T) {
	for _, n := range []int{
		0, 1, 2, 5, 64, 65, blockLen / 2, blockLen - 1, blockLen, blockLen + 1,
		2*blockLen - 1, 2 * blockLen, 2*blockLen + 1, 5*blockLen + 3,
	} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := &heapModel{records: newRecords(t)}
			rnd := rand.New(rand.NewPCG(1, 2))
			for range n {
				m.push(rnd.Uint64N(1000))
			}
			m.check()
			m.drain()
		})
	}
}

// What was written into a block stays there, so that nobody waits under the
// owner's lock for it to be copied.
func TestALargeHeapGrowsAndShrinksWithoutMovingItsBlocks(t *testing.T) {
	m := &heapModel{records: newRecords(t)}
	for range blockLen {
		m.push(m.last)
	}
	first := &m.heap.small[0]
	blocks := []*[blockLen]Entry{(*[blockLen]Entry)(m.heap.small)}
	for n := blockLen; n < 10*blockLen; n++ {
		m.push(m.last)
		if n%blockLen == 0 {
			blocks = append(blocks, m.heap.large.list[n/blockLen])
		}
	}
	if !slices.Equal(m.heap.large.list, blocks) {
		t.Fatal("a block was replaced while the heap grew")
	}
	for m.heap.Len() > 2*blockLen {
		m.remove(m.heap.Len() - 1)
		list := m.heap.large.list
		if !slices.Equal(list, blocks[:len(list)]) {
			t.Fatal("a block was replaced while the heap shrank")
		}
		if spare := len(list)*blockLen - m.heap.Len(); spare >= 2*blockLen {
			t.Fatalf("room for %d entries is not given back", spare)
		}
	}
	for m.heap.Len() > blockLen/2 {
		m.remove(m.heap.Len() - 1)
	}
	if m.heap.large != nil || &m.heap.small[0] != first {
		t.Fatal("the first block is not the slice of the small heap")
	}
	m.drain()
}

// At the edge of a block, entries that come and go do not make and drop blocks.
func TestAHeapThatVariesAroundTheEndOfABlockDoesNotAllocate(t *testing.T) {
	for _, n := range []int{blockLen / 2, blockLen, 2 * blockLen} {
		m := &heapModel{records: newRecords(t)}
		for range n + 20 {
			m.push(m.last)
		}
		for range 20 {
			m.remove(len(m.want) - 1)
		}
		r := m.add(0, 0, 0)
		if got := testing.AllocsPerRun(100, func() {
			var refs [20]Ref
			for i := range refs {
				refs[i] = m.add(m.last+uint64(i)+1, 0, 0)
				m.heap.Push(m.table, 1<<40, refs[i], m.links(refs[i]))
			}
			for _, r := range refs {
				m.heap.Remove(m.table, m.links(r))
				m.slab.Free(r)
			}
		}); got != 0 {
			t.Errorf("around %d entries: %v allocations", n, got)
		}
		m.slab.Free(r)
	}
}

func TestTheLeastEntriesOfAHeapComeInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 100, 5000, 20_000} {
		m := &heapModel{records: newRecords(t)}
		for range n {
			m.push(r.Uint64N(uint64(n)))
		}
		slices.SortFunc(m.want, compareEntries)
		for _, k := range []int{0, 1, 3, 10, 100, 1000} {
			if got := slices.Collect(m.heap.Least(k)); !slices.Equal(got, m.want[:min(k, n)]) {
				t.Errorf("the %d least of %d are %v", k, n, got)
			}
		}
		for e := range m.heap.Least(10) {
			if e != m.want[0] {
				t.Errorf("the first is %v, want %v", e, m.want[0])
			}
			break
		}
	}
}
