package shard

import (
	"fmt"
	"strings"
	"testing"
)

// A throng is very many tubes whose bodies take many times what they may, on a disk that has at once what it is given.
// Evict is called when it is asked for.
type throng struct {
	*sim
	*file
	t     *testing.T
	limit int64
	rung  bool
	calls int // of Evict
	reads int
	most  int64 // bytes that bodies have taken
}

// throngOf has so many tubes, named by their numbers, each with some jobs of a size.
func throngOf(t *testing.T, limit int64, tubes, jobs, size int) (*throng, *simConn) {
	s, f := placedSim(limit)
	x := &throng{sim: s, file: f, t: t, limit: limit}
	s.engine.crowded = func() { x.rung = true }
	c := s.open()
	for range jobs {
		for n := range tubes {
			c.say(fmt.Sprintf("use %d", n))
			if got := c.say(fmt.Sprintf("put 0 0 99 %d\r\n%-*d", size, size, n)); !strings.HasPrefix(got, "INSERTED") {
				t.Fatalf("a put is answered %q with %d bytes of bodies", got, s.engine.resident.Load())
			}
			x.work()
		}
	}
	return x, c
}

// work does what others do meanwhile: all is durable, bodies leave, and those that are asked for come.
func (x *throng) work() {
	x.committed = x.pos
	x.reads += len(x.asked)
	x.answer(x.sim.engine)
	for more := x.rung; more; x.calls++ {
		_, more = x.sim.engine.Evict(evictLook)
	}
	x.rung = false
	var bytes int64
	for _, sh := range x.sim.engine.shards {
		bytes += sh.residents.bytes
	}
	x.most = max(x.most, bytes)
}

// check looks whether memory was held, at the cost of a few looks for each body that has left.
func (x *throng) check(evicted int) {
	x.t.Helper()
	if slack := int64(len(x.sim.engine.shards)) * tellStep; x.most > x.limit/8*markHigh+slack {
		x.t.Errorf("bodies have taken %d bytes of %d", x.most, x.limit)
	}
	if looks := x.calls * evictLook; looks > 8*evicted+100*evictLook {
		x.t.Errorf("%d looks for %d bodies that have left", looks, evicted)
	}
}

// With very many tubes, each of which has next to nothing, bodies leave memory as from one that has all.
func TestBodiesOfVeryManyShortTubesLeaveMemory(t *testing.T) {
	const tubes, size = 5000, 2048
	x, c := throngOf(t, 4<<20, tubes, 1, size)
	defer x.sim.engine.Discard()
	cold := x.coldJobs()
	if cold < tubes/2 {
		t.Fatalf("only %d are cold", cold)
	}
	x.check(cold)
	for n := range tubes {
		got := c.say(fmt.Sprintf("peek %d", n+1))
		if got == "" {
			x.work()
			x.Settle()
			got = c.say()
		}
		if want := fmt.Sprintf("FOUND %d %d\r\n%-*d\r\n", n+1, size, size, n); got != want {
			t.Fatalf("job %d is %.30q", n+1, got)
		}
		x.work()
	}
	x.check(2 * tubes)
	if x.reads < cold || x.reads > 2*tubes {
		t.Errorf("%d reads for %d bodies", x.reads, tubes)
	}
	x.noErrors(t)
}

// Where more tubes are drained at a time than have room for what is read ahead, no body is read again because what was
// read ahead of others has displaced it.
func TestReadAheadOfVeryManyTubesDisplacesNothing(t *testing.T) {
	const tubes, jobs, size = 500, 10, 4096
	x, c := throngOf(t, 8<<20, tubes, jobs, size)
	defer x.sim.engine.Discard()
	x.check(x.coldJobs())
	var all []*simConn
	for n := range tubes {
		w := x.open()
		w.say(fmt.Sprintf("watch %d", n), "ignore default")
		all = append(all, w)
	}
	for range jobs {
		for n, w := range all {
			got := w.say("reserve")
			if got == "" {
				x.work()
				x.Settle()
				got = w.say()
			}
			var id int
			_, err := fmt.Sscanf(got, "RESERVED %d", &id)
			if err != nil || !strings.Contains(got, fmt.Sprintf("\n%-*d\r", size, n)) {
				t.Fatalf("tube %d: %.30q", n, got)
			}
			w.say(fmt.Sprint("delete ", id))
			x.work()
		}
	}
	if x.reads > tubes*jobs*5/4 {
		t.Errorf("%d reads for %d bodies", x.reads, tubes*jobs)
	}
	x.check(3 * tubes * jobs)
	if n := x.sim.engine.wanted.Load(); n != 0 {
		t.Errorf("%d bytes are wanted of nothing", n)
	}
	c.say("list-tubes")
	x.noErrors(t)
}
