package queue

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A readyModel is a ready queue beside a sorted slice.
type readyModel struct {
	*records
	queue Ready
	want  []Ref // sorted
	out   []Ref // taken out, may come back
	now   int64
	last  uint64 // id
}

func (m *readyModel) order(a, b Ref) int {
	return cmp.Or(cmp.Compare(m.pri(a), m.pri(b)), cmp.Compare(m.links(a).ID, m.links(b).ID))
}

func (m *readyModel) push(r Ref) {
	m.now++
	m.links(r).At = m.now
	m.queue.Push(m.table, m.pri(r), r, m.links(r))
	i, _ := slices.BinarySearchFunc(m.want, r, m.order)
	m.want = slices.Insert(m.want, i, r)
}

func (m *readyModel) pushNew(pri uint32) {
	m.last++
	m.push(m.add(m.last, 0, pri))
}

func (m *readyModel) remove(i int) {
	r := m.want[i]
	m.queue.Remove(m.table, m.pri(r), m.links(r))
	m.out = append(m.out, r)
	m.want = slices.Delete(m.want, i, i+1)
}

func (m *readyModel) checkFirst() {
	var want Ref
	if len(m.want) > 0 {
		want = m.want[0]
	}
	if got := m.queue.First(m.table); got != want {
		m.tb.Fatalf("first is record %d, want %d", got, want)
	}
}

func (m *readyModel) check() {
	if err := m.queue.Check(m.table, m.pri); err != nil {
		m.tb.Fatal(err)
	}
	urgent := 0
	for _, r := range m.want {
		if m.pri(r) < UrgentBelow {
			urgent++
		}
	}
	if m.queue.Len() != len(m.want) || m.queue.Urgent() != urgent {
		m.tb.Fatalf("%d jobs, %d urgent; want %d, %d", m.queue.Len(), m.queue.Urgent(), len(m.want), urgent)
	}
	if (m.queue.Oldest(m.now+1) > 0) != (len(m.want) > 0) {
		m.tb.Fatalf("the oldest of %d jobs is ready for %d", len(m.want), m.queue.Oldest(m.now+1))
	}
	m.checkFirst()
	var all []Ref
	for r := m.queue.Headmost(); r != 0; r = m.queue.Behind(m.pri(r), m.links(r)) {
		if n := len(all); n > 0 && m.order(all[n-1], r) >= 0 || m.links(r).InHeap() {
			m.tb.Fatalf("record %d follows", r)
		}
		all = append(all, r)
	}
	for i := range m.queue.InHeap() {
		r := m.queue.AtHeap(i)
		if m.queue.Behind(m.pri(r), m.links(r)) != m.queue.Headmost() {
			m.tb.Fatalf("what follows a record of the heap is not the first of the others")
		}
		all = append(all, r)
	}
	if slices.SortFunc(all, m.order); !slices.Equal(all, m.want) {
		m.tb.Fatalf("one after the other there are %v, want %v", all, m.want)
	}
}

func (m *readyModel) drain() {
	for len(m.want) > 0 {
		m.checkFirst()
		m.remove(0)
	}
	m.check()
	if len(m.queue.runs) != 0 || m.queue.heap.Len() != 0 {
		m.tb.Fatalf("an empty queue has %d runs, a heap of %d", len(m.queue.runs), m.queue.heap.Len())
	}
}

// Whatever is pushed and removed in whatever order, the first is the one with
// the smallest priority and, among those, the smallest id.
func TestReadyIsLikeASortedSlice(t *testing.T) {
	check(t, 500, 100, func(t *rapid.T) {
		m := &readyModel{records: newRecords(t)}
		priorities := rapid.SampledFrom([]int{1, 2, maxRuns, maxRuns + 1, 100}).Draw(t, "priorities")
		pri := func() uint32 {
			return rapid.SampledFrom([]uint32{0, UrgentBelow - 5, math.MaxUint32 - 100}).Draw(t, "from") +
				uint32(rapid.IntRange(0, priorities-1).Draw(t, "priority"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.check() },
			"push new ones": func(t *rapid.T) {
				p := pri()
				for range rapid.IntRange(1, 10).Draw(t, "jobs") {
					m.pushNew(p)
				}
			},
			"push new ones of many priorities": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "jobs") {
					m.pushNew(pri())
				}
			},
			"push an old one": func(t *rapid.T) {
				i := oneOf(t, len(m.out))
				r := m.out[i]
				m.out = slices.Delete(m.out, i, i+1)
				if rapid.Bool().Draw(t, "changes") {
					m.slab.At(r).pri = pri()
				}
				m.push(r)
			},
			"remove the first": func(t *rapid.T) {
				for range rapid.IntRange(0, len(m.want)).Draw(t, "jobs") {
					m.remove(0)
				}
			},
			"remove any": func(t *rapid.T) { m.remove(oneOf(t, len(m.want))) },
			"trim": func(t *rapid.T) {
				m.queue.Trim()
				if n, room := m.queue.heap.Len(), m.queue.Room(); n == 0 && room > 0 || n > 0 && n < blockLen/2 && room > 64 && room > 4*n {
					t.Fatalf("a heap of %d has room for %d", n, room)
				}
			},
			"move a record": func(t *rapid.T) {
				i := oneOf(t, len(m.want))
				r := m.move(m.want[i])
				m.want[i] = r
				m.queue.Moved(m.table, m.pri(r), r, m.links(r))
			},
		})
		m.drain()
	})
}

