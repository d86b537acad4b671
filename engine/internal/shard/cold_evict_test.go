package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/resident"
)

// placedSim is a simulator with a limit of bodies, whose journal is told when something is durable.
func placedSim(limit int64) (*sim, *file) {
	s := newLimitedSim(100_000, 1, Limits{Bodies: limit})
	f := newHoldingFile()
	s.engine.recordIn(f)
	return s, f.file
}

// cold are the ids of jobs that are.
func (s *sim) coldIDs() (list []uint64) {
	for id := uint64(1); id <= s.engine.ids.Last.Load(); id++ {
		if p := s.engine.ids.Get(id); p != 0 && s.engine.shards[p.Shard()].job(p.Ref()).cold() {
			list = append(list, id)
		}
	}
	return list
}

// A failing sync drops what was written: a body leaves memory only when the disk has it for certain, though its put was
// acknowledged.
func TestABodyThatIsNotDurableStays(t *testing.T) {
	s, f := placedSim(someBodies)
	defer s.engine.Discard()
	c := s.open()
	c.say("put 0 0 9 1\r\nx")
	f.committed = f.pos
	c.say("put 0 0 9 1\r\ny", "put 0 0 9 1\r\nz")
	s.engine.evictTo(0, 0, everyEvict)
	if got := s.coldIDs(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("jobs %v have left memory", got)
	}
	f.committed = f.pos - 1
	s.engine.evictTo(0, 0, everyEvict)
	if got := s.coldIDs(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("then jobs %v have", got)
	}
}

// Bodies leave memory when they take seven eighths of what they may, until they take six. However long a queue grows,
// those stay that came when there was room.
func TestTheHeadOfALongQueueStays(t *testing.T) {
	const size, all = 1024, 64
	s, f := placedSim(all * size)
	defer s.engine.Discard()
	c := s.open()
	sh := s.engine.defaultTube.shard
	put := func(n int) {
		for range n {
			c.say(fmt.Sprintf("put 0 0 9 %d\r\n%s", size, strings.Repeat("x", size)))
			f.committed = f.pos
			s.engine.resident.Add(sh.residents.bytes - sh.residents.told) // its portion is larger than all of this
			sh.residents.told = sh.residents.bytes
		}
	}
	put(all * markHigh / 8)
	if freed, more := s.engine.Evict(everyEvict); freed != 0 || more {
		t.Errorf("at the mark %d bytes have left memory", freed)
	}
	put(20)
	freed, more := s.engine.Evict(10)
	if freed != 10*size || !more {
		t.Errorf("of ten looks %d bytes have left memory, more: %v", freed, more)
	}
	for more {
		_, more = s.engine.Evict(1)
	}
	if n := sh.residents.bytes; n != all*markLow/8*size {
		t.Errorf("%d bytes are left", n)
	}
	for range 300 {
		put(1)
		s.engine.Evict(everyEvict)
	}
	const head = all*markKept/8 + 1
	cold := s.coldIDs()
	if n := len(cold); n < 300 || cold[0] != head+1 || cold[n-1] != uint64(head+n) {
		t.Errorf("%d jobs have left memory, from %d on until %d, want all behind the first %d", n, cold[0], cold[n-1], head)
	}
}

// A body that was loaded stays until the client has resumed that waits for it, and no longer.
func TestALoadedBodyStaysUntilItsClientResumes(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c := s.open()
	c.say("put 0 0 9 1\r\nx")
	s.cold.late = 1 << 30
	c.say("reserve")
	c.held = true
	s.cold.late = 0
	s.Settle()
	s.engine.evictTo(0, 0, everyEvict)
	if s.coldJobs() != 0 {
		t.Error("it has left before it was used")
	}
	c.held = false
	c.resume()
	if got := c.say(); got != "RESERVED 1 1\r\nx\r\n" {
		t.Errorf("the client is told %q", got)
	}
	s.Settle()
	if s.coldJobs() != 1 {
		t.Error("it stays")
	}
}

