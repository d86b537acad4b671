package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// newShard is the only shard of an engine of its own.
func newShard() *shard {
	return New(Config{Shards: 1, Info: testInfo}).shards[0]
}

// newRecord takes a record for a job that stands in no queue.
func (sh *shard) newRecord(t rapid.TB, id uint64, pri uint32) (ref, *job) {
	r, err := sh.jobs.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	j := sh.job(r)
	*j = job{id: id, pri: pri}
	return r, j
}

// freeRecords gives all records back.
func (sh *shard) freeRecords() {
	sh.jobs.Walk(^ref(0), math.MaxInt, func(r ref) { sh.jobs.Free(r) })
	sh.jobs.Plan()
	sh.jobs.Plan()
}

// Whatever is pushed and removed in whatever order, the first is the one with
// the smallest priority and, among those, the smallest id.
func TestReadyQueueIsLikeASortedSlice(t *testing.T) {
	rapidFlag(t, "rapid.checks", 300)
	rapidFlag(t, "rapid.steps", 100)
	rapid.Check(t, func(t *rapid.T) {
		sh := newShard()
		t.Cleanup(sh.freeRecords)
		var q readyQueue
		var want []*job // sorted
		var out []*job  // taken out, may come back
		refs := map[*job]ref{}
		order := func(a, b *job) int { return cmp.Or(cmp.Compare(a.pri, b.pri), cmp.Compare(a.id, b.id)) }
		lastID := uint64(0)
		priorities := rapid.SampledFrom([]int{1, 2, maxRuns, maxRuns + 1, 100}).Draw(t, "priorities")
		pri := func() uint32 {
			return rapid.SampledFrom([]uint32{0, urgentBelow - 5, math.MaxUint32 - 100}).Draw(t, "from") +
				uint32(rapid.IntRange(0, priorities-1).Draw(t, "priority"))
		}
		push := func(j *job) {
			sh.now++
			j.at = sh.now
			q.push(sh, refs[j], j)
			i, _ := slices.BinarySearchFunc(want, j, order)
			want = slices.Insert(want, i, j)
		}
		remove := func(i int) {
			q.remove(sh, want[i])
			out = append(out, want[i])
			want = slices.Delete(want, i, i+1)
		}
		index := func(n int) int {
			if n == 0 {
				t.Skip("none")
			}
			return rapid.IntRange(0, n-1).Draw(t, "index")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				urgent := 0
				for _, j := range want {
					if j.pri < urgentBelow {
						urgent++
					}
				}
				if q.count != len(want) || q.urgent != urgent || sh.tally.in[ready] != len(want) || sh.tally.urgent != urgent {
					t.Fatalf("%d jobs, %d urgent; want %d, %d", q.count, q.urgent, len(want), urgent)
				}
				if len(want) > 0 {
					if r, j := q.first(sh); j != want[0] || r != refs[j] {
						t.Fatalf("first is job %d of priority %d, want %d of %d", j.id, j.pri, want[0].id, want[0].pri)
					}
				}
			},
			"push new ones": func(t *rapid.T) {
				p := pri()
				for range rapid.IntRange(1, 10).Draw(t, "jobs") {
					lastID++
					r, j := sh.newRecord(t, lastID, p)
					refs[j] = r
					push(j)
				}
			},
			"push an old one": func(t *rapid.T) {
				i := index(len(out))
				j := out[i]
				out = slices.Delete(out, i, i+1)
				if rapid.Bool().Draw(t, "changes") {
					j.pri = pri()
				}
				push(j)
			},
			"remove the first": func(t *rapid.T) {
				for range rapid.IntRange(0, len(want)).Draw(t, "jobs") {
					remove(0)
				}
			},
			"remove any": func(t *rapid.T) { remove(index(len(want))) },
		})
		for len(want) > 0 {
			if _, j := q.first(sh); j != want[0] {
				t.Fatalf("first is job %d of priority %d, want %d of %d", j.id, j.pri, want[0].id, want[0].pri)
			}
			remove(0)
		}
		if q.count != 0 || len(q.runs) != 0 || len(q.heap) != 0 {
			t.Fatalf("an empty queue has %d jobs, %d runs, a heap of %d", q.count, len(q.runs), len(q.heap))
		}
	})
}

