package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"trellis/codec"
	"trellis/engine/internal/clock"
)

func numbered(n int) (tubes []string) {
	for i := range n {
		tubes = append(tubes, fmt.Sprintf("t%d", i))
	}
	return tubes
}

func some(rnd *rand.Rand, tubes []string) []string {
	list := slices.Clone(tubes)
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+rnd.IntN(len(list))]
}

// Nobody waits for ever while there are jobs, and no job goes to two workers,
// however many tubes the workers watch and however few jobs there are at a time.
func TestEachJobGoesToOneWorkerAndNoWakeUpIsLost(t *testing.T) {
	for _, c := range []struct{ loops, shards, tubes, workers, producers, atATime int }{
		{1, 1, 1, 3, 3, 1},
		{2, 2, 3, 8, 2, 2},
		{4, 4, 5, 16, 4, 4},
		{8, 16, 12, 40, 8, 30},
		{8, 1, 2, 20, 8, 1000},
	} {
		t.Run(fmt.Sprintf("%d loops, %d shards, %d tubes", c.loops, c.shards, c.tubes), func(t *testing.T) {
			const jobs = 3000
			crew := newCrew(t, c.loops, c.shards)
			tubes := numbered(c.tubes)
			reserved := newLedger(t, "reserved", jobs)
			room := make(chan struct{}, c.atATime)
			var workers, producers sync.WaitGroup
			var hands []*hand
			for i := range c.workers {
				h := crew.hire()
				hands = append(hands, h)
				workers.Go(func() {
					rnd := rand.New(rand.NewPCG(1, uint64(i)))
					h.watchOnly(append(some(rnd, tubes), tubes[i%len(tubes)])...)
					last := map[string]uint64{}
					for {
						id, body := h.reserve()
						if id == 0 {
							if body != "" {
								t.Errorf("reserve: %q", body)
							}
							return
						}
						// All have the same priority, and a tube's jobs get their ids in order.
						if id < last[body] {
							t.Errorf("a worker got job %d of tube %s after %d", id, body, last[body])
						}
						last[body] = id
						if reply := h.with(codec.OpDelete, id); reply != codec.ReplyDeleted {
							t.Errorf("deleting job %d: %q", id, reply)
						}
						<-room
						reserved.note(id)
					}
				})
			}
			put := newLedger(t, "put", jobs)
			for i := range c.producers {
				h := crew.hire()
				producers.Go(func() {
					defer h.close()
					rnd := rand.New(rand.NewPCG(2, uint64(i)))
					for range jobs/c.producers + min(1, max(0, jobs%c.producers-i)) {
						tube := tubes[rnd.IntN(len(tubes))]
						h.use(tube)
						room <- struct{}{}
						put.note(h.put(7, 0, 1e9, tube))
					}
				})
			}
			crew.within(func() {
				producers.Wait()
				<-reserved.full
				for _, h := range hands {
					h.close()
				}
				workers.Wait()
			})
			for id := range put.seen {
				if !reserved.seen[id] {
					t.Errorf("job %d was never reserved", id)
				}
			}
			crew.stop()
		})
	}
}

// Whatever else goes on in the same shards, a reserve sees all its tubes in one
// moment and takes the most urgent job of all.
func TestReserveTakesTheMostUrgentOfAllTubesUnderContention(t *testing.T) {
	crew := newCrew(t, 4, 4)
	var done atomic.Bool
	var others sync.WaitGroup
	for i := range 4 {
		h := crew.hire()
		others.Go(func() {
			defer h.close()
			tubes := []string{fmt.Sprintf("x%d", i), fmt.Sprintf("x%d", (i+1)%4)}
			h.watchOnly(tubes...)
			for n := 0; !done.Load(); n++ {
				h.use(tubes[n%2])
				h.put(uint32(n%5), 0, 100, "")
				if id, _ := h.reserveFor(0); id != 0 {
					h.with(codec.OpDelete, id)
				}
			}
			for {
				id, _ := h.reserveFor(0)
				if id == 0 {
					break
				}
				h.with(codec.OpDelete, id)
			}
		})
	}
	crew.within(func() {
		tubes := numbered(6)
		producer, worker := crew.hire(), crew.hire()
		worker.watchOnly(tubes...)
		rnd := rand.New(rand.NewPCG(3, 4))
		type job struct {
			pri uint32
			id  uint64
		}
		rounds := 200
		if proof {
			rounds = 500
		}
		for range rounds {
			var jobs []job
			for range 1 + rnd.IntN(6) {
				producer.use(tubes[rnd.IntN(len(tubes))])
				pri := rnd.Uint32N(3)
				jobs = append(jobs, job{pri, producer.put(pri, 0, 1e9, "")})
			}
			slices.SortFunc(jobs, func(a, b job) int {
				if a.pri != b.pri {
					return int(a.pri) - int(b.pri)
				}
				return int(a.id) - int(b.id)
			})
			for _, want := range jobs {
				id, reply := worker.reserve()
				if id != want.id {
					t.Fatalf("reserved job %d %q, want %d", id, reply, want.id)
				}
				worker.with(codec.OpDelete, id)
			}
		}
		producer.close()
		worker.close()
		done.Store(true)
		others.Wait()
	})
	crew.stop()
}