// What comes from the journal finds its job by its id and its place, never by where its record was.
func TestALoadFindsItsJobByIDAndPlace(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	other.say("put 0 0 9 1\r\nx")
	s.cold.late = 1 << 30
	c.say("peek 1")
	x := s.cold.read(s.cold.asked[0])
	other.say("delete 1", "put 0 0 9 1\r\ny")
	s.engine.evictTo(0, 0, everyEvict)
	s.engine.Loaded([]journal.Fetched{x}) // whose record is another job's now
	if got := s.coldIDs(); !slices.Equal(got, []uint64{2}) {
		t.Fatalf("jobs %v are cold", got)
	}
	s.Settle()
	if got := c.say(); got != "NOT_FOUND\r\n" {
		t.Errorf("the client is told %q", got)
	}
	s.cold.late = 0
	other.told(t, "FOUND 2 1\r\ny\r\n", "peek 2")
}

// Compaction moves a cold job with the body that it has read, from the place where that is. What was asked for before
// is asked for again, whether it finds no file or comes too late.
func TestACompactedJobIsLoadedFromItsNewPlace(t *testing.T) {
	for _, gone := range []bool{false, true} {
		s := coldSim(1)
		c := s.open()
		c.say("put 0 0 9 1\r\nx", "put 0 0 9 1\r\ny")
		s.cold.late = 1 << 30
		c.say("peek 1")
		x := s.cold.read(s.cold.asked[0])
		s.cold.asked = nil
		from := s.cold.jobs[1].place()
		elsewhere := from
		elsewhere.Offset++
		if err := s.engine.Migrate(1, elsewhere, []byte("z")); err != nil || s.cold.jobs[1].place() != from {
			t.Errorf("it is moved by a record that is not its last: %v", err)
		}
		if err := s.engine.Migrate(1, from, []byte("x")); err != nil || s.cold.jobs[1].place() == from {
			t.Fatalf("it is not moved: %v", err)
		}
		if gone {
			x.Body, x.Err = nil, journal.ErrMoved
		}
		s.engine.Loaded([]journal.Fetched{x})
		if len(s.cold.asked) != 1 || s.cold.asked[0].Place != s.cold.jobs[1].place() || s.cold.asked[0].ID != 1 {
			t.Fatalf("asked for is %v", s.cold.asked)
		}
		s.cold.late = 0
		s.Settle()
		if got := c.say(); got != "FOUND 1 1\r\nx\r\n" {
			t.Errorf("the client is told %q", got)
		}
		s.engine.Discard()
	}
}

