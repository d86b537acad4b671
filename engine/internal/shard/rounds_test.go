package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/fifo"
	"trellis/engine/internal/roster"
)

// A slowLoop is what the loop of a server does, one round at a time: it does not poll
// again before it is told to.
type slowLoop struct {
	t     *testing.T
	sim   *sim
	loop  *simLoop
	most  int // steps that a round has taken
	woken int
	gone  []*simConn // whose end is complete
}

func slow(t *testing.T, s *sim) *slowLoop { return &slowLoop{t: t, sim: s, loop: s.loops[0]} }

// round pulls all that may happen until the loop polls again, and reports whether the
// loop has asked for another one.
func (l *slowLoop) round() (again bool) {
	l.loop.woken = false
	if l.loop.alarm <= l.sim.now {
		l.loop.alarm = clock.MaxTime
	}
	l.loop.Refill()
	for s := l.loop.Next(l.sim.now); s != nil; s = l.loop.Next(l.sim.now) {
		c := connOf(s)
		if s.client.Flags&isOpen == 0 {
			l.gone = append(l.gone, c)
			continue
		}
		if c.session.Resume(l.sim.now, &c.out) != Wait {
			c.waiting = false
		}
		flatten(&c.out)
		l.woken++
	}
	l.most = max(l.most, roundBudget-l.loop.Left())
	return l.loop.woken || l.loop.alarm <= l.sim.now+1
}

// rounds goes on until there is nothing left to do at this time, and returns how many
// rounds that took.
func (l *slowLoop) rounds() (n int) {
	for again := true; again; n++ {
		again = l.round()
		l.sim.now++ // what is due goes on a nanosecond later
		if n > 1e6 {
			l.t.Fatal("the loop does not come to an end")
		}
	}
	return n
}

// start executes a command without the rounds that a sim would have.
func (c *simConn) start(t *testing.T, format string, args ...any) Outcome {
	t.Helper()
	line := fmt.Sprintf(format+"\r\n", args...)
	n, ok := c.decoder.Next([]byte(line), &c.cmd)
	if !ok || n != len(line) {
		t.Fatalf("%q is no command", line)
	}
	outcome := c.session.Execute(c.sim.now, &c.cmd, &c.out)
	c.waiting = outcome == Wait
	return outcome
}

func (c *simConn) took() string {
	out := string(c.out.Buf)
	c.out.Buf = nil
	return out
}

// putMany puts n jobs with ids from first on.
func (c *simConn) putMany(t *testing.T, first, n int, format string) {
	t.Helper()
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", first+i), "%s", format)
	}
}

