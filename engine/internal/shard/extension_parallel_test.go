package shard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/codec"
)

// A storm is jobs that clients do everything to at the same time, and the tubes that they
// are in.
type storm struct {
	t     *testing.T
	crew  *crew
	tubes []string
	jobs  int64
	gone  atomic.Int64  // jobs of which a reply said that they were deleted
	ended chan struct{} // closed when that are all
}

// count takes a reply that says how many jobs something was done to.
func (st *storm) count(reply, word string) (n int64) {
	if reply != codec.ReplyNotFound {
		if _, err := fmt.Sscanf(reply, word+" %d\r\n", &n); err != nil {
			st.t.Errorf("%q, want %s", reply, word)
		}
	}
	return n
}

func (st *storm) deleted(n int64) {
	switch gone := st.gone.Add(n); {
	case n == 0:
	case gone == st.jobs:
		close(st.ended)
	case gone > st.jobs:
		st.t.Errorf("%d jobs were deleted, there were %d", gone, st.jobs)
	}
}

func (st *storm) over() bool { return st.gone.Load() >= st.jobs }

// stormBody is the body of a job that says in its first bytes how long it is.
func stormBody(size int) string { return fmt.Sprintf("%05d", size) + strings.Repeat("x", size-5) }

// reserved checks the bodies in the reply to a reserve-batch, and returns the ids.
func (st *storm) reserved(reply string) (ids []uint64) {
	line, rest, _ := strings.Cut(reply, "\r\n")
	for range st.count(line+"\r\n", "RESERVED_BATCH") {
		var id uint64
		var size int
		line, rest, _ = strings.Cut(rest, "\r\n")
		if _, err := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); err != nil || size > len(rest)-2 {
			st.t.Errorf("%q in a batch, with %d bytes behind it", line, len(rest))
			return ids
		}
		if rest[:size] != stormBody(size) || rest[size:size+2] != "\r\n" {
			st.t.Errorf("the body of job %d is not its own", id)
		}
		rest = rest[size+2:]
		ids = append(ids, id)
	}
	if rest != "" {
		st.t.Errorf("%d bytes behind a batch", len(rest))
	}
	return ids
}

// Jobs are moved one by one and by the tube, within a shard and between shards, while
// others reserve, time out, bury, delete and flush them and close with some reserved, and
// while dead letters go anywhere: each job is deleted once and none is lost, and its body is always its own.
func TestAMovedJobIsNeitherLostNorDoubled(t *testing.T) {
	for _, c := range []struct {
		loops, shards int
		steps         int64 // of a round: with few, a command over hundreds of jobs has many turns
	}{{1, 4, 0}, {4, 1, 0}, {4, 4, 0}, {3, 16, 0}, {1, 4, 20}, {4, 1, 20}, {3, 16, 20}} {
		t.Run(fmt.Sprintf("%d loops, %d shards, %d steps", c.loops, c.shards, c.steps), func(t *testing.T) {
			jobs := 4000
			if raceEnabled || !proof {
				jobs = 1200
			}
			if !proof {
				jobs /= 2
			}
			st := &storm{t: t, crew: newCrew(t, c.loops, c.shards), tubes: numbered(6), jobs: int64(jobs), ended: make(chan struct{})}
			st.crew.steps.Store(c.steps)
			setter := st.crew.hire()
			setter.do(codec.Command{Op: codec.OpSetDLQ, Tube: []byte(st.tubes[0]), Bound: 1, To: []byte(st.tubes[1])})
			p := &codec.Pairs{}
			p.Given[codec.KeyDisconnects], p.Values[codec.KeyDisconnects] = true, 1
			setter.do(codec.Command{Op: codec.OpSetTube, Tube: []byte(st.tubes[0]), Pairs: p})
			setter.close()
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() { st.put(rand.New(rand.NewPCG(1, uint64(i))), jobs/4) })
			}
			for i := range 8 {
				all.Go(func() { st.work(rand.New(rand.NewPCG(2, uint64(i)))) })
			}
			for i := range 3 {
				all.Go(func() { st.manage(rand.New(rand.NewPCG(3, uint64(i)))) })
			}
			all.Go(func() { st.crew.changeAccounts(st.tubes, st.ended) })
			st.crew.within(func() {
				<-st.ended
				all.Wait()
			})
			st.eraseTombstones()
			n := st.crew.engine.Snapshot(st.crew.now())
			if n.Timeouts == 0 {
				t.Error("no time to run has ended")
			}
			if n.DeadLetters == 0 {
				t.Error("there was no dead letter")
			}
			st.crew.stop()
		})
	}
}

