package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/settings"
)

// tubeIn is a name of a tube that lives in that shard.
func (e *Engine) tubeIn(shard int, prefix string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(prefix, i); e.shardFor([]byte(name)).number == shard {
			return name
		}
	}
}

// check reports whether the engine is in order.
func (s *sim) check(t *testing.T) {
	t.Helper()
	for _, err := range (&census{engine: s.engine, sessions: s.sessions()}).run() {
		t.Error(err)
	}
}

func TestThereAreAtMostSoManySettings(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	room := settings.Max
	if !proof {
		room = 1000
		for range settings.Max - room {
			s.engine.settings.MakeRoom()
		}
	}
	for i := range room {
		c.expect(t, "DLQ_SET\r\n", "set-dlq t%d 7 dead\r\n", i)
	}
	c.expect(t, "OUT_OF_MEMORY\r\n", "set-dlq more 1 dead\r\n")
	c.expect(t, "DLQ_SET\r\n", "set-dlq more 0 dead\r\n")
	c.expect(t, "DLQ_SET\r\n", "set-dlq t5 8 graves\r\n")
	c.expect(t, "DLQ_SET\r\nDLQ_SET\r\n", "set-dlq t6 0 dead\r\nset-dlq more 1 dead\r\n")
	c.expect(t, "OUT_OF_MEMORY\r\n", "set-dlq t6 1 dead\r\n")
	if n := s.engine.Snapshot(s.now).Tubes; n != 1 {
		t.Errorf("%d tubes", n)
	}
}

// The list is that of the moment when it began, however long it takes.
func TestALongListOfSettingsLetsOthersHaveTheirTurns(t *testing.T) {
	const many = 10_000
	s := newSim(100, 1)
	c := s.open()
	for i := range many {
		c.expect(t, "DLQ_SET\r\n", "set-dlq t%d 7 dead\r\n", i)
	}
	l := slow(t, s)
	l.round()
	if c.start(t, "list-dlq") != Wait {
		t.Fatal("a list of all settings does not mind that the round is over")
	}
	by := Tx{shared: s.engine.Shards}
	for _, x := range []journal.Setting{journal.DeadLetters("t7", 0, ""), journal.DeadLetters("t8", 9, "dead")} {
		sh := s.engine.shardFor([]byte(x.Tube))
		sh.lock(&by, s.now)
		if err := sh.set(&x, &reply.Output{}); err != nil {
			t.Fatal(err)
		}
		sh.unlock(&by)
	}
	if n := l.rounds(); n < 3 || l.most > roundBudget+roundBudget/4 {
		t.Errorf("%d rounds, of up to %d steps", n, l.most)
	}
	list := c.took()
	var size int
	head, list, _ := strings.Cut(list, "\r\n")
	if _, err := fmt.Sscanf(head, "OK %d", &size); err != nil || len(list) != size+2 {
		t.Fatalf("%q, with %d bytes behind it", head, len(list))
	}
	if n := strings.Count(list, "- tube: "); n != many || !strings.Contains(list, "\"t7\"\n  max-attempts: 7\n") || strings.Contains(list, "max-attempts: 9") {
		t.Errorf("%d settings", n)
	}
}

// newJudged is a sim in whose default tube dead letters go to the tube dead after n
// attempts, with job 1 reserved by the client, for a second.
func newJudged(t *testing.T, n int, limits Limits) (*sim, *file, *simConn) {
	s := newLimitedSim(100_000, 1, limits)
	f := newFile(nil)
	s.engine.log.Journal = f
	c := s.open()
	c.expect(t, "DLQ_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\na\r\n", "set-dlq default %d dead\r\nput 0 0 1 1\r\na\r\nreserve\r\n", n)
	return s, f, c
}

