package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/stats"
)

// crowd makes an engine with tubes of which each has its own numbers, and returns their
// snapshots by name.
func crowd(t testing.TB, tubes int) (*Engine, clock.Time, map[string]stats.Tube) {
	s := newSim(100, 1)
	t.Cleanup(s.engine.Discard)
	r := rand.New(rand.NewPCG(1, uint64(tubes)))
	c := s.open()
	want := map[string]stats.Tube{DefaultTube: {Name: DefaultTube, Using: 1, Watching: 1}}
	id := 0
	put := func(delay int) {
		c.say(fmt.Sprintf("put 2000 %d 1000000 0", delay), "")
		id++
	}
	for i := range tubes {
		tube := stats.Tube{Name: fmt.Sprintf("tube-%d", r.IntN(10)*tubes+i)}
		c.say("use " + tube.Name)
		for range r.IntN(4) {
			put(0)
			tube.Ready++
			tube.OldestReady = time.Duration(s.now)
		}
		if r.IntN(3) == 0 {
			put(1_000_000)
			tube.Delayed++
		}
		for range r.IntN(3) {
			put(0)
			c.say(fmt.Sprint("reserve-job ", id))
			tube.Reserves++
			if r.IntN(2) == 0 {
				tube.Reserved++
				tube.BusyMicros -= s.now.Micros()
				continue
			}
			c.say(fmt.Sprint("bury ", id, " 0"))
			tube.Buried++
			tube.Buries++
		}
		if tube.Puts = uint64(tube.Ready + tube.Delayed + tube.Reserved + tube.Buried); tube.Puts > 0 {
			want[tube.Name] = tube
		}
		if i%100 == 0 {
			s.Wait(time.Second)
		}
	}
	c.say("use default")
	for name, tube := range want {
		if tube.Ready > 0 {
			tube.OldestReady = time.Duration(s.now) - tube.OldestReady
		}
		tube.BusyMicros += uint64(tube.Reserved) * s.now.Micros()
		want[name] = tube
	}
	return s.engine, s.now, want
}

func TestEachTubeMeetsEveryTubeOnce(t *testing.T) {
	for _, tubes := range []int{0, 1, 100, 16*tubeSlice + 1000} {
		e, now, want := crowd(t, tubes)
		got := map[string]stats.Tube{}
		e.EachTube(now, func(tube *stats.Tube) {
			if _, twice := got[tube.Name]; twice {
				t.Errorf("%s is met twice", tube.Name)
			}
			got[tube.Name] = *tube
		})
		if !maps.Equal(got, want) {
			t.Errorf("met %d tubes, want %d", len(got), len(want))
			for name, tube := range want {
				if got[name] != tube {
					t.Fatalf("%s: %+v, want %+v", name, got[name], tube)
				}
			}
		}
	}
}

// Tubes come and go meanwhile.
func TestTubesAreSelectedWhileLoopsRun(t *testing.T) {
	c := newCrew(t, 2, 4)
	defer c.stop()
	owner := c.hire()
	defer owner.close()
	defer owner.with(codec.OpDelete, owner.put(0, 0, 1, ""))
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 2 {
		h := c.hire()
		busy.Go(func() {
			defer h.close()
			var left uint64
			for n := 0; !stop.Load(); n++ {
				h.use(fmt.Sprint("t", n%2000))
				id := h.put(1, 0, 1, "")
				h.with(codec.OpDelete, left)
				left = id
			}
			h.with(codec.OpDelete, left)
		})
	}
	c.within(func() {
		for range 200 {
			var most stats.Tube
			c.engine.EachTube(c.now(), func(tube *stats.Tube) {
				if tube.Ready > most.Ready {
					most = *tube
				}
			})
			if most.Ready < 1 {
				t.Error("no tube has a ready job")
			}
		}
	})
	stop.Store(true)
	busy.Wait()
}