// Whatever clients do, no round of a loop takes much more than its budget, and all of
// it is done in the end.
func TestNoRoundOfALoopTakesMuchMoreThanItsBudget(t *testing.T) {
	const n = 3*roundBudget + 10
	for name, c := range map[string]func(t *testing.T, s *sim, l *slowLoop) (check func()){
		"a pause ends for which many wait": func(t *testing.T, s *sim, l *slowLoop) func() {
			c := s.open()
			c.expect(t, "PAUSED\r\n", "pause-tube default 1\r\n")
			c.putMany(t, 1, n, "put 0 0 9 0\r\n\r\n")
			var workers []*simConn
			for range n {
				workers = append(workers, s.open())
				workers[len(workers)-1].expect(t, "", "reserve\r\n")
			}
			s.now += clock.Second
			return func() {
				for i, w := range workers {
					if got, want := w.took(), fmt.Sprintf("RESERVED %d 0\r\n\r\n", i+1); got != want {
						t.Fatalf("worker %d got %q, want %q", i, got, want)
					}
				}
			}
		},
		"many waits end in one moment": func(t *testing.T, s *sim, l *slowLoop) func() {
			var workers []*simConn
			for range n {
				workers = append(workers, s.open())
				workers[len(workers)-1].expect(t, "", "reserve-with-timeout 1\r\n")
			}
			s.now += clock.Second
			return func() {
				for _, w := range workers {
					if got := w.took(); got != "TIMED_OUT\r\n" {
						t.Fatalf("a worker got %q", got)
					}
				}
			}
		},
		"many jobs expire in one moment": func(t *testing.T, s *sim, l *slowLoop) func() {
			c := s.open()
			c.expect(t, "TUBE_SET\r\n", "set-tube default expire=1\r\n")
			c.putMany(t, 1, n, "put 0 0 9 0\r\n\r\n")
			s.now += clock.Second
			return func() {
				if x := s.engine.Snapshot(s.now); x.Ready != 0 || x.ExpiredDeleted != n {
					t.Fatalf("%d are ready, %d of %d have expired", x.Ready, x.ExpiredDeleted, n)
				}
			}
		},
		"many delays end in one moment": func(t *testing.T, s *sim, l *slowLoop) func() {
			s.open().putMany(t, 1, n, "put 0 1 9 0\r\n\r\n")
			s.now += clock.Second
			return func() {
				if got := s.engine.Snapshot(s.now).Ready; got != n {
					t.Fatalf("%d of %d jobs are ready", got, n)
				}
			}
		},
		"a client with many reservations closes": func(t *testing.T, s *sim, l *slowLoop) func() {
			c := s.open()
			for i := range n {
				c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\n", i+1, i+1), "put 0 0 9 0\r\n\r\nreserve\r\n")
			}
			l.loop.Refill()
			if c.session.Close(s.now) || s.engine.Snapshot(s.now).Reserved == 0 {
				t.Fatal("all is given back at once")
			}
			return func() {
				if got := s.engine.Snapshot(s.now); got.Ready != n || got.Reserved != 0 {
					t.Fatalf("%d of %d jobs are ready", got.Ready, n)
				}
				if !slices.Equal(l.gone, []*simConn{c}) {
					t.Fatalf("%d sessions are told to be closed, want the one", len(l.gone))
				}
			}
		},
		"many buried jobs are kicked": func(t *testing.T, s *sim, l *slowLoop) func() {
			c := s.open()
			for i := range n {
				c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\nBURIED\r\n", i+1, i+1), "put 0 0 9 0\r\n\r\nreserve\r\nbury %d 0\r\n", i+1)
			}
			l.loop.Refill()
			if c.start(t, "kick 1000000") != Wait {
				t.Fatal("all is kicked at once")
			}
			return func() {
				if got, want := c.took(), fmt.Sprintf("KICKED %d\r\n", n); got != want {
					t.Fatalf("%q, want %q", got, want)
				}
			}
		},
		"many clients kick": func(t *testing.T, s *sim, l *slowLoop) func() {
			const each = 4 * kickSlice
			producer := s.open()
			producer.putMany(t, 1, 16*each, "put 0 9 9 0\r\n\r\n")
			var kickers []*simConn
			for range 16 {
				c := s.open()
				l.loop.Refill()
				l.loop.allow(1)
				if c.start(t, "kick %d", each) != Wait {
					t.Fatal("a kick does not mind that the round is over")
				}
				kickers = append(kickers, c)
			}
			return func() {
				for _, c := range kickers {
					if got, want := c.took(), fmt.Sprintf("KICKED %d\r\n", each); got != want {
						t.Fatalf("%q, want %q", got, want)
					}
				}
			}
		},
		"a long list of tubes": func(t *testing.T, s *sim, l *slowLoop) func() {
			c := s.open()
			want := "---\n- default\n"
			for i := range n {
				c.expect(t, fmt.Sprintf("USING t%d\r\nINSERTED %d\r\n", i, i+1), "use t%d\r\nput 0 0 9 0\r\n\r\n", i)
				want += fmt.Sprintf("- t%d\n", i)
			}
			l.loop.Refill()
			if c.start(t, "list-tubes") != Wait {
				t.Fatal("the list comes at once")
			}
			return func() {
				if got, want := c.took(), fmt.Sprintf("OK %d\r\n%s\r\n", len(want), want); got != want {
					t.Fatalf("%d bytes, want %d", len(got), len(want))
				}
			}
		},
		"a client with a long watch list closes": func(t *testing.T, s *sim, l *slowLoop) func() {
			c := s.open()
			for i := range n {
				c.expect(t, fmt.Sprintf("WATCHING %d\r\n", i+2), "watch t%d\r\n", i)
			}
			l.loop.Refill()
			if c.session.Close(s.now) {
				t.Fatal("it leaves all tubes at once")
			}
			return func() {
				if got := s.engine.Snapshot(s.now); got.Tubes != 1 {
					t.Fatalf("%d tubes are left", got.Tubes)
				}
				if !slices.Equal(l.gone, []*simConn{c}) {
					t.Fatalf("%d sessions are told to be closed, want the one", len(l.gone))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(100, 1)
			l := slow(t, s)
			check := c(t, s, l)
			rounds := l.rounds()
			check()
			// The last step that is begun within the budget may be a long one.
			if most := roundBudget + maxMoves + wakeCost; l.most > most || rounds < 2 {
				t.Errorf("%d rounds of up to %d steps, want several of at most %d", rounds, l.most, most)
			}
		})
	}
}

// A list that is being sent is that of the moment when it was asked for, whatever
// becomes of the tubes.
func TestAListOfTubesThatIsBeingSentDoesNotChange(t *testing.T) {
	const n = 5 * roster.PageLen
	s := newSim(100, 1)
	lister, other := s.open(), s.open()
	want := "---\n- default\n"
	name := func(i int) string { return fmt.Sprintf("t%d%s", i, strings.Repeat("x", 190)) }
	for i := range n {
		other.expect(t, fmt.Sprintf("WATCHING %d\r\n", i+2), "watch %s\r\n", name(i))
		want += "- " + name(i) + "\n"
	}
	if lister.start(t, "list-tubes") != Wait {
		t.Fatal("the list comes at once")
	}
	lister.held = true // its client takes nothing
	for i := range n {
		if i%3 == 0 {
			other.ask(t, "ignore %s\r\nwatch new%d\r\n", name(i), i)
		}
		if i%100 == 0 {
			other.ask(t, "list-tubes\r\n")
		}
	}
	parts := 1
	for outcome := Wait; outcome == Wait; parts++ {
		if part := len(lister.out.Buf); part > parts*(listPart+300) {
			t.Fatalf("%d parts have %d bytes", parts, part)
		}
		s.loops[0].Refill()
		outcome = lister.session.Resume(s.now, &lister.out)
	}
	if got, want := lister.took(), fmt.Sprintf("OK %d\r\n%s\r\n", len(want), want); got != want {
		t.Errorf("the list has changed while it was sent")
	}
	if parts < 3 {
		t.Errorf("it came in %d parts", parts)
	}
}

// What a closed client held becomes ready in the order in which it had reserved it,
// whatever the tubes, and however many rounds that takes.
func TestReservationsOfAClosedClientComeBackInTheirOrder(t *testing.T) {
	const n = roundBudget
	s := newSim(100, 1)
	c := s.open()
	var want []string
	for i := range n {
		c.expect(t, fmt.Sprintf("USING t%d\r\nINSERTED %d\r\n", i%7, i+1), "use t%d\r\nput 0 0 %d 0\r\n\r\n", i%7, n-i+1000)
	}
	for i := range 7 {
		c.ask(t, "watch t%d\r\n", i)
	}
	for i := range n {
		id := (i*5)%n + 1
		c.expect(t, fmt.Sprintf("RESERVED %d 0\r\n\r\n", id), "reserve-job %d\r\n", id)
		want = append(want, fmt.Sprintf("RESERVED %d 0\r\n\r\n", id))
	}
	// Workers that wait get them as they come.
	var workers []*simConn
	for range n {
		w := s.open()
		for i := range 7 {
			w.ask(t, "watch t%d\r\n", i)
		}
		w.expect(t, "", "reserve\r\n")
		workers = append(workers, w)
	}
	l := slow(t, s)
	l.loop.Refill()
	c.session.Close(s.now)
	if rounds := l.rounds(); rounds < 3 {
		t.Errorf("it took %d rounds", rounds)
	}
	for i, w := range workers {
		if got := w.took(); got != want[i] {
			t.Fatalf("worker %d got %q, want %q", i, got, want[i])
		}
	}
}

// What is gathered of a closed client's reservations is not copied while it grows.
func TestRoomForAllReservationsOfAClosedClientIsMadeAtOnce(t *testing.T) {
	const n = 2 * giveBackSlice
	s := newSim(100, 1)
	c := s.open()
	for i := range 16 * n {
		c.expect(t, fmt.Sprintf("USING t%d\r\nINSERTED %d\r\nRESERVED %d 0\r\n\r\n", i%16, i+1, i+1),
			"use t%d\r\nput 0 0 9 0\r\n\r\nreserve-job %d\r\n", i%16, i+1)
	}
	l := slow(t, s)
	l.loop.allow(1)
	c.session.Close(s.now)
	v := c.session.closingTask()
	if len(v.jobs) == 0 || len(v.jobs) >= 16*n || cap(v.jobs) < 16*n {
		t.Errorf("there is room for %d reservations, %d are there", cap(v.jobs), len(v.jobs))
	}
	l.rounds()
	if got := s.engine.Snapshot(s.now); got.Ready != 16*n || got.Reserved != 0 {
		t.Errorf("%d jobs are ready and %d reserved", got.Ready, got.Reserved)
	}
}

// While a closed client's reservations are gathered, others may delete some of them.
func TestWhatAClosedClientHeldComesBackAlthoughOthersDeleteSomeOfIt(t *testing.T) {
	for _, command := range []string{"flush-tube gone", "delete-tube-jobs gone reserved 1000"} {
		t.Run(command, func(t *testing.T) {
			const gone, n = giveBackSlice / 2, 4 * giveBackSlice
			s := newSim(100, 1)
			c, other := s.open(), s.open()
			stays := "stays" // in the same shard
			for s.engine.shardFor([]byte(stays)) != s.engine.shardFor([]byte("gone")) {
				stays += "s"
			}
			for i := range n {
				tube, ttr := "gone", 10 // whose times to run end first, so that they stand first
				if i >= gone {
					tube, ttr = stays, 100
				}
				c.expect(t, fmt.Sprintf("USING %s\r\nINSERTED %d\r\nRESERVED %d 0\r\n\r\n", tube, i+1, i+1),
					"use %s\r\nput 0 0 %d 0\r\n\r\nreserve-job %d\r\n", tube, ttr, i+1)
			}
			l := slow(t, s)
			l.loop.allow(1)
			c.session.Close(s.now)
			l.loop.Refill()
			other.start(t, "%s", command)
			if got := other.took(); !strings.HasSuffix(got, fmt.Sprintf(" %d\r\n", gone)) {
				t.Fatalf("%s: %q", command, got)
			}
			l.rounds()
			if got := s.engine.Snapshot(s.now); got.Ready != n-gone || got.Reserved != 0 {
				t.Errorf("%d jobs are ready and %d reserved, want %d and 0", got.Ready, got.Reserved, n-gone)
			}
			for i := gone; i < n; i++ {
				other.expect(t, "DELETED\r\n", "delete %d\r\n", i+1)
			}
		})
	}
}

func TestAClientThatClosesInTheMiddleOfAKickLeavesTheRestAsItIs(t *testing.T) {
	const n = 2 * roundBudget
	s := newSim(100, 1)
	producer, kicker := s.open(), s.open()
	producer.putMany(t, 1, n, "put 0 100 9 0\r\n\r\n")
	if kicker.start(t, "kick 1000000") != Wait {
		t.Fatal("all is kicked at once")
	}
	kicked := s.engine.Snapshot(s.now).Ready
	kicker.session.Close(s.now)
	slow(t, s).rounds()
	if got := s.engine.Snapshot(s.now); got.Delayed != n-kicked || kicked == 0 {
		t.Errorf("%d are delayed after %d were kicked, want %d", got.Delayed, kicked, n-kicked)
	}
}

// A client that has nothing to give back leaves at once, also at the end of a round, so that
// its connection need not be kept for the next one.
func TestAnIdleClientLeavesAtOnceAlthoughTheRoundIsOver(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	l := slow(t, s)
	l.loop.Refill()
	l.loop.Spend(roundBudget)
	if !c.session.Close(s.now) {
		t.Error("its end is left to the next round")
	}
	l.rounds()
	if len(l.gone) > 0 {
		t.Error("it is told to be closed a second time")
	}
}

// dueInAllShards makes n delayed jobs in each shard that are due in the same moment, which
// comes, and returns a tube of each.
func dueInAllShards(t *testing.T, s *sim, n int) (tubes []string) {
	c := s.open()
	found := map[*shard]bool{}
	for i := 0; len(tubes) < len(s.engine.shards); i++ {
		name := fmt.Sprintf("t%d", i)
		sh := s.engine.shardFor([]byte(name))
		if found[sh] {
			continue
		}
		found[sh] = true
		tubes = append(tubes, name)
		c.expect(t, "USING "+name+"\r\n", "use %s\r\n", name)
		for range n {
			c.ask(t, "put 0 1 9 0\r\n\r\n")
		}
	}
	s.now += clock.Second
	return tubes
}

// Sessions that can go on do not wait until all that is due has been dealt with.
func TestDeadlinesLeaveAPartOfEveryRoundToSessionsThatCanGoOn(t *testing.T) {
	s := newSim(100, 1)
	lister := s.open()
	dueInAllShards(t, s, 2*maxMoves)
	l := slow(t, s)
	l.loop.allow(1)
	if lister.start(t, "list-tubes") != Wait {
		t.Fatal("a list does not mind that the round is over")
	}
	again := l.round()
	if got := lister.took(); !strings.HasSuffix(got, "\r\n") || lister.waiting {
		t.Errorf("after a round the list is %q", got)
	}
	if !again {
		t.Error("nothing is due any more by then")
	}
	l.rounds()
	if got := s.engine.Snapshot(s.now); got.Delayed != 0 {
		t.Errorf("%d jobs are still delayed", got.Delayed)
	}
}

// What is due in shards is counted to the command that comes upon it, and when the
// round is over it leaves the bulk to the next one.
func TestWhatACommandFindsDueIsTakenOffTheBudget(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	tubes := dueInAllShards(t, s, 2*maxMoves)
	for _, name := range tubes {
		c.session.Execute(s.now-1, &codec.Command{Op: codec.OpWatch, Weight: 1, Tube: []byte(name)}, &c.out) // not due yet
	}
	c.took()
	s.loops[0].Refill()
	if c.start(t, "reserve-with-timeout 0") != Done || !strings.HasPrefix(c.took(), "RESERVED") {
		t.Fatal("no job is ready")
	}
	moved := s.engine.Snapshot(s.now-1).Ready + 1
	if spent := roundBudget - s.loops[0].Left(); spent < moved || spent > roundBudget+maxMoves+len(tubes)*spentMoves+wakeCost {
		t.Errorf("%d jobs became ready in a command that took %d steps", moved, spent)
	}
}

func TestToSearchALongWatchListIsTakenOffTheBudget(t *testing.T) {
	const n = 1000
	s := newSim(100, 1)
	c := s.open()
	for i := range n {
		c.expect(t, fmt.Sprintf("WATCHING %d\r\n", i+2), "watch t%d\r\n", i)
	}
	for _, line := range []string{"watch t999", "watch new", "ignore unknown", "ignore t998", "reserve-with-timeout 0"} {
		s.loops[0].Refill()
		if c.start(t, "%s", line) != Done {
			t.Fatal(line)
		}
		if spent := roundBudget - s.loops[0].Left(); spent < n/watchesPerCost {
			t.Errorf("%s took %d steps", line, spent)
		}
	}
}

// A journal that is filling has room for so many more records.
type filling struct {
	*cramped
	left int
}

func (f *filling) Update(r *journal.Record) (journal.Pos, error) {
	f.left--
	f.room = f.left >= 0
	return f.cramped.Update(r)
}

func (f *filling) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	f.left--
	f.room = f.left >= 0
	return f.cramped.Delete(id, former)
}

