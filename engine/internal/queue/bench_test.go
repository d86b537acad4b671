package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// someRandom are numbers of 44 bits, drawn beforehand.
var someRandom = func() (s [1 << 16]uint64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range s {
		s[i] = rnd.Uint64() >> 20
	}
	return s
}()

func randomAt(i int) uint64 { return someRandom[i%len(someRandom)] }

// BenchmarkHeap measures one Remove and one Push with n entries in the heap.
func BenchmarkHeap(b *testing.B) {
	for _, x := range []struct {
		name string
		key  func(i int) uint64          // of the i-th that is pushed
		from func(h *Heap, i, n int) int // index of the record that is taken out for it; -1 for the first
	}{
		{"first comes back", randomAt, func(*Heap, int, int) int { return -1 }},
		{"any, random keys", randomAt, anyOf},
		{"any, ascending keys", ascending, anyOf},
		{"in turn, ascending keys", ascending, func(_ *Heap, i, n int) int { return i % n }},
	} {
		for _, n := range []int{16, 1000, 100_000, 5_000_000} {
			b.Run(fmt.Sprintf("%s/n=%d", x.name, n), func(b *testing.B) {
				s := newRecords(b)
				var h Heap
				refs := make([]Ref, n)
				for i := range refs {
					refs[i] = s.add(uint64(i), 0, 0)
					h.Push(s.table, x.key(i), refs[i], s.links(refs[i]))
				}
				b.ReportAllocs()
				for i := n; b.Loop(); i++ {
					key := x.key(i)
					var r Ref
					if k := x.from(&h, i, n); k >= 0 {
						r = refs[k]
					} else {
						first := h.First()
						r, key = first.Ref, key+first.Key
					}
					l := s.links(r)
					h.Remove(s.table, l)
					h.Push(s.table, key, r, l)
				}
			})
		}
	}
}

func ascending(i int) uint64 { return uint64(i) }

func anyOf(_ *Heap, i, n int) int { return int(randomAt(i) * 0x9E3779B97F4A7C15 >> 20 % uint64(n)) }

// BenchmarkReady measures a Push of a new job, First, and a Remove of that, with n
// jobs in the queue.
func BenchmarkReady(b *testing.B) {
	for _, n := range []int{0, 1000, 100_000} {
		for _, priorities := range []uint32{1, maxRuns, 100, 1 << 31} {
			b.Run(fmt.Sprintf("n=%d/priorities=%d", n, priorities), func(b *testing.B) {
				s := newRecords(b)
				var q Ready
				last := 0
				push := func() {
					last++
					pri := uint32(randomAt(last)) % priorities
					r := s.add(uint64(last), int64(last)*1000, pri)
					q.Push(s.table, pri, r, s.links(r))
				}
				for range n {
					push()
				}
				b.ReportAllocs()
				for b.Loop() {
					push()
					r := q.First(s.table)
					q.Remove(s.table, s.pri(r), s.links(r))
					s.slab.Free(r)
				}
			})
		}
	}
}

// BenchmarkOrdered measures First, Remove and Push of a record that comes back with
// a greater key, as when a job is kicked and buried.
func BenchmarkOrdered(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			s := newRecords(b)
			var q Ordered
			at := int64(0)
			push := func(r Ref) {
				at++
				s.links(r).At = at
				q.Push(s.table, r, s.links(r))
			}
			for i := range n {
				push(s.add(uint64(i), 0, 0))
			}
			b.ReportAllocs()
			for b.Loop() {
				r := q.First(s.table)
				q.Remove(s.table, s.links(r))
				push(r)
			}
		})
	}
}

// A ticker is a timer that is scheduled anew whenever it fires.
type ticker struct {
	timer Timer
	wheel *Wheel
	fired *int
}

func (f *ticker) Expire(now int64) bool {
	*f.fired++
	f.wheel.Schedule(&f.timer, now+second)
	return true
}

// BenchmarkWheel measures what happens to one of n timers.
func BenchmarkWheel(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		tickers := func(w *Wheel, fired *int, at func(i int) int64) []ticker {
			timers := make([]ticker, n)
			for i := range timers {
				timers[i] = ticker{wheel: w, fired: fired}
				timers[i].timer.Owner = &timers[i]
				w.Schedule(&timers[i].timer, at(i))
			}
			return timers
		}
		b.Run(fmt.Sprintf("cancel and schedule/n=%d", n), func(b *testing.B) {
			var w Wheel
			timers := tickers(&w, nil, func(i int) int64 { return int64(i) * second / 7 })
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				t := &timers[i%n].timer
				w.Cancel(t)
				w.Schedule(t, int64(randomAt(i)%(1000*second)))
			}
		})
		b.Run(fmt.Sprintf("cancel and schedule while time passes/n=%d", n), func(b *testing.B) {
			var w Wheel
			timers := tickers(&w, new(int), func(int) int64 { return second })
			now := int64(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now += 1000
				t := &timers[i%n].timer
				w.Cancel(t)
				if now < w.Due() {
					w.Skip(now)
				} else {
					w.Advance(now, unbounded())
				}
				w.Schedule(t, now+second)
			}
		})
		fire := func(at func(i int) int64) func(b *testing.B) {
			return func(b *testing.B) {
				var w Wheel
				fired := 0
				tickers(&w, &fired, at)
				now := int64(0)
				b.ReportAllocs()
				b.ResetTimer()
				for fired < b.N {
					now = max(now, w.Due())
					budget := 1000
					w.Advance(now, &budget)
				}
			}
		}
		b.Run(fmt.Sprintf("fire one by one/n=%d", n), fire(func(i int) int64 { return int64(randomAt(i) % second) }))
		b.Run(fmt.Sprintf("fire all at once/n=%d", n), fire(func(int) int64 { return second }))
	}
}