func TestHeapGivesItsEntriesInOrderAndItsMemoryBack(t *testing.T) {
	sh := newShard()
	t.Cleanup(sh.freeRecords)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, keys := range []uint64{1, 3, 1000, math.MaxUint64} {
		var h heap
		var want []heapEntry
		check := func() {
			for i, e := range h {
				if sh.job(e.ref).prev != uint32(i) {
					t.Fatalf("the job at %d thinks it is at %d", i, sh.job(e.ref).prev)
				}
			}
		}
		for id := range uint64(2000) {
			r, _ := sh.newRecord(t, id, 0)
			e := heapEntry{key: rnd.Uint64N(keys), id: id * 7919 % 2000, ref: r}
			h.push(sh, e)
			want = append(want, e)
			if len(want) > 10 && rnd.IntN(3) == 0 {
				i := rnd.IntN(len(want))
				h.remove(sh, int(sh.job(want[i].ref).prev))
				want = slices.Delete(want, i, i+1)
			}
			if id%100 == 0 {
				check()
			}
		}
		slices.SortFunc(want, func(a, b heapEntry) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
		})
		for i, e := range want {
			if h[0] != e {
				t.Fatalf("%d keys: entry %d is %v, want %v", keys, i, h[0], e)
			}
			h.remove(sh, 0)
		}
		if len(h) != 0 || cap(h) > 64 {
			t.Fatalf("an empty heap has %d entries and room for %d", len(h), cap(h))
		}
	}
}

// The list of tubes is in the order of their creation, but the last takes the
// place of one that goes.
func TestRegistryMovesTheLastTubeIntoAGap(t *testing.T) {
	e := New(Config{Shards: 4, Info: testInfo})
	var list []*tube
	for _, sh := range e.shards {
		for _, t := range sh.byName {
			list = append(list, t) // the default tube
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for n := range 500 {
		if i := rnd.IntN(len(list)); i > 0 && rnd.IntN(2) == 0 {
			gone := list[i]
			gone.shard.dropIfUnused(gone)
			last := len(list) - 1
			list[i] = list[last]
			list = list[:last]
			if gone.shard.byName[gone.name] != nil {
				t.Fatalf("tube %s is still there", gone.name)
			}
		} else {
			name := []byte(fmt.Sprint("tube", n))
			list = append(list, e.shardFor(name).tube(name, 0))
		}
		if !slices.Equal(e.registry.list(), list) {
			t.Fatalf("after %d steps the list is wrong", n)
		}
	}
}

// A tube stays for as long as anything needs it, whatever that is, and comes back
// as a new one.
func TestATubeGoesWithTheLastThatNeedsIt(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(c, other *simConn) }{
		"a session that uses it": {
			func(c, _ *simConn) { c.say("use t") },
			func(c, _ *simConn) { c.say("use default") },
		},
		"a session that watches it": {
			func(c, _ *simConn) { c.say("watch t") },
			func(c, _ *simConn) { c.say("ignore t") },
		},
		"a session that waits": {
			func(c, _ *simConn) { c.say("watch t", "reserve") },
			func(c, _ *simConn) { _ = c.Close() },
		},
		"a put that has not ended": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 100", "...") },
			func(c, _ *simConn) { _ = c.Close() },
		},
		"a ready job": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 0", "", "use default") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a delayed job": {
			func(c, _ *simConn) { c.say("use t", "put 0 9 9 0", "", "use default") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a reserved job": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 0", "", "use default", "reserve-job 1") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a buried job": {
			func(c, _ *simConn) { c.say("use t", "put 0 0 9 0", "", "use default", "reserve-job 1", "bury 1 0") },
			func(c, _ *simConn) { c.say("delete 1") },
		},
		"a job whose holder leaves": {
			func(c, other *simConn) { c.say("use t", "put 0 0 9 0", "", "use default"); other.say("reserve-job 1") },
			func(c, other *simConn) { _ = other.Close(); c.say("delete 1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(1000, 1)
			c1, c2, watcher := s.open(), s.open(), s.open()
			c.begin(c1, c2)
			if got := watcher.say("pause-tube t 100"); got != "PAUSED\r\n" {
				t.Fatalf("pausing the tube: %q", got)
			}
			c.end(c1, c2)
			if got := watcher.say("stats-tube t"); got != "NOT_FOUND\r\n" {
				t.Fatalf("it is still there: %q", got)
			}
			watcher.say("use t")
			got := watcher.say("stats-tube t")
			fresh := newSim(1000, 1).open()
			fresh.say("use t")
			if want := fresh.say("stats-tube t"); got != want {
				t.Fatalf("it came back as %q, want %q", got, want)
			}
		})
	}
}

// say sends lines and returns the replies.
func (c *simConn) say(lines ...string) string {
	for _, line := range lines {
		_ = c.Send([]byte(line + "\r\n"))
	}
	reply, _ := c.Pending()
	return string(reply)
}