func (st *storm) tube(rnd *rand.Rand) []byte { return []byte(st.tubes[rnd.IntN(len(st.tubes))]) }

func (st *storm) put(rnd *rand.Rand, jobs int) {
	h := st.crew.hire()
	defer h.close()
	for range jobs {
		size := 5 + rnd.IntN(100)
		if rnd.IntN(10) == 0 {
			size = 5 + rnd.IntN(1<<16-5) // some are sent from where they lie
		}
		h.use(string(st.tube(rnd)))
		pri, delay, ttr, body := rnd.Uint32N(20), rnd.Uint32N(2), rnd.Uint32N(4), stormBody(size)
		if rnd.IntN(2) == 0 {
			h.put(pri, delay, ttr, body)
			continue
		}
		reply := h.tagged(pri, delay, ttr, body, codec.Tags{
			Unique: fmt.Appendf(nil, "key%d", rnd.Uint64()), Seconds: rnd.Uint32N(3),
			Limited: fmt.Appendf(nil, "key%d", rnd.IntN(3)), Limit: 1 + rnd.Uint32N(3),
		})
		if !strings.HasPrefix(reply, "INSERTED ") || strings.Count(reply, " ") != 1 {
			st.t.Errorf("put: %q", reply)
		}
	}
}

// eraseTombstones erases what is left when all jobs were deleted.
func (st *storm) eraseTombstones() {
	h := st.crew.hire()
	defer h.close()
	for _, tube := range st.tubes {
		h.do(codec.Command{Op: codec.OpFlushTube, Tube: []byte(tube)})
	}
}

// work is workers, one after the other, some of which leave with what they have reserved.
func (st *storm) work(rnd *rand.Rand) {
	for !st.over() {
		h := st.crew.hire()
		h.watchOnly(some(rnd, st.tubes)...)
		for n := 5 + rnd.IntN(20); n > 0 && !st.over(); n-- {
			reply := h.do(codec.Command{Op: codec.OpReserveBatch, Bound: 1 + rnd.Uint32N(20), Timeout: rnd.Uint32N(3)})
			if reply == codec.ReplyDeadlineSoon {
				h.do(codec.Command{Op: codec.OpTouchAll})
				continue
			}
			for _, id := range st.reserved(reply) {
				switch rnd.IntN(6) {
				case 0, 1:
					h.do(codec.Command{Op: codec.OpMoveJob, ID: id, Tube: st.tube(rnd)})
				case 2:
					h.do(codec.Command{Op: codec.OpBury, ID: id})
				case 3:
					h.do(codec.Command{Op: codec.OpRelease, ID: id, Delay: rnd.Uint32N(2)})
				case 4:
					if h.with(codec.OpDelete, id) == codec.ReplyDeleted {
						st.deleted(1)
					}
				default: // its time to run ends, or the connection
				}
			}
		}
		h.close()
	}
}

// manage is a client that does things to tubes.
func (st *storm) manage(rnd *rand.Rand) {
	h := st.crew.hire()
	defer h.close()
	states := []codec.State{codec.Ready, codec.Delayed, codec.Buried}
	for !st.over() {
		of := states[rnd.IntN(len(states))]
		switch rnd.IntN(14) {
		case 0:
			st.deleted(st.count(h.do(codec.Command{Op: codec.OpFlushTube, Tube: st.tube(rnd)}), "FLUSHED"))
		case 1:
			reply := h.do(codec.Command{Op: codec.OpDeleteTubeJobs, Tube: st.tube(rnd), State: codec.Reserved, Bound: 1 + rnd.Uint32N(20)})
			st.deleted(st.count(reply, "DELETED"))
		case 2:
			reply := h.do(codec.Command{Op: codec.OpDeleteTubeJobs, Tube: st.tube(rnd), State: of, Bound: 1 + rnd.Uint32N(5)})
			st.deleted(st.count(reply, "DELETED"))
		case 3, 4:
			st.count(h.do(codec.Command{Op: codec.OpKickTube, Tube: st.tube(rnd), Bound: 1 + rnd.Uint32N(1000)}), "KICKED")
		case 5:
			h.do(codec.Command{Op: codec.OpListJobs, Tube: st.tube(rnd), State: of, Bound: 1000})
		case 6:
			h.do(codec.Command{Op: codec.OpPeekTube, Tube: st.tube(rnd), State: codec.Reserved})
		case 7:
			h.do(codec.Command{Op: codec.OpMoveJob, ID: 1 + rnd.Uint64N(uint64(st.jobs)), Tube: st.tube(rnd)})
		case 8, 9:
			h.do(codec.Command{Op: codec.OpSetDLQ, Tube: []byte(st.tubes[1+rnd.IntN(len(st.tubes)-1)]), Bound: rnd.Uint32N(4), To: st.tube(rnd)})
			h.do(codec.Command{Op: codec.OpListDLQ})
		case 10:
			p := &codec.Pairs{}
			p.Given[codec.KeyDisconnects], p.Values[codec.KeyDisconnects] = true, rnd.Uint32N(2)
			h.do(codec.Command{Op: codec.OpSetTube, Tube: st.tube(rnd), Pairs: p})
			h.do(codec.Command{Op: codec.OpListSettings})
		default:
			reply := h.do(codec.Command{Op: codec.OpMoveTube, Tube: st.tube(rnd), State: of, To: st.tube(rnd), Bound: 1 + rnd.Uint32N(1000)})
			st.count(reply, "MOVED")
		}
	}
}

