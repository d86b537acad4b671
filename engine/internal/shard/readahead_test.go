package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
)

// aheadSim has n cold jobs of a size, whose priorities are taken in turn, and nothing comes from the journal.
func aheadSim(n, size int, pris ...int) (*sim, *simConn, *file) {
	s, f := placedSim(someBodies)
	c := s.open()
	for i := range n {
		c.say(fmt.Sprintf("put %d 0 99 %d\r\n%s", pris[i%len(pris)], size, strings.Repeat("x", size)))
	}
	f.committed = f.pos
	s.engine.evictTo(0, 0, everyEvict)
	return s, c, f
}

// ahead are the jobs, in order, whose bodies were asked for before anybody waits for them. They are answered for.
func (f *file) ahead(s *sim) (list []uint64) {
	for _, x := range f.asked {
		if x.Lane == journal.Ahead {
			list = append(list, x.ID)
		}
	}
	f.answer(s.engine)
	s.Settle()
	slices.Sort(list)
	return list
}

// Whoever reserves a cold job waits for it once; the next ones come meanwhile.
func TestTheNextJobsAreReadAhead(t *testing.T) {
	s, c, f := aheadSim(8, 10, 0)
	defer s.engine.Discard()
	if got := c.say("reserve"); got != "" {
		t.Errorf("the first is there: %q", got)
	}
	if got := f.ahead(s); !slices.Equal(got, []uint64{2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("jobs %v are read ahead", got)
	}
	for id := 1; id <= 8; id++ {
		next := []string{"reserve-with-timeout 0"}
		if id == 1 {
			next = nil // it is told of that one now
		}
		if got, want := c.say(next...), fmt.Sprintf("RESERVED %d 10\r\nxxxxxxxxxx\r\n", id); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if len(f.asked) > 0 || s.engine.wanted.Load() != 0 || s.engine.defaultTube.ahead != nil {
		t.Errorf("asked for: %v; %d bytes are wanted", f.asked, s.engine.wanted.Load())
	}
	s.noErrors(t)
}

// A look goes on where the last has ended, also over priorities, and as far as the window reaches. No body is asked for
// twice.
func TestALookGoesOnWhereTheLastHasEnded(t *testing.T) {
	const size, all = 1 << 10, 2000
	s, c, f := aheadSim(all, size, 5, 3)
	defer s.engine.Discard()
	asked := map[uint64]int{}
	waits, most := 0, int64(0)
	for range all {
		if c.say("reserve") == "" {
			waits++
		}
		for _, id := range f.ahead(s) {
			asked[id]++
		}
		c.say() // what it has waited for
		most = max(most, s.engine.wanted.Load())
	}
	if waits != 1 || len(asked) != all-1 {
		t.Errorf("%d times the client waited; %d jobs were read ahead", waits, len(asked))
	}
	for id, n := range asked {
		if n != 1 {
			t.Errorf("job %d was asked for %d times", id, n)
		}
	}
	if most < aheadWindow/2 || most > aheadWindow+2*size {
		t.Errorf("at most %d bytes were wanted", most)
	}
	s.noErrors(t)
}

// Of jobs with many priorities those are read ahead that come next, too.
func TestJobsInAHeapAreReadAhead(t *testing.T) {
	s, c, f := aheadSim(300, 10, 9, 7, 5, 3, 1, 8, 6, 4, 2, 12, 11, 13, 14, 10, 15)
	defer s.engine.Discard()
	waits := 0
	for range 300 {
		if c.say("reserve") == "" {
			waits++
		}
		f.ahead(s)
		c.say() // what it has waited for
	}
	if waits > 10 {
		t.Errorf("%d of 300 were waited for", waits)
	}
	s.noErrors(t)
}

// The evictor passes over once what is wanted.
func TestWhatIsWantedStaysForARound(t *testing.T) {
	const size = 1 << 10
	s, c, f := aheadSim(200, size, 0)
	defer s.engine.Discard()
	c.say("reserve")
	f.ahead(s)
	had := s.coldJobs()
	a := s.engine.defaultTube.ahead
	s.engine.evictTo(0, 0, everyEvict)
	if n := s.coldJobs(); n != had+1 || a.wanted != 0 { // the first is reserved, and was not read ahead
		t.Errorf("%d jobs were cold, and %d are in the first round; %d bytes are wanted", had, n, a.wanted)
	}
	s.engine.evictTo(0, 0, everyEvict)
	if n := s.coldJobs(); n != 200 {
		t.Errorf("%d jobs are cold in the second round", n)
	}
	s.noErrors(t)
}

// All tubes together have a quarter of the limit for what is read ahead.
func TestReadAheadHasAQuarterOfTheLimit(t *testing.T) {
	const size, quarter = 1 << 10, 1 << 20
	s, f := placedSim(4 * quarter)
	defer s.engine.Discard()
	c := s.open()
	for range 100 {
		for tube := range 20 {
			c.say(fmt.Sprintf("use t%d", tube), fmt.Sprintf("watch t%d", tube))
			c.say(fmt.Sprintf("put 0 0 99 %d\r\n%s", size, strings.Repeat("x", size)))
		}
	}
	f.committed = f.pos
	s.engine.evictTo(0, 0, everyEvict)
	for range 20 * 100 {
		c.say("reserve")
		f.ahead(s)
		c.say() // what it has waited for
		if n := s.engine.wanted.Load(); n > quarter+128*size {
			t.Fatalf("%d bytes are wanted", n)
		}
	}
}
