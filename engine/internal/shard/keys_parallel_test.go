package shard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"trellis/codec"
)

// tagged puts a job with tags and returns the reply.
func (h *hand) tagged(pri, delay, ttr uint32, body string, tags codec.Tags) string {
	return h.do(codec.Command{
		Op: codec.OpPut, Pri: pri, Delay: delay, TTR: ttr,
		Size: uint32(len(body)), Body: []byte(body), Terminated: true, Tags: &tags,
	})
}

const longTTR = 1_000_000 // seconds; a crew does not live to see its end

// A limitedRun is jobs with limits, and who has reserved them, as their clients know it.
type limitedRun struct {
	t     *testing.T
	crew  *crew
	tubes []string
	held  [3][4]atomic.Int32 // by tube and key: never more than are reserved
	done  *ledger
}

// limitOf is the limit of all jobs of a key.
func limitOf(key int) int32 { return []int32{1, 2, 3, 7}[key] }

// Workers on several loops reserve jobs whose number is limited, one by one and in batches,
// and give them back in all ways: the limits hold at any time, and each job is done once.
func TestLimitsHoldAndNoJobIsLost(t *testing.T) {
	for _, c := range []struct{ loops, shards int }{{1, 1}, {3, 1}, {4, 4}, {3, 16}} {
		t.Run(fmt.Sprintf("%d loops, %d shards", c.loops, c.shards), func(t *testing.T) {
			jobs := 4000
			if raceEnabled {
				jobs = 1000
			}
			r := &limitedRun{t: t, crew: newCrew(t, c.loops, c.shards), tubes: numbered(3), done: newLedger(t, "done", jobs)}
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() { r.put(rand.New(rand.NewPCG(1, uint64(i))), jobs/4) })
			}
			for i := range 8 {
				all.Go(func() { r.work(rand.New(rand.NewPCG(2, uint64(i)))) })
			}
			r.crew.within(func() {
				<-r.done.full
				all.Wait()
			})
			r.crew.stop()
		})
	}
}

func (r *limitedRun) put(rnd *rand.Rand, jobs int) {
	h := r.crew.hire()
	defer h.close()
	for range jobs {
		tube, key := rnd.IntN(len(r.tubes)), rnd.IntN(4)
		h.use(r.tubes[tube])
		reply := h.tagged(rnd.Uint32N(5), rnd.Uint32N(2), longTTR, fmt.Sprintf("%d %d", tube, key), codec.Tags{
			Limited: fmt.Appendf(nil, "key%d", key), Limit: uint32(limitOf(key)),
		})
		if !strings.HasPrefix(reply, "INSERTED ") {
			r.t.Errorf("put: %q", reply)
		}
	}
}

// A takenJob is one that a client has reserved.
type takenJob struct {
	id   uint64
	held *atomic.Int32
}

// reserved takes a part of a reply that hands a job out.
func (r *limitedRun) reserved(id uint64, body string) takenJob {
	var tube, key int
	if _, err := fmt.Sscanf(body, "%d %d", &tube, &key); err != nil {
		r.t.Errorf("the body of job %d is %q", id, body)
	}
	j := takenJob{id, &r.held[tube][key]}
	if n := j.held.Add(1); n > limitOf(key) {
		r.t.Errorf("%d jobs of a key are reserved, %d may be", n, limitOf(key))
	}
	return j
}

func (r *limitedRun) over() bool {
	select {
	case <-r.done.full:
		return true
	default:
		return false
	}
}

func (r *limitedRun) work(rnd *rand.Rand) {
	for !r.over() {
		h := r.crew.hire()
		h.watchOnly(some(rnd, r.tubes)...)
		var held []takenJob
		for n := 5 + rnd.IntN(20); n > 0 && !r.over(); n-- {
			held = append(held, r.take(rnd, h)...)
			for len(held) > 0 && rnd.IntN(4) > 0 {
				j := held[len(held)-1]
				held = held[:len(held)-1]
				r.giveBack(rnd, h, j)
			}
			h.do(codec.Command{Op: codec.OpKickTube, Tube: []byte(r.tubes[rnd.IntN(len(r.tubes))]), Bound: 100})
		}
		for _, j := range held {
			j.held.Add(-1)
		}
		h.close()
	}
}

