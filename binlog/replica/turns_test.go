package replica

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs/faultfs"
)

// slept is a clock that runs while something is done, and what was slept by it.
type slept struct {
	now   time.Time
	turns []int64         // bytes of records between two sleeps
	slept []time.Duration // behind each of them
	bytes int64
}

func (s *slept) newTurns() *turns {
	return &turns{
		now: func() time.Time { return s.now }, began: s.now,
		sleep: func(d time.Duration) {
			s.turns, s.slept, s.bytes = append(s.turns, s.bytes), append(s.slept, d), 0
			s.now = s.now.Add(d)
		},
	}
}

// did takes time for bytes.
func (s *slept) did(bytes int64, took time.Duration) {
	s.bytes += bytes
	s.now = s.now.Add(took)
}

func TestATurnEndsBeforeItHasTooManyBytesAndIsSleptFor(t *testing.T) {
	var s slept
	turns := s.newTurns()
	for _, kb := range []int64{100, 100, 100, 1000, 1, 255, 1} {
		turns.did(kb << 10)
		s.did(kb<<10, time.Duration(kb)*time.Millisecond/100)
	}
	turns.did(0)
	s.did(0, time.Hour)
	turns.end()
	kb := func(n int64) int64 { return n << 10 }
	if want := []int64{kb(200), kb(100), kb(1000), kb(256), kb(1)}; !slices.Equal(s.turns, want) {
		t.Errorf("turns of %d bytes, want %d", s.turns, want)
	}
	want := []time.Duration{2 * time.Millisecond, time.Millisecond, 10 * time.Millisecond, 2560 * time.Microsecond, maxTurnPause}
	if !slices.Equal(s.slept, want) {
		t.Errorf("slept for %v, want %v", s.slept, want)
	}
}

// sized is a queue with ready jobs of these sizes, which tells how many are visited.
type sized struct {
	Queue
	slept  *slept
	bodies []int
	visits []int // in each call of Walk
}

func (q *sized) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (next uint64, err error) {
	q.visits = append(q.visits, 0)
	for ; from <= uint64(len(q.bodies)); from++ {
		if n--; n < 0 {
			return from, nil
		}
		r := journal.Record{ID: from, TTR: 1, Tube: "mail", State: journal.Ready, Body: make([]byte, q.bodies[from-1])}
		if err := f(&r, nil); err != nil {
			return from, err
		}
		q.visits[len(q.visits)-1]++
		q.slept.did(r.Size(), time.Microsecond)
	}
	return 0, nil
}

// walkOf is a walk of a queue, up to a job.
func walkOf(q Queue, last uint64) *walk {
	return &walk{applier: &applier{node: &Node{opts: Options{Queue: q}}}, last: last, cancel: make(chan struct{})}
}

// What clients wait for has its turn after some jobs, and after some bytes.
func TestAWalkSleepsAfterSomeJobsAndAfterSomeBytes(t *testing.T) {
	const large, most = 100_000, turnBytes / 100_000
	for _, tt := range []struct {
		what        string
		bodies      []int
		turns, most int // least number of turns, and most jobs in one
	}{
		{"small bodies", slices.Repeat([]int{10}, 10*jobsAtATime), 10, jobsAtATime},
		{"large bodies", slices.Repeat([]int{large}, 10*most), 10, most},
		{"bodies larger than a turn", slices.Repeat([]int{turnBytes + 1}, 10), 10, 1},
	} {
		fs := faultfs.New("/n")
		sw, err := snapshot.Create(fs, "/n/snapshots")
		if err != nil {
			t.Fatal(err)
		}
		s := new(slept)
		q := &sized{slept: s, bodies: tt.bodies}
		w := walkOf(q, math.MaxUint64)
		if err := w.jobs(sw, s.newTurns()); err != nil {
			t.Fatal(err)
		}
		jobs := 0
		for _, n := range q.visits {
			if jobs += n; n > jobsAtATime {
				t.Errorf("%s: %d jobs are visited at once", tt.what, n)
			}
		}
		if jobs != len(tt.bodies) {
			t.Errorf("%s: %d jobs were visited of %d", tt.what, jobs, len(tt.bodies))
		}
		if len(s.turns) < tt.turns {
			t.Errorf("%s: %d turns, want %d or more", tt.what, len(s.turns), tt.turns)
		}
		one := (&journal.Record{Tube: "mail", Body: make([]byte, tt.bodies[0])}).Size()
		if n := slices.Max(s.turns); n > int64(tt.most)*one {
			t.Errorf("%s: a turn of %d bytes, which is more than %d jobs", tt.what, n, tt.most)
		}
		if s.bytes != 0 {
			t.Errorf("%s: nothing was slept after the last %d bytes", tt.what, s.bytes)
		}
		if err := sw.Abort(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever gives the queue up waits for the call of Walk that is under way, and clients wait
// for them.
func TestAWalkThatIsGivenUpVisitsNoMoreJobs(t *testing.T) {
	sw, err := snapshot.Create(faultfs.New("/n"), "/n/snapshots")
	if err != nil {
		t.Fatal(err)
	}
	const last = 3
	s := new(slept)
	q := &visited{sized: &sized{slept: s, bodies: slices.Repeat([]int{turnBytes + 1}, jobsAtATime)}}
	w := walkOf(q, math.MaxUint64)
	given := uint64(0) // up to this job
	q.visit = func(id uint64) {
		if given = id; id == last {
			close(w.cancel)
		}
	}
	if err := w.jobs(sw, s.newTurns()); !errors.Is(err, errVoid) {
		t.Errorf("the walk has ended with %v", err)
	}
	if given != last {
		t.Errorf("the walk was shown job %d, want none behind %d", given, last)
	}
	// The job for which it was given up had to wait for the next turn.
	if !slices.Equal(q.visits, []int{1, 1}) {
		t.Errorf("%d jobs were taken in each turn, want 1 in each of 2", q.visits)
	}
	if err := sw.Abort(); err != nil {
		t.Fatal(err)
	}
}

// visited is a queue that tells of a job before it is visited.
type visited struct {
	*sized
	visit func(id uint64)
}

func (q *visited) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (next uint64, err error) {
	return q.sized.Walk(from, n, func(r *journal.Record, h *journal.Hold) error {
		q.visit(r.ID)
		return f(r, h)
	})
}

func TestAPauseBetweenTurnsEndsWhenItIsCut(t *testing.T) {
	cut := make(chan struct{})
	turns := newTurns(cut)
	done := make(chan struct{})
	go func() {
		defer close(done)
		turns.sleep(time.Hour)
	}()
	close(cut)
	select {
	case <-done:
	case <-time.After(waitTime):
		t.Error("it goes on")
	}
}

// Jobs that come into being during a walk are not its concern.
func TestAWalkEndsAlsoIfTheQueueGrowsFasterThanItGoesOn(t *testing.T) {
	sw, err := snapshot.Create(faultfs.New("/n"), "/n/snapshots")
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 3*jobsAtATime + 1
	s := new(slept)
	q := &visited{sized: &sized{slept: s, bodies: slices.Repeat([]int{10}, jobs)}}
	w := walkOf(q, jobs)
	q.visit = func(id uint64) {
		q.bodies = append(q.bodies, 10, 10)
		if id == 10*jobs {
			t.Error("it does not end")
			close(w.cancel)
		}
	}
	if err := w.jobs(sw, s.newTurns()); err != nil {
		t.Error(err)
	}
	if n := len(q.visits); n != 4 {
		t.Errorf("the queue was asked for jobs %d times, want 4", n)
	}
	if err := sw.Abort(); err != nil {
		t.Fatal(err)
	}
}