func TestWithoutRoomForADeadLetterTheReleaseIsRefusedAndTheTimeOutIsNot(t *testing.T) {
	for name, x := range map[string]struct {
		limits Limits
		take   func(f *file, s *sim)
		give   func(f *file, s *sim)
	}{
		"a full disk":                   {Limits{}, func(f *file, _ *sim) { f.err = journal.ErrNoSpace }, func(f *file, _ *sim) { f.err = nil }},
		"a disk that is too slow":       {Limits{}, func(f *file, _ *sim) { f.err = journal.ErrBusy }, func(f *file, _ *sim) { f.err = nil }},
		"as many tubes as there may be": {Limits{Tubes: 1}, func(*file, *sim) {}, func(_ *file, s *sim) { s.engine.cfg.Limits.Tubes = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, c := newJudged(t, 1, x.limits)
			x.take(f, s)
			before := s.engine.dump()
			c.expect(t, "OUT_OF_MEMORY\r\n", "release 1 5 7\r\n")
			if after := s.engine.dump(); after != before {
				t.Errorf("it has changed\n%sto\n%s", before, after)
			}
			c.expect(t, "TOUCHED\r\n", "touch 1\r\n")
			s.Wait(time.Second)
			if n := s.engine.Snapshot(s.now); n.Ready != 1 || n.Timeouts != 1 || n.DeadLetters != 0 {
				t.Fatalf("after the time-out: %+v", n)
			}
			c.expect(t, "RESERVED 1 1\r\na\r\n", "reserve\r\n")
			x.give(f, s)
			s.Wait(time.Second)
			if n := s.engine.Snapshot(s.now); n.Buried != 1 || n.Timeouts != 2 || n.DeadLetters != 1 {
				t.Fatalf("after the next one: %+v", n)
			}
			c.expect(t, "FOUND 1 1\r\na\r\n", "peek-tube dead buried\r\n")
			s.check(t)
		})
	}
}

