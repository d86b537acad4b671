package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
// others reserve, time out, bury, delete and flush them and close with some reserved: each
// job is deleted once and none is lost, and its body is always its own.
func TestAMovedJobIsNeitherLostNorDoubled(t *testing.T) {
	for _, c := range []struct{ loops, shards int }{{1, 4}, {4, 1}, {4, 4}, {3, 16}} {
		t.Run(fmt.Sprintf("%d loops, %d shards", c.loops, c.shards), func(t *testing.T) {
			jobs := 4000
			if raceEnabled {
				jobs = 1200
			}
			st := &storm{t: t, crew: newCrew(t, c.loops, c.shards), tubes: numbered(6), jobs: int64(jobs), ended: make(chan struct{})}
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
			st.crew.within(func() {
				<-st.ended
				all.Wait()
			})
			st.eraseTombstones()
			if n := st.crew.engine.Snapshot(st.crew.now()); n.Timeouts == 0 {
				t.Error("no time to run has ended")
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
		switch rnd.IntN(12) {
		case 0:
			st.deleted(st.count(h.do(codec.Command{Op: codec.OpFlushTube, Tube: st.tube(rnd)}), "FLUSHED"))
		case 1:
			reply := h.do(codec.Command{Op: codec.OpDeleteTubeJobs, Tube: st.tube(rnd), State: codec.Reserved, Bound: 1 + rnd.Uint32N(5)})
			st.deleted(st.count(reply, "DELETED"))
		case 2:
			reply := h.do(codec.Command{Op: codec.OpDeleteTubeJobs, Tube: st.tube(rnd), State: of, Bound: 1 + rnd.Uint32N(5)})
			st.deleted(st.count(reply, "DELETED"))
		case 3, 4:
			st.count(h.do(codec.Command{Op: codec.OpKickTube, Tube: st.tube(rnd), Bound: 50}), "KICKED")
		case 5:
			h.do(codec.Command{Op: codec.OpListJobs, Tube: st.tube(rnd), State: of, Bound: 1000})
		case 6:
			h.do(codec.Command{Op: codec.OpPeekTube, Tube: st.tube(rnd), State: codec.Reserved})
		case 7:
			h.do(codec.Command{Op: codec.OpMoveJob, ID: 1 + rnd.Uint64N(uint64(st.jobs)), Tube: st.tube(rnd)})
		default:
			reply := h.do(codec.Command{Op: codec.OpMoveTube, Tube: st.tube(rnd), State: of, To: st.tube(rnd), Bound: 1 + rnd.Uint32N(100)})
			st.count(reply, "MOVED")
		}
	}
}
