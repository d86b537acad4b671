package queue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// An orderedModel is an Ordered beside a sorted slice.
type orderedModel struct {
	*records
	queue Ordered
	want  []Ref // sorted
	last  uint64
}

func (m *orderedModel) order(a, b Ref) int {
	return cmp.Or(cmp.Compare(m.links(a).At, m.links(b).At), cmp.Compare(m.links(a).ID, m.links(b).ID))
}

func (m *orderedModel) push(id uint64, at int64) {
	m.last = max(m.last, id)
	r := m.add(id, at, 0)
	m.queue.Push(m.table, r, m.links(r))
	i, _ := slices.BinarySearchFunc(m.want, r, m.order)
	m.want = slices.Insert(m.want, i, r)
}

func (m *orderedModel) remove(i int) {
	r := m.want[i]
	m.queue.Remove(m.table, m.links(r))
	m.slab.Free(r)
	m.want = slices.Delete(m.want, i, i+1)
}

func (m *orderedModel) checkFirst() {
	var want Ref
	if len(m.want) > 0 {
		want = m.want[0]
	}
	if got := m.queue.First(m.table); got != want {
		m.tb.Fatalf("first is record %d, want %d", got, want)
	}
}

func (m *orderedModel) check() {
	if err := m.queue.Check(m.table); err != nil {
		m.tb.Fatal(err)
	}
	if m.queue.Len() != len(m.want) {
		m.tb.Fatalf("%d records, want %d", m.queue.Len(), len(m.want))
	}
	m.checkFirst()
}

func (m *orderedModel) drain() {
	for len(m.want) > 0 {
		m.checkFirst()
		m.remove(0)
	}
	m.check()
}

func TestOrderedIsLikeASortedSlice(t *testing.T) {
	check(t, 500, 100, func(t *rapid.T) {
		m := &orderedModel{records: newRecords(t)}
		keys := rapid.SampledFrom([]int64{1, 5, 1e9}).Draw(t, "keys")
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.check() },
			"push in order": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "records") {
					at := int64(0)
					if len(m.want) > 0 {
						at = m.links(m.want[len(m.want)-1]).At
					}
					m.push(m.last+1, at+rapid.Int64Range(0, 1).Draw(t, "later by"))
				}
			},
			"push in any order": func(t *rapid.T) {
				m.push(m.last+1, rapid.Int64Range(0, keys-1).Draw(t, "key"))
			},
			"remove the first": func(t *rapid.T) {
				for range rapid.IntRange(0, len(m.want)).Draw(t, "records") {
					m.remove(0)
				}
			},
			"remove any": func(t *rapid.T) { m.remove(oneOf(t, len(m.want))) },
			"move a record": func(t *rapid.T) {
				i := oneOf(t, len(m.want))
				m.want[i] = m.move(m.want[i])
				m.queue.Moved(m.table, m.want[i], m.links(m.want[i]))
			},
		})
		m.drain()
	})
}

func TestOrderedRecordsGoToTheHeapOnlyIfTheyComeLate(t *testing.T) {
	const n = 1000
	shuffled := make([]int, n)
	for i := range shuffled {
		shuffled[i] = i
	}
	descending := slices.Clone(shuffled)
	slices.Reverse(descending)
	ascending := slices.Clone(shuffled)
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for name, c := range map[string]struct {
		order  []int
		inHeap bool
	}{
		"ascending": {ascending, false}, "descending": {descending, false}, "shuffled": {shuffled, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &orderedModel{records: newRecords(t)}
			for _, at := range c.order {
				m.push(uint64(n-at), int64(at))
			}
			if got := m.queue.heap.Len() > 0; got != c.inHeap {
				t.Errorf("%d records are in the heap", m.queue.heap.Len())
			}
			m.check()
			m.drain()
		})
	}
}
