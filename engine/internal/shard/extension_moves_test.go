package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trellis/engine/internal/ids"
)

// Records are moved while a touch-all goes over them.
func TestTouchAllCountsAJobWhoseRecordMovesOnce(t *testing.T) {
	const jobs, held = 40_000, 5000 // every eighth
	s := newSim(100, 1)
	l := slow(t, s)
	c := s.open()
	for i := range jobs {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 0 1000000 0\r\n\r\n")
	}
	for i := range held {
		id := 8 * (i + 1)
		c.expect(t, fmt.Sprintf("RESERVED %d 0\r\n\r\n", id), "reserve-job %d\r\n", id)
		for id := id - 7; id%8 != 0; id++ {
			c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
		}
	}
	sh := s.engine.defaultTube.shard
	places := func() (p []ids.Place) {
		for i := range held {
			p = append(p, s.engine.ids.Get(uint64(8*(i+1))))
		}
		return p
	}
	before := places()
	l.loop.Refill()
	if c.start(t, "touch-all") != Wait {
		t.Fatalf("all is done at once: %q", c.took())
	}
	by := Tx{shared: s.engine.Shards}
	for range 10_000 {
		s.now += tidyPause
		sh.lock(&by, s.now)
		sh.unlock(&by)
	}
	s.now += tidyInterval
	if slices.Equal(before, places()) {
		t.Fatal("no record has moved")
	}
	l.rounds()
	if got, want := c.took(), fmt.Sprintf("TOUCHED_ALL %d\r\n", held); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, id := range []int{8, jobs / 2, jobs} {
		if reply := c.say(fmt.Sprint("stats-job ", id)); !strings.Contains(reply, "\ntime-left: 99999") && !strings.Contains(reply, "\ntime-left: 1000000\n") {
			t.Errorf("job %d: %q", id, reply)
		}
	}
}

// In a tube whose reservations are over before all jobs were looked at, peek-tube comes to
// an end too.
func TestPeekTubeEndsInATubeOfShortReservations(t *testing.T) {
	const jobs, some = 6000, scanSlice + 1
	s := newSim(100, 1)
	l := slow(t, s)
	c, worker := s.open(), s.open()
	for i := range jobs {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 0 100 0\r\n\r\n")
	}
	at := 0
	hold := func() {
		for i := range some {
			id := (at+i)%jobs + 1
			worker.expect(t, fmt.Sprintf("RESERVED %d 0\r\n\r\n", id), "reserve-job %d\r\n", id)
		}
	}
	hold()
	l.loop.allow(2 * scanCost)
	if c.start(t, "peek-tube default reserved") != Wait {
		t.Fatalf("all is done at once: %q", c.took())
	}
	rounds := 0
	for ; c.waiting && rounds < 1000; rounds++ {
		for i := range some {
			worker.expect(t, "RELEASED\r\n", "release %d 0 0\r\n", (at+i)%jobs+1)
		}
		at += some
		hold()
		l.loop.Refill()
		l.loop.allow(2 * scanCost)
		for x := l.loop.Next(s.now); x != nil; x = l.loop.Next(s.now) {
			if x := connOf(x); x.session.Resume(s.now, &x.out) != Wait {
				x.waiting = false
			}
		}
	}
	if got := c.took(); got != "NOT_FOUND\r\n" && !strings.HasPrefix(got, "FOUND ") {
		t.Errorf("after %d rounds: %q", rounds, got)
	}
}
