package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/weights"
)

// weightSets are weights of tubes such as clients may give.
var weightSets = [][]uint16{{1, 1}, {4, 1}, {9, 3, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {50, 30, 10, 5, 3, 2}, {9999, 1}}

// openTubes returns a session's subscriptions to tubes, each with a ready job.
func openTubes(n int) (watched []subscription) {
	sh := newSim(100, 1).engine.defaultTube.shard
	for i := range n {
		t := &tube{name: fmt.Sprint(i), shard: sh}
		r, j, err := sh.newJob()
		if err != nil {
			panic(err)
		}
		*j = job{state: ready}
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
		cl := &Client{watched: watched}
		sum := 0
		for _, w := range set {
			sum += int(w)
		}
		for id := range sessions {
			w := weights.Of(set, id)
			got := map[*tube]int{}
			for range reserves {
				got[watched[w.Pick((*watchList)(cl))].tube]++
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
	takes := map[string]clock.Time{"a": clock.Second, "b": clock.Second / 100}
	for name, each := range takes {
		p.ask(t, "use %s\r\n", name)
		for range length / each * workers {
			p.ask(t, "put 0 0 600 1\r\n%s\r\n", name)
		}
	}
	type task struct {
		worker *simConn
		id     string
		done   clock.Time
	}
	var tasks []task
	worked := map[string]clock.Time{}
	begin := func(c *simConn, now clock.Time) {
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
	if n := unsafe.Sizeof(weights.Weights{}); n > 48 { // what the allocator gives anyway
		t.Errorf("weights have %d bytes", n)
	}
	s := newSim(100, 1)
	c := s.open()
	c.ask(t, "watch a\r\nwatch b 1\r\nwatch b\r\nreserve-mode fifo info\r\n")
	if len(slices.Collect(s.loops[0].weighted())) != 0 {
		t.Error("a session without weights and with fifo has some")
	}
	c.ask(t, "watch b 2\r\n")
	if len(slices.Collect(s.loops[0].weighted())) != 1 {
		t.Error("a session with a weight has none")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if len(slices.Collect(s.loops[0].weighted())) != 0 {
		t.Error("weights stay when the session has gone")
	}
}

// BenchmarkBatchAmongTubes reserves a thousand jobs of two thousand tubes with all locks held.
func BenchmarkBatchAmongTubes(b *testing.B) {
	for _, mode := range []string{"fifo", "weighted", "weighted-fair"} {
		b.Run(mode, func(b *testing.B) {
			s := newSim(100, 1)
			c := s.open()
			c.say("reserve-mode " + mode)
			for i := range 2000 {
				c.say(fmt.Sprintf("watch tube%d %d", i, 1+i%100), fmt.Sprintf("use tube%d", i))
				for range 10 {
					c.say("put 0 0 100000 1", "x")
				}
			}
			by := c.loop.by()
			cl, w := clientOf(&c.session), (*weights.Weights)(nil)
			if mode != "fifo" {
				w = c.session.weights()
			}
			for b.Loop() {
				locked := &batch{of: cl, most: 1000}
				by.lockAll(cl.watchedShards, s.now)
				if err := locked.take(by, w); err != nil || len(locked.jobs) != 1000 {
					b.Fatal(len(locked.jobs), err)
				}
				by.unlockAll(cl.watchedShards)
				b.StopTimer()
				for _, x := range locked.jobs {
					if got := c.say(fmt.Sprintf("release %d 0 0", x.id)); got != "RELEASED\r\n" {
						b.Fatal(got)
					}
				}
				b.StartTimer()
			}
			b.StopTimer()
			s.engine.Discard()
		})
	}
}