// Dead letters of several tubes go round between shards while their jobs time out, are
// released and kicked on several loops: no attempt is lost, and none is counted twice.
func TestDeadLettersAcrossLoopsKeepTheirCounts(t *testing.T) {
	for _, c := range []struct{ loops, shards int }{{1, 4}, {4, 4}, {3, 16}} {
		t.Run(fmt.Sprintf("%d loops, %d shards", c.loops, c.shards), func(t *testing.T) {
			jobs, rounds := 64, 12
			crew := newCrew(t, c.loops, c.shards)
			tubes := numbered(8)
			h := crew.hire()
			for i, tube := range tubes {
				h.do(codec.Command{Op: codec.OpSetDLQ, Tube: []byte(tube), Bound: 1, To: []byte(tubes[(i+1)%len(tubes)])})
				h.use(tube)
				for range jobs / len(tubes) {
					h.put(0, 0, 1, "body")
				}
			}
			var all sync.WaitGroup
			for i := range tubes {
				all.Go(func() {
					w := crew.hire()
					w.watchOnly(tubes...)
					rnd := rand.New(rand.NewPCG(4, uint64(i)))
					for range rounds {
						for _, id := range reservedIDs(w.do(codec.Command{Op: codec.OpReserveBatch, Bound: 8})) {
							if rnd.IntN(3) > 0 {
								w.do(codec.Command{Op: codec.OpRelease, ID: id})
							} // else its time to run ends, or the connection
						}
						w.do(codec.Command{Op: codec.OpKickTube, Tube: []byte(tubes[rnd.IntN(len(tubes))]), Bound: 16})
					}
					w.close()
				})
			}
			crew.within(func() {
				all.Wait()
				for crew.engine.Snapshot(crew.now()).Reserved > 0 {
					time.Sleep(time.Millisecond)
				}
			})
			dead := crew.engine.Snapshot(crew.now()).DeadLetters
			var releases, timeouts, buries uint64
			for id := range uint64(jobs) {
				n := yamlCounts(h.with(codec.OpStatsJob, id+1))
				releases, timeouts, buries = releases+n["releases"], timeouts+n["timeouts"], buries+n["buries"]
			}
			// With one attempt each, every end of a reservation but that of a connection is one.
			if buries != dead || releases+timeouts != dead || dead == 0 {
				t.Errorf("%d dead letters, but %d burials, %d releases and %d time-outs", dead, buries, releases, timeouts)
			}
			for id := range uint64(jobs) {
				h.with(codec.OpDelete, id+1)
			}
			h.close()
			crew.stop()
		})
	}
}

// reservedIDs are the ids in the reply to a reserve-batch of small bodies.
func reservedIDs(reply string) (ids []uint64) {
	for line := range strings.SplitSeq(reply, "\r\n") {
		var id uint64
		if n, _ := fmt.Sscanf(line, "RESERVED %d", &id); n == 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// yamlCounts are the numbers in a reply with a dictionary.
func yamlCounts(reply string) map[string]uint64 {
	counts := map[string]uint64{}
	for line := range strings.SplitSeq(reply, "\n") {
		var n uint64
		if k, v, ok := strings.Cut(line, ": "); ok {
			if _, err := fmt.Sscan(v, &n); err == nil {
				counts[k] = n
			}
		}
	}
	return counts
}
