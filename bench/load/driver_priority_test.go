package load

import (
	"testing"
	"time"

	"trellis/bench"
)

// The ids of a batch may straddle a multiple of 2^32.
func TestOrderIsThatOfPrioritiesAndThenOfIDs(t *testing.T) {
	type job struct {
		tag uint32
		id  uint64
	}
	for _, c := range []struct {
		jobs []job
		want bool
	}{
		{[]job{{1, 1<<32 - 1}, {1, 1 << 32}, {1, 1<<32 + 1}}, true},
		{[]job{{1, 1 << 32}, {1, 1<<32 - 1}}, false},
		{[]job{{1, 1 << 33}, {2, 5}}, true},
		{[]job{{2, 5}, {1, 1 << 33}}, false},
		{[]job{{2, 5}, {2, 5}}, false},
	} {
		s := &shared{cfg: &bench.Config{Depth: 1}, bodies: newBodies(bench.FixedSize(10), 1), counters: make([]counters, 1), base: time.Now()}
		w := newWorker(s, 0)
		w.conns = make([]conn, 1)
		w.slots, w.mask = make([]slot, 4), 3
		for _, j := range c.jobs {
			w.tag = j.tag
			priorityDriver{}.reply(w, &w.conns[0], slot{metric: metricReserve}, &reply{id: j.id}, 0, true)
		}
		if got := s.report() == nil; got != c.want {
			t.Errorf("%v: in order: %v, want %v", c.jobs, got, c.want)
		}
	}
}