// Workers delete, release, bury, touch, forget and run away, while times to run
// end, tubes are paused and jobs are kicked. In the end each job has been deleted
// exactly once and nothing is left.
func TestEveryJobIsDeletedOnceInAStorm(t *testing.T) {
	jobs := 2000
	if raceEnabled {
		jobs = 1000
	}
	crew := newCrew(t, 4, 4)
	tubes := numbered(5)
	deleted := newLedger(t, "deleted", jobs)
	var done atomic.Bool
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(5, uint64(i)))
			for !done.Load() {
				h := crew.hire()
				h.watchOnly(some(rnd, tubes)...)
				for n := 5 + rnd.IntN(50); n > 0 && !done.Load(); n-- {
					id, reply := h.reserveFor(rnd.Uint32N(4))
					if id == 0 {
						if reply != codec.ReplyTimedOut && reply != codec.ReplyDeadlineSoon {
							t.Errorf("reserve-with-timeout: %q", reply)
						}
						continue
					}
					treat(t, h, rnd, id, deleted)
				}
				h.close()
			}
		})
	}
	for i := range 2 {
		h := crew.hire()
		all.Go(func() {
			defer h.close()
			rnd := rand.New(rand.NewPCG(6, uint64(i)))
			for !done.Load() {
				tube := tubes[rnd.IntN(len(tubes))]
				h.use(tube)
				switch rnd.IntN(3) {
				case 0:
					h.do(codec.Command{Op: codec.OpPauseTube, Tube: []byte(tube), Delay: rnd.Uint32N(3)})
				case 1:
					h.do(codec.Command{Op: codec.OpKick, Bound: rnd.Uint32N(20)})
				default:
					h.do(codec.Command{Op: codec.OpStats})
				}
			}
		})
	}
	for i := range 4 {
		h := crew.hire()
		all.Go(func() {
			defer h.close()
			rnd := rand.New(rand.NewPCG(7, uint64(i)))
			for range jobs / 4 {
				h.use(tubes[rnd.IntN(len(tubes))])
				h.put(rnd.Uint32N(20), rnd.Uint32N(2)*rnd.Uint32N(3), rnd.Uint32N(4), strings.Repeat("x", rnd.IntN(200)))
			}
		})
	}
	crew.within(func() {
		<-deleted.full
		done.Store(true)
		all.Wait()
	})
	if n := crew.engine.Snapshot(crew.now()); n.Puts != uint64(jobs) || n.Timeouts == 0 {
		t.Errorf("%d jobs put, %d times to run ended", n.Puts, n.Timeouts)
	}
	crew.stop()
}

// treat does something to a job that h has reserved, but may have lost since.
func treat(t *testing.T, h *hand, rnd *rand.Rand, id uint64, deleted *ledger) {
	wants := func(reply string, any ...string) {
		if !slices.Contains(any, reply) {
			t.Errorf("job %d: %q, want one of %q", id, reply, any)
		}
	}
	remove := func() {
		reply := h.with(codec.OpDelete, id)
		wants(reply, codec.ReplyDeleted, codec.ReplyNotFound)
		if reply == codec.ReplyDeleted {
			deleted.note(id)
		}
	}
	switch rnd.IntN(7) {
	case 0, 1:
		remove()
	case 2:
		wants(h.with(codec.OpTouch, id), codec.ReplyTouched, codec.ReplyNotFound)
		remove()
	case 3:
		reply := h.do(codec.Command{Op: codec.OpRelease, ID: id, Pri: rnd.Uint32N(20), Delay: rnd.Uint32N(2)})
		wants(reply, codec.ReplyReleased, codec.ReplyNotFound)
	case 4:
		reply := h.do(codec.Command{Op: codec.OpBury, ID: id, Pri: rnd.Uint32N(20)})
		wants(reply, codec.ReplyBuried, codec.ReplyNotFound)
		wants(h.with(codec.OpKickJob, id), codec.ReplyKicked, codec.ReplyNotFound)
	case 5:
		h.with(codec.OpStatsJob, id)
		h.with(codec.OpPeek, id)
	default:
		// Its time to run will end, or the connection.
	}
}