func (f *filling) Replace(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	f.left--
	f.room = f.left >= 0
	return f.cramped.Replace(r, former)
}

func TestWhatIsDoneBeforeTheJournalIsFullIsTakenOffTheBudget(t *testing.T) {
	const n, done = 100, 60
	for _, command := range []string{"kick 100", "flush-tube default", "move-tube default delayed other 100"} {
		s := newSim(100, 1)
		f := &filling{cramped: &cramped{file: newFile(nil), room: true}, left: n * n}
		s.engine.log.Journal = f
		c := s.open()
		c.putMany(t, 1, n, "put 0 9 9 0\r\n\r\n")
		f.left = done
		s.loops[0].Refill()
		if c.start(t, "%s", command) != Wait {
			t.Fatalf("%s does not wait: %q", command, c.took())
		}
		if spent := roundBudget - s.loops[0].Left(); spent < done {
			t.Errorf("%s took %d steps for %d jobs", command, spent, done)
		}
	}
}

func TestCommandsForAJobWithKeysAreTakenOffTheBudgetForWhatTheyTake(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	for _, x := range []struct {
		command, reply string
		steps          int
	}{
		{"put 0 0 9 0 idp:k con:k\r\n", "INSERTED 1\r\n", keyedCost},
		{"reserve", "RESERVED 1 0\r\n\r\n", 0},
		{"release 1 0 0", "RELEASED\r\n", keyedCost - 1},
		{"move-job 1 other", "MOVED\r\n", keyedMoveCost},
		{"delete 1", "DELETED\r\n", keyedCost - 1},
	} {
		s.loops[0].Refill()
		if c.start(t, "%s", x.command) != Done {
			t.Fatalf("%s waits", x.command)
		}
		if got := c.took(); got != x.reply {
			t.Errorf("%s: %q, want %q", x.command, got, x.reply)
		}
		if spent := roundBudget - s.loops[0].Left(); spent < x.steps {
			t.Errorf("%s took %d steps, want at least %d", x.command, spent, x.steps)
		}
	}
}