func TestATimeOutWithoutRoomForItsDeadLetterHandsOverTheMostUrgentJob(t *testing.T) {
	s := newSim(100_000, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	a, b := s.open(), s.open()
	a.expect(t, "INSERTED 1\r\nRESERVED 1 1\r\na\r\nINSERTED 2\r\nDLQ_SET\r\nPAUSED\r\n",
		"put 1 0 1 1\r\na\r\nreserve\r\nput 2 0 9 1\r\nb\r\nset-dlq default 1 default\r\npause-tube default 2\r\n")
	b.expect(t, "", "reserve\r\n")
	f.err = journal.ErrNoSpace
	s.now += 3 * clock.Second // the time to run has ended, and then the pause: nobody has looked yet
	a.expect(t, "FOUND 2 1\r\nb\r\n", "peek-ready\r\n")
	b.expect(t, "RESERVED 1 1\r\na\r\n", "")
	s.check(t)
}

func TestASettingThatCannotBeRecordedIsNotMade(t *testing.T) {
	s, f, c := newJudged(t, 1, Limits{})
	f.err = journal.ErrNoSpace
	c.expect(t, "OUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n", "set-dlq new 1 dead\r\nset-dlq default 5 other\r\nset-dlq default 0 other\r\n")
	f.err = journal.ErrFailed
	c.expect(t, "INTERNAL_ERROR\r\n", "set-dlq new 1 dead\r\n")
	c.expect(t, "OK 60\r\n---\n- tube: \"default\"\n  max-attempts: 1\n  dead-tube: \"dead\"\n\r\n", "list-dlq\r\n")
	g := &s.engine.settings
	for range settings.Max - g.Size() {
		g.MakeRoom()
	}
	if g.Cancel(); !g.MakeRoom() {
		t.Error("a place is reserved for a setting that is not made")
	}
}

func TestDeadLettersAndSettingsWaitForRoomInTheJournal(t *testing.T) {
	s, f, c := newCramped(t)
	f.room = true
	c.expect(t, "DLQ_SET\r\n", "set-dlq default 1 dead\r\n")
	other := s.open()
	f.room = false
	c.expect(t, "", "release 2 5 0\r\n")
	other.expect(t, "", "set-dlq t 3 u\r\n")
	if !c.waiting || !other.waiting {
		t.Fatal("they do not wait")
	}
	f.room = true
	s.engine.Room()
	s.Settle()
	if got := c.took() + other.took(); got != "RELEASED\r\nDLQ_SET\r\n" {
		t.Fatalf("answered %q", got)
	}
	if x := f.jobs[2]; x.record.Tube != "dead" || x.record.State != journal.Buried || f.settings["t"] != journal.DeadLetters("t", 3, "u") {
		t.Errorf("on record is %+v, and %v", x.record, f.settings)
	}
	s.check(t)
}

func TestAttemptsAreOnRecordWhereASettingIsInForce(t *testing.T) {
	for _, set := range []bool{true, false} {
		t.Run(fmt.Sprintf("set %v", set), func(t *testing.T) {
			s, f, c := newJudged(t, 9, Limits{})
			if !set {
				c.expect(t, "DLQ_SET\r\n", "set-dlq default 0 x\r\n")
			}
			before := f.pos
			s.Wait(time.Second)
			if recorded := f.pos > before; recorded != set {
				t.Fatalf("the time-out is on record: %v, want %v", recorded, set)
			}
			c.expect(t, "RESERVED 1 1\r\na\r\nRELEASED\r\nRESERVED 1 1\r\na\r\nBURIED\r\nKICKED 1\r\n", "reserve\r\nrelease 1 0 0\r\nreserve\r\nbury 1 0\r\nkick 1\r\n")
			c.expect(t, "RESERVED 1 1\r\na\r\nRELEASED\r\nRESERVED 1 1\r\na\r\n", "reserve\r\nrelease 1 0 0\r\nreserve\r\n")
			s.Wait(time.Second)
			want := uint32(1)
			if set {
				want = 2
			}
			if r := f.jobs[1].record; r.Attempts != want || r.Kicks != 1 {
				t.Fatalf("on record is %+v", r)
			}
			// It is recorded anew with its attempts, which takes more bytes, and deleted.
			if err := s.engine.Migrate(1, journal.Place{Segment: f.jobs[1].segment}, nil); err != nil {
				t.Fatal(err)
			}
			if f.jobs[1].full.Attempts != 2 {
				t.Errorf("recorded anew it is %+v", f.jobs[1].full)
			}
			c.expect(t, "DELETED\r\n", "delete 1\r\n") // the file compares the size
		})
	}
}

// A time-out may come whoever holds locks, also that of the dead tube's shard.
func TestADeadLetterByTimeOutWaitsForALockThatSomebodyHas(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	e := s.engine
	low, high := e.tubeIn(0, "low"), e.tubeIn(len(e.shards)-1, "high")
	c.expect(t, "DLQ_SET\r\n", "set-dlq %s 1 %s\r\n", high, low)
	c.expect(t, "USING "+high+"\r\nINSERTED 1\r\nRESERVED 1 1\r\na\r\n", "use %s\r\nput 0 0 1 1\r\na\r\nreserve-job 1\r\n", high)
	from, to := e.shards[len(e.shards)-1], e.shards[0]
	by := Tx{shared: s.engine.Shards}
	now := s.now + clock.Second
	look := func() state {
		now++ // what is left of a lock's work comes a nanosecond later
		from.lock(&by, now)
		defer from.unlock(&by)
		p := e.ids.Get(1)
		if p.Shard() != from.number {
			return to.job(p.Ref()).state
		}
		return from.job(p.Ref()).state
	}
	to.mu.Lock()
	if st := look(); st != reserved {
		t.Errorf("the job is %v", st)
	}
	to.mu.Unlock()
	if st := look(); st != buried {
		t.Errorf("when the lock is free, the job is %v", st)
	}
	if by.held != 0 || to.by != nil {
		t.Error("a lock is held still")
	}
	// Who has the lock need not wait for himself.
	s.now = now
	c.expect(t, "KICKED 1\r\n", "kick-tube %s 1\r\n", low)
	c.expect(t, "MOVED\r\nRESERVED 1 1\r\na\r\n", "move-job 1 %s\r\nreserve-job 1\r\n", high)
	s.now += clock.Second
	c.expect(t, "MOVED\r\nFOUND 1 1\r\na\r\n", "move-job 1 %s\r\npeek-tube %s buried\r\n", low, low)
	s.check(t)
}

// A time-out takes the lock of the dead tube's shard without telling it the time: what would be
// reserved there would time out too early.
func TestADeadLetterByTimeOutHandsOverNothingInTheDeadTube(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	e := s.engine
	low, high := e.tubeIn(0, "low"), e.tubeIn(len(e.shards)-1, "high")
	c.expect(t, "DLQ_SET\r\n", "set-dlq %s 1 %s\r\n", low, high)
	c.expect(t, "USING "+low+"\r\nINSERTED 1\r\nRESERVED 1 1\r\na\r\n", "use %s\r\nput 0 0 5 1\r\na\r\nreserve-job 1\r\n", low)
	for range 2 {
		s.open().expect(t, "WATCHING 2\r\n", "watch %s\r\nreserve\r\n", high)
	}
	to := e.shards[len(e.shards)-1]
	to.counters = arena.Slab[counters]{} // so that the job stays ready, although one more waits for it
	c.expect(t, "USING "+high+"\r\nINSERTED 2\r\n", "use %s\r\nput 0 0 1 1\r\nb\r\n", high)
	to.counters = arena.NewSlab[counters]()
	by := Tx{shared: s.engine.Shards}
	now := s.now + 5*clock.Second
	e.shards[0].lock(&by, now)
	e.shards[0].unlock(&by)
	if p := e.ids.Get(1); p.Shard() != to.number {
		t.Error("the job of the time-out is no dead letter")
	}
	if _, j := to.find(2); j.state == reserved && j.at() <= now {
		t.Errorf("the other is reserved until %v, and it is %v", j.at(), now)
	}
}

// Bodies are copied under a lock, so that few large ones are buried under one.
func TestWhatTimeOutsBuryUnderOneLockIsBounded(t *testing.T) {
	const jobs, size = 60, 60_000
	s := newSim(size, 1)
	c := s.open()
	e := s.engine
	from, to := e.tubeIn(1, "from"), e.tubeIn(2, "to")
	c.expect(t, "DLQ_SET\r\nUSING "+from+"\r\n", "set-dlq %s 1 %s\r\nuse %s\r\n", from, to, from)
	body := strings.Repeat("x", size)
	for id := range jobs {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", id+1), "put 0 0 1 %d\r\n%s\r\n", size, body)
		c.ask(t, "reserve-job %d\r\n", id+1)
	}
	sh := e.shards[1]
	by := Tx{shared: s.engine.Shards}
	dead, locks := uint64(0), 0
	for ; dead < jobs; locks++ {
		sh.lock(&by, s.now+clock.Second+clock.Time(locks))
		now := e.shards[2].totals.deadLetters
		sh.unlock(&by)
		if n := (now - dead) * size; n > maxMoves*deadMoveBytes+size {
			t.Fatalf("%d bytes were copied under a lock", n)
		}
		if dead = now; locks > jobs {
			t.Fatalf("%d jobs are buried", dead)
		}
	}
	if locks < 3 {
		t.Errorf("all are buried under %d locks", locks)
	}
	s.now += clock.Second
	s.Wait(0)
	s.check(t)
}

func TestAStockEngineKeepsSettingsAndDoesNotGoByThem(t *testing.T) {
	s := newSim(100, 1)
	s.engine.cfg.Stock = true
	f := newFile(nil)
	s.engine.log.Journal = f
	follower := s.engine.Follow(0)
	want := journal.DeadLetters("default", 1, "dead")
	if err := follower.Setting(&want); err != nil {
		t.Fatal(err)
	}
	follower.Serve(1, 0)
	c := s.open()
	c.expect(t, "INSERTED 1\r\nRESERVED 1 1\r\na\r\nRELEASED\r\nRESERVED 1 1\r\na\r\n", "put 0 0 1 1\r\na\r\nreserve\r\nrelease 1 0 0\r\nreserve\r\n")
	before := f.pos
	s.Wait(time.Second)
	if n := s.engine.Snapshot(s.now); n.Ready != 1 || n.Buried != 0 || n.Timeouts != 1 || f.pos != before {
		t.Errorf("%+v, and %d is on record behind %d", n, f.pos, before)
	}
	kept := 0
	if err := s.engine.Settings(func(x *journal.Setting) error {
		if kept++; *x != want {
			t.Errorf("kept is %+v", x)
		}
		return nil
	}); err != nil || kept != 1 {
		t.Errorf("%d settings, %v", kept, err)
	}
}

func TestTheDigestIncludesSettings(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	digest := func() journal.Digest { return s.engine.digestAt(t, clock.MaxTime) }
	seen := map[journal.Digest]string{digest(): "none"}
	for _, set := range []string{"t 1 d", "t 2 d", "t 2 e", "t2 2 e", "u 1 d"} {
		c.expect(t, "DLQ_SET\r\n", "set-dlq %s\r\n", set)
		if was, ok := seen[digest()]; ok {
			t.Errorf("the digest after %q is that after %q", set, was)
		}
		seen[digest()] = set
	}
	c.expect(t, "DLQ_SET\r\nDLQ_SET\r\nDLQ_SET\r\n", "set-dlq t 0 d\r\nset-dlq t2 0 d\r\nset-dlq u 0 d\r\n")
	if seen[digest()] != "none" {
		t.Error("without settings the digest is another one")
	}
}

// What is told must not be lost.
func TestRepliesDependOnSettingsAndDeadLetters(t *testing.T) {
	s, f, c := newJudged(t, 1, Limits{})
	set := f.pos
	other := s.open()
	f.committed = 0
	if other.expect(t, "OK 60\r\n---\n- tube: \"default\"\n  max-attempts: 1\n  dead-tube: \"dead\"\n\r\n", "list-dlq\r\n"); other.out.Pos == 0 || other.out.Pos > set {
		t.Errorf("a list of settings depends on %d", other.out.Pos)
	}
	c.out.Pos, other.out.Pos = 0, 0
	if c.expect(t, "RELEASED\r\n", "release 1 0 0\r\n"); c.out.Pos != f.pos {
		t.Errorf("a release depends on %d, not on %d", c.out.Pos, f.pos)
	}
	if other.expect(t, "FOUND 1 1\r\na\r\n", "peek-tube dead buried\r\n"); other.out.Pos != f.pos {
		t.Errorf("a peek depends on %d, not on %d", other.out.Pos, f.pos)
	}
	c.expect(t, "INSERTED 2\r\nRESERVED 2 1\r\nb\r\n", "put 0 0 1 1\r\nb\r\nreserve\r\n")
	s.Wait(time.Second)
	c.out.Pos, other.out.Pos = 0, 0
	if c.expect(t, "TIMED_OUT\r\n", "reserve-with-timeout 0\r\n"); c.out.Pos != f.pos {
		t.Errorf("that there is no job depends on %d, not on %d", c.out.Pos, f.pos)
	}
	if other.expect(t, "OK 76\r\n---\n- id: 1\n  pri: 0\n  age: 1\n  size: 1\n- id: 2\n  pri: 0\n  age: 1\n  size: 1\n\r\n", "list-jobs dead buried\r\n"); other.out.Pos != f.pos {
		t.Errorf("a list depends on %d, not on %d", other.out.Pos, f.pos)
	}
}