func (r *limitedRun) take(rnd *rand.Rand, h *hand) (held []takenJob) {
	switch rnd.IntN(3) {
	case 0:
		if id, body := h.reserveFor(rnd.Uint32N(3)); id != 0 {
			held = append(held, r.reserved(id, body))
		}
	case 1:
		if id, body := reservedIn(h.with(codec.OpReserveJob, 1+rnd.Uint64N(r.crew.engine.ids.Last.Load()+1))); id != 0 {
			held = append(held, r.reserved(id, body))
		}
	default:
		reply := h.do(codec.Command{Op: codec.OpReserveBatch, Bound: 1 + rnd.Uint32N(10), Timeout: rnd.Uint32N(3)})
		_, rest, _ := strings.Cut(reply, "\r\n")
		for rest != "" {
			var line, body string
			line, rest, _ = strings.Cut(rest, "\r\n")
			body, rest, _ = strings.Cut(rest, "\r\n")
			var id uint64
			if _, err := fmt.Sscanf(line, "RESERVED %d", &id); err != nil {
				r.t.Errorf("%q in a batch", line)
			}
			held = append(held, r.reserved(id, body))
		}
	}
	return held
}

func (r *limitedRun) giveBack(rnd *rand.Rand, h *hand, j takenJob) {
	j.held.Add(-1)
	switch rnd.IntN(5) {
	case 0:
		h.do(codec.Command{Op: codec.OpRelease, ID: j.id, Pri: rnd.Uint32N(5), Delay: rnd.Uint32N(2)})
	case 1:
		h.do(codec.Command{Op: codec.OpBury, ID: j.id, Pri: rnd.Uint32N(5)})
	default:
		if h.with(codec.OpDelete, j.id) == codec.ReplyDeleted {
			r.done.note(j.id)
		}
	}
}

// Clients on several loops put jobs of a few unique keys, move and delete them: at any time
// at most one lives that was put with a key into a tube, and each is deleted once.
func TestAUniqueKeyHasOneHolderAtATime(t *testing.T) {
	for _, c := range []struct{ loops, shards int }{{1, 4}, {4, 1}, {3, 16}} {
		t.Run(fmt.Sprintf("%d loops, %d shards", c.loops, c.shards), func(t *testing.T) {
			const keys = 3
			crew := newCrew(t, c.loops, c.shards)
			var living [keys]atomic.Int32 // as clients know it: never more than do
			var put, deleted atomic.Int64
			rounds := 3000
			if raceEnabled {
				rounds = 600
			}
			var all sync.WaitGroup
			for i := range 6 {
				rnd := rand.New(rand.NewPCG(3, uint64(i)))
				all.Go(func() {
					h := crew.hire()
					defer h.close()
					h.use("a")
					for range rounds {
						key := rnd.IntN(keys)
						reply := h.tagged(rnd.Uint32N(9), 0, longTTR, "x", codec.Tags{
							Unique: fmt.Appendf(nil, "key%d", key), Seconds: rnd.Uint32N(2),
						})
						var id uint64
						var state string
						n, _ := fmt.Sscanf(reply, "INSERTED %d %s", &id, &state)
						if n == 2 {
							continue
						}
						if n != 1 {
							t.Errorf("put: %q", reply)
						}
						put.Add(1)
						if n := living[key].Add(1); n > 1 {
							t.Errorf("%d jobs of key %d", n, key)
						}
						living[key].Add(-1)
						if rnd.IntN(3) == 0 {
							h.do(codec.Command{Op: codec.OpMoveJob, ID: id, Tube: []byte("b")})
						}
						if h.with(codec.OpDelete, id) == codec.ReplyDeleted {
							deleted.Add(1)
						}
					}
				})
			}
			crew.within(all.Wait)
			if put.Load() == 0 || put.Load() != deleted.Load() {
				t.Errorf("%d jobs were put, %d deleted", put.Load(), deleted.Load())
			}
			h := crew.hire()
			for _, tube := range []string{"a", "b"} {
				h.do(codec.Command{Op: codec.OpFlushTube, Tube: []byte(tube)})
			}
			h.close()
			crew.stop()
		})
	}
}