// Of a damaged segment compaction asks what is there, and moves what is in memory; cold jobs stay.
func TestJobsOfADamagedSegmentAreMovedFromMemory(t *testing.T) {
	s, f := placedSim(someBodies)
	defer s.engine.Discard()
	c := s.open()
	for range 300 {
		c.say("put 0 0 9 1\r\nx")
	}
	f.committed = f.pos
	s.engine.evictTo(0, 0, everyEvict)
	cold := s.coldIDs()
	last := cold[len(cold)-1]
	c.told(t, "INSERTED 301\r\nDELETED\r\n", "put 0 0 9 1 idp:k:99\r\nx", "delete 301") // its tombstone is there, too
	for range 300 {
		c.say("put 0 0 9 1\r\nx")
	}
	damaged := f.jobs[last].segment
	in := make(map[uint32][]uint64)
	var stay []uint64
	for id := uint64(1); id <= s.engine.ids.Last.Load(); id++ {
		segment := f.jobs[id].segment
		if in[segment] = append(in[segment], id); segment == damaged && id <= last {
			stay = append(stay, id)
		}
	}
	for segment, want := range in {
		if got := s.engine.JobsIn(segment); !slices.Equal(got, want) {
			t.Fatalf("in segment %d there are %v, want %v", segment, got, want)
		}
	}
	all := in[damaged]
	if len(stay) == 0 || len(stay) == len(all) {
		t.Fatalf("%v of %v are cold", stay, all)
	}
	for _, id := range all {
		if err := s.engine.Migrate(id, journal.Place{Segment: damaged}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.engine.JobsIn(damaged); !slices.Equal(left, stay) {
		t.Errorf("there are left %v, want %v", left, stay)
	}
	for _, id := range all {
		if x := f.jobs[id]; id != 301 && string(f.bodies[x.place()].body) != "x" {
			t.Errorf("job %d is recorded with the body %q", id, f.bodies[x.place()].body)
		}
	}
}

// Compaction moves a job as often as it likes: the entries that stand for nothing then are forgotten by and by.
func TestEntriesOfAJobThatIsMovedManyTimesAreForgotten(t *testing.T) {
	s, f := placedSim(someBodies)
	defer s.engine.Discard()
	rings := 0
	s.engine.crowded = func() { rings++ }
	c := s.open()
	c.say("put 0 0 9 1\r\nx")
	sh := s.engine.defaultTube.shard
	for range 4 * evictLook {
		if err := s.engine.Migrate(1, journal.Place{Segment: f.jobs[1].segment}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := sh.residents.Len(); n < 4*evictLook || rings == 0 {
		t.Fatalf("of %d entries Evict is called for %d times", n, rings)
	}
	for more := true; more; {
		_, more = s.engine.Evict(everyEvict)
	}
	if sh.residents.sparse() {
		t.Errorf("%d entries are left for %d bodies", sh.residents.Len(), sh.residents.count)
	}
}

// An entry stands for one body: not for the tombstone of its job, which may lie in the same segment, nor twice for a job
// that has two records there, nor for whoever has the job's record after the tidier.
func TestAnEntryOfWhatHasGoneIsVoid(t *testing.T) {
	s, f := placedSim(someBodies)
	defer s.engine.Discard()
	f.counters.Current = 1
	c := s.open()
	c.say("put 0 0 9 1 idp:k:9\r\nx", "put 0 0 9 1\r\ny", "move-job 2 a", "delete 1", "put 0 0 9 1\r\nz")
	f.committed = f.pos
	sh := s.engine.defaultTube.shard
	before := sh.residents.Len()
	if _, j := sh.find(1); before == 0 || j.state != tombstone || j.segment != f.jobs[1].segment {
		t.Fatalf("%d entries; of the job is left %+v", before, j)
	}
	s.engine.evictTo(0, 0, everyEvict)
	if got := s.coldIDs(); !slices.Equal(got, []uint64{2, 3}) {
		t.Errorf("jobs %v are cold", got)
	}
	if _, j := s.engine.shardFor([]byte("a")).find(2); f.bodies[j.place()].id != 2 {
		t.Errorf("job 2 is at %v, where job %d is", j.place(), f.bodies[j.place()].id)
	}
	if n := sh.residents.count; n != 0 {
		t.Errorf("%d bodies are counted", n)
	}
}

// Entries of jobs that have ended do not pile up.
func TestVoidEntriesAreForgotten(t *testing.T) {
	s, f := placedSim(1 << 30)
	defer s.engine.Discard()
	c := s.open()
	for range 5000 {
		c.say("put 0 0 9 1\r\nx\r\nreserve")
		c.say(fmt.Sprint("delete ", s.engine.ids.Last.Load()))
		f.committed = f.pos
		s.engine.Evict(1)
	}
	if n := s.engine.defaultTube.shard.residents.Len(); n > 3*evictLook {
		t.Errorf("%d entries stand for nothing", n)
	}
}

// Whoever comes too late finds nothing: an engine that was discarded takes no bodies, and none leave it.
func TestADiscardedEngineTakesNoBodies(t *testing.T) {
	s := coldSim(1)
	c := s.open()
	c.say("put 0 0 9 1\r\nx")
	s.cold.late = 1 << 30
	c.say("peek 1")
	x := s.cold.read(s.cold.asked[0])
	s.engine.Discard()
	s.engine.Loaded([]journal.Fetched{x})
	if freed, more := s.engine.Evict(everyEvict); freed != 0 || more {
		t.Errorf("%d bytes have left", freed)
	}
}

// A walk tells where the bodies lie of jobs that do not have them in memory.
func TestAWalkTellsWhereABodyLies(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c := s.open()
	c.say("put 0 0 9 1\r\nx", "put 0 0 9 0\r\n")
	n := 0
	if _, err := s.engine.Walk(1, 10, func(r *journal.Record, _ *journal.Hold) error {
		if n++; r.ID == 2 {
			if r.Absent != nil {
				t.Error("what has no body is said to have it elsewhere")
			}
			return nil
		}
		if r.Absent == nil || r.Body != nil || *r.Absent != (journal.Fetch{
			ID: 1, Place: s.cold.jobs[1].place(), Size: 1, Lane: journal.Walk,
		}) {
			t.Errorf("it tells %+v, %+v", r, r.Absent)
		}
		return nil
	}); err != nil || n != 2 {
		t.Errorf("%d jobs, %v", n, err)
	}
}

// A full record without the body would take the place of the one that has it.
func TestNoFullRecordLacksItsBody(t *testing.T) {
	s := coldSim(1)
	c := s.open()
	c.say("put 0 0 9 1\r\nx")
	sh := s.engine.defaultTube.shard
	defer func() {
		if recover() == nil {
			t.Error("it was recorded")
		}
	}()
	r, j := sh.find(1)
	tx := Tx{shared: sh.shared}
	sh.lock(&tx, clock.Always)
	ch := sh.present(j)
	_ = sh.moveWithin(r, j, sh.tube([]byte("b"), true), &ch, journal.Keys{}, new(Output))
}

// A restart leaves bodies where they are.
func TestBodiesStayInTheJournalAtARestart(t *testing.T) {
	s := coldSim(1)
	defer func() { s.engine.Discard() }()
	c := s.open()
	c.say("put 0 0 9 1\r\nx", "put 0 0 9 1\r\ny", "move-job 2 a")
	old := s.engine
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	old.Discard()
	if n := s.coldJobs(); n != 2 {
		t.Errorf("%d of 2 jobs are cold", n)
	}
	c = s.open()
	c.told(t, "WATCHING 2\r\nRESERVED 1 1\r\nx\r\nRESERVED 2 1\r\ny\r\n", "watch a\r\nreserve\r\nreserve")
}

// A full record without its body says the same again of a job that has it, and is refused where nothing reads bodies.
func TestARecordWithoutItsBodyIsTakenOnlyWhereBodiesAreRead(t *testing.T) {
	for _, limit := range []int64{0, 1 << 20} {
		s, _ := placedSim(limit)
		follower := s.engine.Follow(s.now)
		r := journal.Record{ID: 1, State: journal.Ready, TTR: 9, Tube: "a"}
		place := journal.Place{Segment: 1, Offset: 10}
		r.Absent = &journal.Fetch{ID: 1, Place: place, Size: 3}
		_, err := follower.Full(&r, place)
		if (err == nil) != (limit > 0) {
			t.Errorf("with a limit of %d: %v", limit, err)
		}
		r.Pri, place.Offset = 5, 20
		for range 2 {
			if was, err := follower.Full(&r, place); limit > 0 && (err != nil || was.Segment != 1) {
				t.Errorf("again: %+v, %v", was, err)
			}
		}
		if _, j := s.engine.shardFor([]byte("a")).find(1); limit > 0 && (!j.cold() || j.place() != place || j.size != 3) {
			t.Errorf("the job is at %v", j.place())
		}
		s.engine.Discard()
	}
}

// An entry takes what the design counts with.
func TestAnEntryTakes24Bytes(t *testing.T) {
	if n := unsafe.Sizeof(resident.Entry{}); n != 24 {
		t.Errorf("it takes %d", n)
	}
}

// A put that comes while bodies take more than they may waits for others to leave, in its client and for a second at
// most; where much more is taken it is refused at once. Nothing of it is on record before.
func TestPutsWaitWhileBodiesTakeTooMuch(t *testing.T) {
	const limit = 1 << 20
	s, f := placedSim(limit)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	for _, large := range []bool{false, true} {
		size := 1000
		if large {
			size = pinnedSize
		}
		put := fmt.Sprintf("put 0 0 9 %d\r\n%s", size, strings.Repeat("x", size))
		s.engine.resident.Store(limit + 1)
		before := f.pos
		if got := c.say(put); got != "" || f.pos != before {
			t.Errorf("the put is answered %q, and on record: %v", got, f.pos != before)
		}
		other.told(t, "USING a\r\n", "use a") // its loop goes on
		s.engine.resident.Store(limit)
		s.engine.Evict(1)
		s.Settle()
		if got := c.say(); !strings.HasPrefix(got, "INSERTED ") {
			t.Errorf("when there is room it is answered %q", got)
		}
		s.engine.resident.Store(limit + 1)
		c.say(put)
		s.Wait(900 * time.Millisecond)
		s.engine.Evict(1)
		s.Settle()
		if got := c.say(); got != "" {
			t.Errorf("early it is answered %q", got)
		}
		s.Wait(100 * time.Millisecond)
		s.engine.Evict(1)
		s.Settle()
		if got := c.say(); got != "OUT_OF_MEMORY\r\n" {
			t.Errorf("after a second it is answered %q", got)
		}
		s.engine.resident.Store(limit + limit/8 + 1)
		c.told(t, "OUT_OF_MEMORY\r\n", put)
		s.engine.resident.Store(0)
	}
	if n := s.engine.Snapshot(s.now); n.RefusedBodies != 4 || n.RefusedMemory != 0 {
		t.Errorf("%d refusals are counted, and %d by another limit, want 4 and none", n.RefusedBodies, n.RefusedMemory)
	}
	cs := census{engine: s.engine, sessions: []*Session{&c.session, &other.session}}
	for _, err := range cs.run() {
		t.Error(err)
	}
}

// Whoever lets bodies leave memory is called when they take too much, when entries that stand for nothing have piled up,
// and when a put waits; never with a lock held, and otherwise not at all.
func TestEvictIsCalledForWhenThereIsSomethingToDo(t *testing.T) {
	const limit = 1 << 24
	s, f := placedSim(limit)
	defer s.engine.Discard()
	rings := 0
	s.engine.crowded = func() {
		rings++
		for _, sh := range s.engine.shards {
			if !sh.mu.TryLock() {
				t.Fatal("a shard is locked")
			}
			sh.mu.Unlock()
		}
	}
	c := s.open()
	put := fmt.Sprintf("put 0 0 99 60000\r\n%s", strings.Repeat("x", 60000))
	for s.engine.resident.Load() <= limit/8*markHigh {
		if rings > 0 {
			t.Fatalf("called with %d bytes", s.engine.resident.Load())
		}
		c.say(put)
	}
	if rings == 0 {
		t.Error("not called above the mark")
	}
	f.committed = f.pos
	for more := true; more; {
		_, more = s.engine.Evict(everyEvict)
	}
	sh := s.engine.defaultTube.shard
	most := 0
	for n := range 40 * evictLook {
		c.say("put 7 0 9 1\r\nx")
		if n > 8*evictLook { // others stay
			c.say(fmt.Sprint("delete ", s.engine.ids.Last.Load()))
		}
		if f.committed = f.pos; rings == 0 {
			continue
		}
		rings = 0
		for more := true; more; {
			_, more = s.engine.Evict(1)
		}
		most = max(most, sh.residents.Len()-2*sh.residents.count)
	}
	if most == 0 || most > 3*evictLook || sh.residents.Len()-2*sh.residents.count > 3*evictLook {
		t.Errorf("%d entries too many were left, and %d at the end", most, sh.residents.Len()-2*sh.residents.count)
	}
	rings = 0
	s.engine.resident.Store(limit + 1)
	for _, size := range []int{1, pinnedSize} {
		rings = 0
		if got := c.say(fmt.Sprintf("put 7 0 9 %d\r\n%s", size, strings.Repeat("x", size))); got != "" || rings == 0 {
			t.Errorf("a put is answered %q, and Evict called for %d times", got, rings)
		}
		s.engine.resident.Store(limit)
		s.engine.Evict(1)
		s.Settle()
		c.say()
		s.engine.resident.Store(limit + 1)
	}
	s.engine.resident.Store(0)
}