func TestFirstReadyOfARunAndTheHeap(t *testing.T) {
	type job struct {
		id  uint64
		pri uint32
	}
	eight := []job{{1, 9}, {2, 8}, {3, 7}, {4, 6}, {5, 5}, {6, 4}, {7, 3}, {8, 2}} // a run each
	for name, c := range map[string]struct {
		push   []job
		remove []uint64
		want   uint64
	}{
		"nothing":                                 {nil, nil, 0},
		"one job":                                 {[]job{{1, 0}}, nil, 1},
		"an older job before the run":             {[]job{{2, 0}, {1, 0}}, nil, 1},
		"the run's first before one in the heap":  {[]job{{1, 0}, {3, 0}, {2, 0}}, nil, 1},
		"one in the heap before the run's first":  {[]job{{1, 0}, {3, 0}, {2, 0}}, []uint64{1}, 2},
		"only the heap is left":                   {[]job{{1, 0}, {3, 0}, {2, 0}}, []uint64{1, 3}, 2},
		"the most urgent of all runs":             {eight, nil, 8},
		"more urgent than all runs":               {append(slices.Clone(eight), job{9, 1}), nil, 9},
		"less urgent than all runs":               {append(slices.Clone(eight), job{9, 10}), nil, 8},
		"the run of a priority that is back":      {append(slices.Clone(eight), job{9, 1}, job{10, 1}), []uint64{9}, 10},
		"a priority in the heap and then in runs": {append(slices.Clone(eight), job{10, 1}, job{9, 1}), []uint64{8}, 9},
		"the next run after the most urgent":      {eight, []uint64{8}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			m := &readyModel{records: newRecords(t)}
			for _, j := range c.push {
				m.push(m.add(j.id, 0, j.pri))
			}
			for _, id := range c.remove {
				m.remove(slices.IndexFunc(m.want, func(r Ref) bool { return m.links(r).ID == id }))
			}
			m.check()
			if c.want == 0 {
				return
			}
			if got := m.links(m.queue.First(m.table)).ID; got != c.want {
				t.Errorf("first is %d, want %d", got, c.want)
			}
		})
	}
}

// A queue of few jobs, of which its owner has many, keeps no room for more.
func TestATrimmedQueueKeepsRoomForFourTimesItsJobs(t *testing.T) {
	m := &readyModel{records: newRecords(t)}
	for i := range uint32(100) {
		m.pushNew(i)
	}
	for len(m.want) > 0 {
		m.remove(0)
		m.queue.Trim()
		if n, room := m.queue.heap.Len(), m.queue.Room(); room > 4*n+3 {
			t.Fatalf("a heap of %d has room for %d", n, room)
		}
	}
	if !m.queue.Empty() || m.queue.runs != nil {
		t.Errorf("an empty queue keeps room for %d runs", cap(m.queue.runs))
	}
	m.check()
}

func TestReadyJobsThatComeInOrderDoNotGoToTheHeap(t *testing.T) {
	m := &readyModel{records: newRecords(t)}
	for i := range uint32(1000) {
		m.pushNew(i % maxRuns)
	}
	for i := len(m.want) - 1; i >= 0; i -= 3 {
		m.remove(i)
	}
	for i := range uint32(1000) {
		m.pushNew(i % maxRuns)
	}
	if n := m.queue.heap.Len(); n != 0 {
		t.Errorf("%d jobs are in the heap", n)
	}
	m.drain()
}
