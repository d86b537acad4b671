package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"trellis/codec"
	"trellis/engine/internal/clock"
)

// weightSets are weights of tubes such as clients may give.
var weightSets = [][]uint16{{1, 1}, {4, 1}, {9, 3, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {50, 30, 10, 5, 3, 2}, {9999, 1}}

// openTubes returns a session's subscriptions to tubes, each with a ready job.
func openTubes(n int) (watched []subscription) {
	sh := newSim(100, 1).engine.defaultTube.shard
	for i := range n {
		t := &tube{name: fmt.Sprint(i), shard: sh}
		r, j, err := sh.newJob(&job{state: ready})
		if err != nil {
			panic(err)
		}
		t.ready.Push(sh.table, j.pri, r, &j.Links)
		watched = append(watched, subscription{tube: t})
	}
	return watched
}

func TestOfAThousandReservesEachTubeGetsItsShare(t *testing.T) {
	const reserves = 1000
	sessions := uint64(10)
	if proof {
		sessions = 200
	}
	for _, set := range weightSets {
		watched := openTubes(len(set))
		sum := 0
		for _, w := range set {
			sum += int(w)
		}
		for id := range sessions {
			w := &weights{of: set, at: mix(id)}
			got := map[*tube]int{}
			for range reserves {
				from, _ := w.pick(watched)
				got[from]++
			}
			for i, x := range set {
				want := float64(reserves*int(x)) / float64(sum)
				if n := float64(got[watched[i].tube]); n < want-4 || n > want+4 {
					t.Fatalf("session %d, weights %v: tube %d was chosen %v times, want %v", id, set, i, n, want)
				}
			}
		}
	}
}

// A batch chooses as that many reserves would, whatever the weights and however many jobs there
// are.
func TestABatchChoosesAsThatManyReserves(t *testing.T) {
	for _, mode := range []string{"weighted", "weighted-fair"} {
		for tubes := 1; tubes <= 20; tubes++ {
			var got [2][]string
			for i, how := range []string{"reserve-with-timeout 0", "reserve-batch 1000"} {
				s := newSim(100, 1)
				c := s.open()
				for n := range tubes {
					name := fmt.Sprint("t", n)
					c.ask(t, "use %s\r\nwatch %s %d\r\n", name, name, 1+n*n%7)
					for range 1 + n*5%8 {
						c.ask(t, "put 0 0 60 %d\r\n%s\r\n", len(name), name)
					}
				}
				c.expect(t, "USING "+mode+"\r\n", "reserve-mode %s\r\n", mode)
				for {
					reply := c.ask(t, "%s\r\n", how)
					_, jobs, batch := strings.Cut(reply, "RESERVED_BATCH ")
					if batch {
						_, reply, _ = strings.Cut(jobs, "\r\n")
					}
					if !strings.HasPrefix(reply, "RESERVED ") {
						break
					}
					got[i] = append(got[i], reply)
				}
			}
			if one, batch := strings.Join(got[0], ""), strings.Join(got[1], ""); one != batch || one == "" {
				t.Fatalf("%s among %d tubes: one by one\n%s\nin a batch\n%s", mode, tubes, one, batch)
			}
		}
	}
}

// Of two tubes with equal weights each gets half of the time of the workers, though the jobs of
// one take a hundred times as long.
func TestWorkerTimeFollowsWeights(t *testing.T) {
	const workers = 10
	length := 15 * clock.Second
	if proof {
		length = 100 * clock.Second
	}
	s := newSim(100, 1)
	p := s.open()
	takes := map[string]Time{"a": clock.Second, "b": clock.Second / 100}
	for name, each := range takes {
		p.ask(t, "use %s\r\n", name)
		for range length / each * workers {
			p.ask(t, "put 0 0 600 1\r\n%s\r\n", name)
		}
	}
	type task struct {
		worker *simConn
		id     string
		done   Time
	}
	var tasks []task
	worked := map[string]Time{}
	begin := func(c *simConn, now Time) {
		line, body, _ := strings.Cut(c.ask(t, "reserve\r\n"), "\r\n")
		name := strings.TrimSpace(body)
		worked[name] += takes[name]
		tasks = append(tasks, task{c, strings.Fields(line)[1], now + takes[name]})
	}
	for range workers {
		c := s.open()
		c.ask(t, "watch a\r\nwatch b\r\nignore default\r\nreserve-mode weighted-fair\r\n")
		begin(c, 0)
	}
	for {
		i := 0
		for k := range tasks {
			if tasks[k].done < tasks[i].done {
				i = k
			}
		}
		x := tasks[i]
		if x.done > length {
			break
		}
		tasks = slices.Delete(tasks, i, i+1)
		x.worker.expect(t, "DELETED\r\n", "delete %s\r\n", x.id)
		begin(x.worker, x.done)
	}
	if share := float64(worked["a"]) / float64(worked["a"]+worked["b"]); share < 0.45 || share > 0.55 {
		t.Errorf("tube a got %v of the time: %v", share, worked)
	}
}

// What weights cost, those pay who give them.
func TestWeightsAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(weights{}); n > 48 { // what the allocator gives anyway
		t.Errorf("weights have %d bytes", n)
	}
	s := newSim(100, 1)
	c := s.open()
	c.ask(t, "watch a\r\nwatch b 1\r\nwatch b\r\nreserve-mode fifo info\r\n")
	if len(s.loops[0].weights) != 0 {
		t.Error("a session without weights and with fifo has some")
	}
	c.ask(t, "watch b 2\r\n")
	if len(s.loops[0].weights) != 1 {
		t.Error("a session with a weight has none")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if len(s.loops[0].weights) != 0 {
		t.Error("weights stay when the session has gone")
	}
}

// BenchmarkReserveAmongTubes reserves and deletes among ten tubes with jobs.
func BenchmarkReserveAmongTubes(b *testing.B) {
	for name, mode := range map[string]codec.Mode{"fifo": codec.FIFO, "weighted": codec.Weighted, "weighted-fair": codec.WeightedFair} {
		b.Run(name, func(b *testing.B) {
			p := newPlant(b, 1)
			c := p.client(0)
			c.must(&codec.Command{Op: codec.OpReserveMode, Mode: mode}, "USING")
			for i := range 10 {
				tube := []byte(fmt.Sprint("tube", i))
				c.must(&codec.Command{Op: codec.OpWatch, Tube: tube, Weight: uint32(1 + i)}, "WATCHING")
				c.must(&codec.Command{Op: codec.OpUse, Tube: tube}, "USING")
				for range 100 {
					c.put(0, 0)
				}
			}
			c.must(&codec.Command{Op: codec.OpIgnore, Tube: []byte(defaultTube)}, "WATCHING")
			b.ReportAllocs()
			for b.Loop() {
				id := c.reserve()
				c.must(&codec.Command{Op: codec.OpRelease, ID: id}, "RELEASED")
			}
			b.StopTimer()
			p.clear()
		})
	}
}

// BenchmarkBatchAmongTubes reserves a thousand jobs of two thousand tubes with all locks held.
func BenchmarkBatchAmongTubes(b *testing.B) {
	for name, mode := range map[string]codec.Mode{"fifo": codec.FIFO, "weighted": codec.Weighted, "weighted-fair": codec.WeightedFair} {
		b.Run(name, func(b *testing.B) {
			p := newPlant(b, 1)
			c := p.client(0)
			c.must(&codec.Command{Op: codec.OpReserveMode, Mode: mode}, "USING")
			for i := range 2000 {
				tube := []byte(fmt.Sprint("tube", i))
				c.must(&codec.Command{Op: codec.OpWatch, Tube: tube, Weight: uint32(1 + i%100)}, "WATCHING")
				c.must(&codec.Command{Op: codec.OpUse, Tube: tube}, "USING")
				for range 10 {
					c.put(0, 0)
				}
			}
			for b.Loop() {
				locked := &batch{most: 1000}
				s, tx := &c.session, &c.loop.tx
				q := s.request(c.loop.now, c.loop.now)
				tx.lockAll(s.watchedShards, c.loop.now)
				if err := locked.take(tx, &q); err != nil || len(locked.jobs) != 1000 {
					b.Fatal(len(locked.jobs), err)
				}
				tx.unlockAll(s.watchedShards)
				b.StopTimer()
				for _, x := range locked.jobs {
					c.must(&codec.Command{Op: codec.OpRelease, ID: x.id}, "RELEASED")
				}
				b.StartTimer()
			}
			b.StopTimer()
			p.clear()
		})
	}
}