func TestAPeekAtReservedJobsIsTakenOffTheBudgetToItsLastSlice(t *testing.T) {
	const n = scanSlice / 2
	s := newSim(100, 1)
	c := s.open()
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\n", i+1, i+1), "put 0 0 9 0\r\n\r\nreserve\r\n")
	}
	s.loops[0].Refill()
	if c.start(t, "peek-tube default reserved") != Done || c.took() != "FOUND 1 0\r\n\r\n" {
		t.Error("the first job was not found at once")
	}
	if spent := roundBudget - s.loops[0].Left(); spent < peekCandidates+scanCost {
		t.Errorf("it took %d steps", spent)
	}
}

// A group whose jobs come in no order has them in a heap. To make or drop room there may have
// the loop work for the garbage collector.
func TestRoomForTheJobsOfAGroupIsTakenOffTheBudget(t *testing.T) {
	const n = 1000
	s := newSim(100, 1)
	c := s.open()
	l := s.loops[0]
	spent := func(format string, args ...any) (steps int) {
		l.Refill()
		c.start(t, format, args...)
		c.took()
		return roundBudget - l.Left()
	}
	made, dropped := 0, 0
	for i := range n {
		made += spent("put %d 0 9 0 con:k\r\n", i*7919%n) - keyedCost
	}
	for i := range n {
		dropped += spent("delete %d", n-i) - keyedCost + 1
	}
	if made < 1024 || dropped < 1024/2 || made > 8*n || dropped > 8*n {
		t.Errorf("%d jobs came and went for %d and %d steps", n, made, dropped)
	}
}