// Sessions end their wait by a time-out, a close or a half-close in the moment in
// which jobs are handed over. Each reserve has one answer, and a job that was not
// answered is there for the next.
func TestNoJobIsLostWhenAWaitEndsAsItIsHandedOver(t *testing.T) {
	for name, end := range map[string]func(h *hand){
		"close":      func(h *hand) { h.close() },
		"half-close": func(h *hand) { h.halfClose() },
		"time-out":   func(h *hand) {},
	} {
		t.Run(name, func(t *testing.T) {
			crew := newCrew(t, 3, 4)
			tubes := numbered(3)
			producer, last := crew.hire(), crew.hire()
			last.watchOnly(tubes...)
			rnd := rand.New(rand.NewPCG(8, 9))
			rounds := 1500
			if raceEnabled {
				rounds = 500
			}
			crew.within(func() {
				for round := range rounds {
					h := crew.hire()
					h.watchOnly(some(rnd, tubes)...)
					tube := tubes[rnd.IntN(len(tubes))]
					producer.use(tube)
					var both sync.WaitGroup
					var got uint64
					var reply string
					both.Go(func() {
						if name == "time-out" {
							got, reply = h.reserveFor(1)
						} else {
							got, reply = h.reserve()
						}
					})
					var id uint64
					both.Go(func() { id = producer.put(0, 0, 1e9, "") })
					if round%2 == 0 {
						both.Go(func() { end(h) })
						both.Wait()
					} else if name != "time-out" {
						end(h)
						both.Wait()
					}
					both.Wait()
					h.close()
					if got != 0 && got != id || got == 0 && reply != "" && reply != codec.ReplyTimedOut {
						t.Fatalf("put job %d, reserved %d, %q", id, got, reply)
					}
					if again, reply := last.reserve(); again != id {
						t.Fatalf("after the end, reserve: %d %q, want job %d", again, reply, id)
					}
					last.with(codec.OpDelete, id)
				}
				producer.close()
				last.close()
			})
			crew.stop()
		})
	}
}

// A worker that waits on a tube gets a job by whatever way it becomes ready.
func TestAWaitingWorkerGetsAJobHoweverItBecomesReady(t *testing.T) {
	const rounds = 100
	for name, ready := range map[string]func(h *hand, tube string){
		"put":   func(h *hand, _ string) { h.put(0, 0, 1e9, "") },
		"delay": func(h *hand, _ string) { h.put(0, 1, 1e9, "") },
		"release": func(h *hand, _ string) {
			h.do(codec.Command{Op: codec.OpRelease, ID: buriedJob(h, h.put(0, 1e9, 1e9, ""), false)})
		},
		"delayed release": func(h *hand, _ string) {
			h.do(codec.Command{Op: codec.OpRelease, ID: buriedJob(h, h.put(0, 1e9, 1e9, ""), false), Delay: 1})
		},
		"time to run": func(h *hand, _ string) { buriedJob(h, h.put(0, 1e9, 1, ""), false) },
		"kick": func(h *hand, _ string) {
			buriedJob(h, h.put(0, 1e9, 1e9, ""), true)
			h.do(codec.Command{Op: codec.OpKick, Bound: 10})
		},
		"kick-job": func(h *hand, _ string) { h.with(codec.OpKickJob, h.put(0, 1e9, 1e9, "")) },
		"end of a pause": func(h *hand, tube string) {
			h.do(codec.Command{Op: codec.OpPauseTube, Tube: []byte(tube), Delay: 1})
			h.put(0, 0, 1e9, "")
		},
		"end of a pause by hand": func(h *hand, tube string) {
			h.do(codec.Command{Op: codec.OpPauseTube, Tube: []byte(tube), Delay: 1e9})
			h.put(0, 0, 1e9, "")
			h.do(codec.Command{Op: codec.OpPauseTube, Tube: []byte(tube), Delay: 0})
		},
		"close": func(h *hand, tube string) {
			other := h.loop.crew.hire()
			other.use(tube)
			buriedJob(other, other.put(0, 1e9, 1e9, ""), false)
			other.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			crew := newCrew(t, 2, 2)
			var all sync.WaitGroup
			for i := range 4 {
				tubes := []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}
				worker, h := crew.hire(), crew.hire()
				worker.watchOnly(tubes...)
				all.Go(func() {
					defer worker.close()
					for range rounds {
						id, reply := worker.reserve()
						if id == 0 {
							t.Errorf("reserve: %q", reply)
							return
						}
						if reply := worker.with(codec.OpDelete, id); reply != codec.ReplyDeleted {
							t.Errorf("deleting job %d: %q", id, reply)
						}
					}
				})
				all.Go(func() {
					defer h.close()
					for n := range rounds {
						h.use(tubes[n%2])
						ready(h, tubes[n%2])
					}
				})
			}
			crew.within(all.Wait)
			crew.stop()
		})
	}
}

// buriedJob reserves a job, and buries it if so told.
func buriedJob(h *hand, id uint64, bury bool) uint64 {
	h.with(codec.OpReserveJob, id)
	if bury {
		h.with(codec.OpBury, id)
	}
	return id
}

// A loop meets deadlines, of jobs that were restored, while others are still being made.
func TestLoopsAreMadeWhileOthersRun(t *testing.T) {
	for range 50 {
		s := newSim(100, 1)
		first, now := s.loops[0], clock.Time(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 200 {
				now++
				first.meet(now)
				first.Refill()
				for first.Next(now) != nil {
				}
			}
		}()
		for range 20 {
			s.engine.NewLoop(&simLoop{})
		}
		<-done
	}
}