func TestStatsAreTakenOffTheBudgetForWhatTheyTake(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	s.loops[0].Refill()
	if c.start(t, "stats") != Done || s.loops[0].Left() > roundBudget-statsCost {
		t.Errorf("stats took %d steps", roundBudget-s.loops[0].Left())
	}
}

func TestMemoryIsGivenBackOnceInARound(t *testing.T) {
	for arena.Discarded() {
		arena.GiveBack(1 << 30)
	}
	s := newSim(1<<20, 1)
	c := s.open()
	const n = 3 * arena.Slice >> 20
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 0 9 %d\r\n%s\r\n", 1<<20, strings.Repeat("x", 1<<20))
	}
	for i := range n {
		if c.start(t, "delete %d", i+1) != Done {
			t.Fatal("no delete")
		}
	}
	l := s.loops[0]
	l.Refill()
	for range n { // once for each connection that a poll has reported
		l.woken = false
		l.Next(s.now)
	}
	if !arena.Discarded() || !l.woken {
		t.Errorf("all is given back between two polls")
	}
	if rounds := slow(t, s).rounds(); rounds != 2 || arena.Discarded() {
		t.Errorf("the rest took %d rounds", rounds)
	}
}

// A session that waits on because the job that it was to get has gone has waited all the
// while.
func TestAWaitGoesOnWhenTheJobThatEndedItIsGone(t *testing.T) {
	for _, reserve := range []string{"reserve", "reserve-batch 2 100"} {
		s := newSim(100, 2)
		waiting, other := s.open(), s.open()
		waiting.start(t, "%s", reserve)
		s.now += 3 * clock.Second
		put := codec.Command{Op: codec.OpPut, CountAs: codec.OpPut, TTR: 9, Size: 1, Body: []byte("x"), Terminated: true}
		other.session.Execute(s.now, &put, &other.out)
		if other.start(t, "flush-tube default") != Done || other.took() != "INSERTED 1\r\nFLUSHED 1\r\n" {
			t.Fatal("the job is not gone")
		}
		s.now += clock.Second
		s.Settle()
		if got := waiting.session.WaitingSince(); !waiting.waiting || got != 0 {
			t.Errorf("%s: it waits: %v, since %d", reserve, waiting.waiting, got)
		}
		if got := other.say("stats-conn 1"); !strings.Contains(got, "\nwaiting-time: 4\n") {
			t.Errorf("%s: got %q", reserve, got)
		}
	}
}

func TestALoopKeepsMemoryForFewUnfinishedPuts(t *testing.T) {
	const n = 3 * fifo.MaxCap
	s := newSim(100, 1)
	for range n {
		s.open().expect(t, "", "put 0 0 9 1\r\nx")
	}
	for i, c := range s.conns {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "\r\n")
	}
	if got := len(s.loops[0].by().puts); got != fifo.MaxCap {
		t.Errorf("the loop keeps memory for %d puts", got)
	}
}
