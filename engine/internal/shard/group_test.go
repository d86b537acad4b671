package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/groups"
)

// put1 is a put of one byte with tags.
func put1(tags string) string { return "put 9 0 9 1 " + tags + "\r\na\r\n" }

// groupJob is what a record of a job with a part in groups says.
func groupJob(id uint64, tube string, state journal.State, terms journal.Terms) *journal.Record {
	return &journal.Record{ID: id, State: state, Pri: 9, TTR: 9, Tube: tube, Body: []byte("a"), Keys: journal.Keys{Terms: &terms}}
}

// Whatever record is the last of one leader's, the next fires what is complete then, once, and
// nothing else; and so does the one after that, whatever the second came to.
func TestHeldJobsAreFiredOnceWhicheverRecordIsTheLastOfALeader(t *testing.T) {
	const tubes = 5
	first := newSim(100, 1)
	log := &tape{file: newFile(nil)}
	first.engine.recordIn(log)
	c := first.open()
	for i := range 6 {
		c.say(fmt.Sprintf("use t%d", i%tubes), "put 9 0 9 1 grp:g", "a")
	}
	for i := range 8 {
		tags := []string{"aft:g", "aft:g:settled", "aft:g grp:h", "aft:g:settled grp:h"}[i%4]
		c.say(fmt.Sprintf("use t%d", i%tubes), fmt.Sprintf("put 9 %d 9 1 %s", i%3, tags), "a")
	}
	c.say("use t0", "put 9 0 9 1 aft:h", "a", "put 9 0 9 1 aft:h:settled", "a")
	c.say("reserve-job 1", "bury 1 9", "kick-job 1", "move-job 2 t4", "reserve-job 3", "bury 3 9", "move-job 3 t1", "move-job 7 t3", "move-job 8 t2")
	c.say("delete 2", "delete 4", "delete 5", "delete 6", "delete 1", "use t0", "put 9 0 9 1 aft:g", "a", "kick-job 3", "delete 3")
	c.say("put 9 0 9 1 grp:g", "a", "put 9 0 9 1 aft:g", "a")
	for end := range len(log.entries) + 1 {
		second := restarted(t, log.entries[:end])
		// Members come and go again where records come twice.
		again := restarted(t, append(log.entries[:end:end], log.entries[:end]...))
		if got, want := again.engine.dump(), second.engine.dump(); got != want {
			t.Fatalf("after %d records twice:\n%swant\n%s", end, got, want)
		}
		again.engine.discardAll()
		for stop := 0; ; stop++ {
			third := restarted(t, append(log.entries[:end:end], second.entries[:min(stop, len(second.entries))]...))
			if stop == 0 || stop >= len(second.entries) {
				if got, want := third.engine.dump(), second.engine.dump(); got != want {
					t.Fatalf("after %d records and %d of the next leader:\n%swant\n%s", end, stop, got, want)
				}
			}
			third.engine.discardAll()
			if stop >= len(second.entries) {
				break
			}
		}
		second.engine.discardAll()
	}
	first.engine.discardAll()
}

// A successor is an engine that has followed a journal and serves, and what it records then.
type successor struct {
	*sim
	*tape
}

// restarted follows records, serves, and does what is due. Nothing is held then that is complete,
// and all that was held and is not is ready, or begins its delay, once.
func restarted(t *testing.T, entries []entry) successor {
	t.Helper()
	x := successor{newSim(100, 1), &tape{file: newFile(nil)}}
	f := x.engine.Follow(clock.Always)
	f.feed(t, entries)
	for i := range entries { // the last state of each job
		r := &entries[i].record
		switch entries[i].kind {
		case 'p':
			full := copied(r)
			x.jobs[r.ID] = &filed{full: full, record: full}
		case 'u':
			x.jobs[r.ID].record.State = r.State
		case 'd':
			delete(x.jobs, r.ID)
		}
	}
	waits, members := map[uint64]journal.Terms{}, map[string]int{}
	blocks := map[string]int{} // members that are not buried
	for id, j := range x.jobs {
		terms := *j.full.Keys.Terms
		if j.record.State == journal.Held {
			waits[id] = terms
		}
		members[terms.Group]++
		if j.record.State != journal.Buried {
			blocks[terms.Group]++
		}
	}
	x.engine.recordIn(x.tape)
	f.Serve(1000, 0)
	x.Settle()
	x.Wait(0)
	fired := 0
	for id, terms := range waits {
		n := members[terms.After]
		if terms.Settled {
			n = blocks[terms.After]
		}
		locks := Tx{shared: x.engine.Shards}
		sh, _, j := x.engine.lockJob(&locks, id, x.now)
		if is := j.state == held; is != (n > 0) {
			t.Errorf("after %d records: job %d is held: %v, and %d members are left", len(entries), id, is, n)
		}
		sh.unlock(&locks)
		if n == 0 {
			fired++
		}
	}
	if got := x.engine.Snapshot(x.now).Fired; got != uint64(fired) || len(x.entries) != fired {
		t.Errorf("after %d records: %d jobs are fired and %d records made, should be %d", len(entries), got, len(x.entries), fired)
	}
	x.check(t)
	return x
}

// A firing that finds no room in the journal is tried again, and until then the job stays held.
func TestABuriedMemberBlocksThoseThatWaitForAllMembers(t *testing.T) {
	s := newSim(100, 1)
	t.Cleanup(s.engine.Discard)
	c := s.open()
	c.say("put 9 0 9 1 grp:g fair:f", "a", "put 9 0 9 1 aft:g", "a", "put 9 0 9 1 aft:g:settled", "a", "put 9 0 9 1 grp:h", "a", "put 9 0 9 1 fair:f", "a")
	c.say("put 9 0 9 1", "a", "put 9 0 9 1 grp:g", "a")
	for _, step := range []struct{ do, want string }{
		{"", ""},
		{"reserve-job 1", ""},
		{"bury 1 9", "1 g 1"},
		{"move-job 1 other", "1 g 1"},
		{"use other", "1 g 1"},
		{"kick-job 1", ""},
		{"reserve-job 1", ""},
		{"bury 1 9", "1 g 1"},
		{"delete 2", ""},
		{"reserve-job 4", ""},
		{"bury 4 9", ""},
		{"reserve-job 5", ""},
		{"bury 5 9", ""},
		{"reserve-job 6", ""},
		{"bury 6 9", ""},
		{"delete 1", ""},
	} {
		if step.do != "" {
			c.say(step.do)
		}
		got := ""
		for id := range uint64(8) {
			if group, waiting := s.engine.Blocks(s.now, id); group != "" || waiting != 0 {
				got += fmt.Sprintf("%d %s %d", id, group, waiting)
			}
		}
		if got != step.want {
			t.Errorf("after %q: %q, want %q", step.do, got, step.want)
		}
	}
}

func TestAFiringWaitsForRoom(t *testing.T) {
	for _, err := range []error{journal.ErrRoom, journal.ErrNoSpace, journal.ErrBusy} {
		s := newSim(100, 1)
		f := newFile(nil)
		s.engine.log.Journal = f
		c := s.open()
		c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "%s%s", put1("grp:g"), put1("aft:g"))
		f.err = err
		c.expect(t, "DELETED\r\nNOT_FOUND\r\n", "delete 1\r\nreserve-job 2\r\n")
		s.Wait(time.Second)
		c.expect(t, "OK 66\r\n---\nname: \"g\"\npending: 0\nburied: 0\ncomplete: true\nwaiting-jobs: 1\n\r\n", "stats-group g\r\n")
		s.noErrors(t)
		f.err = nil
		s.Wait(firingRetryDuration)
		c.expect(t, "NOT_FOUND\r\nRESERVED 2 1\r\na\r\n", "stats-group g\r\nreserve-job 2\r\n")
		s.noErrors(t)
	}
}

const firingRetryDuration = time.Duration(firingRetry)

// A held job that is to be fired and has not been, because there was no room, may move meanwhile.
func TestAJobThatIsToBeFiredMayMove(t *testing.T) {
	s := newSim(100, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	c := s.open()
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "%s%s", put1("grp:g"), put1("aft:g"))
	f.err = journal.ErrNoSpace
	c.expect(t, "DELETED\r\n", "delete 1\r\n")
	f.err = nil
	to := s.engine.tubeIn((s.engine.defaultTube.shard.number+1)%len(s.engine.shards), "t")
	c.expect(t, "INSERTED 3\r\nINSERTED 4\r\nMOVED\r\nMOVED\r\n", "%s%smove-job 2 %s\r\nmove-job 4 %s\r\n", put1("grp:g"), put1("aft:g"), to, to)
	// The one is fired where it has come to, the other waits for the new member.
	c.expect(t, "RESERVED 2 1\r\na\r\nNOT_FOUND\r\nDELETED\r\nRESERVED 4 1\r\na\r\n", "reserve-job 2\r\nreserve-job 4\r\ndelete 3\r\nreserve-job 4\r\n")
	s.noErrors(t)
}

// Whoever looks at a shard may be the one who makes a time-out bury the last member.
func TestWhoOnlyLooksFiresWhatATimeOutMakesComplete(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	c.expect(t, "DLQ_SET\r\nINSERTED 1\r\nUSING u\r\nINSERTED 2\r\n", "set-dlq default 1 dead\r\nput 9 0 1 1 grp:g\r\na\r\nuse u\r\n%s", put1("aft:g:settled"))
	c.expect(t, "RESERVED 1 1\r\na\r\n", "reserve\r\n")
	s.now += clock.Second
	s.engine.Snapshot(s.now) // which may have come past the shard of the job that it fires
	if n := s.engine.Snapshot(s.now); n.Fired != 1 || n.Held != 0 || n.Ready != 1 {
		t.Errorf("when it is looked at again, %+v", n)
	}
	s.noErrors(t)
}

// In a server without extensions a held job is a delayed one that does not become ready, and the
// group is fired when one with extensions starts.
func TestGroupsSleepInAStockServer(t *testing.T) {
	s := newSim(100, 1)
	s.engine.cfg.Stock = true
	log := &tape{file: newFile(nil)}
	s.engine.recordIn(log)
	records := []*journal.Record{
		groupJob(1, "default", journal.Ready, journal.Terms{Group: "g"}),
		groupJob(2, "default", journal.Held, journal.Terms{After: "g"}),
		groupJob(3, "default", journal.Held, journal.Terms{After: "g"}),
		groupJob(4, "default", journal.Held, journal.Terms{After: "h"}),
	}
	f := s.engine.Follow(0)
	for _, r := range records {
		if _, err := f.Full(r, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
		log.jobs[r.ID] = &filed{full: *r, record: *r, segment: 1}
	}
	f.Serve(5, 0)
	c := s.open()
	s.Wait(0)
	if n := s.engine.Snapshot(s.now); n.Held != 3 {
		t.Errorf("at the start, %+v", n)
	}
	c.expect(t, "DELETED\r\nRESERVED 2 1\r\na\r\nNOT_FOUND\r\n", "delete 1\r\nreserve-job 2\r\nkick-job 2\r\n")
	c.expect(t, "RELEASED\r\nRESERVED 2 1\r\na\r\n", "release 2 9 0\r\nreserve\r\n")
	c.expect(t, "KICKED 2\r\n", "kick 9\r\n")
	s.noErrors(t)

	s = newSim(100, 1)
	f = s.engine.Follow(0)
	for _, r := range records[1:] {
		if _, err := f.Full(r, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
	}
	f.Serve(5, 0)
	s.Wait(0)
	if n := s.engine.Snapshot(s.now); n.Held != 0 || n.Ready != 3 || n.Fired != 3 {
		t.Errorf("with extensions, %+v", n)
	}
	s.noErrors(t)
}

// What is held for one group becomes ready in slices, so that nobody waits long for the locks.
func TestVeryManyHeldJobsAreFiredInTurns(t *testing.T) {
	const n = 3*maxMoves + 7
	s := newSim(100, 1)
	c := s.open()
	c.expect(t, "INSERTED 1\r\n", "%s", put1("grp:g"))
	for id := 2; id <= n+1; id++ {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", id), "%s", put1("aft:g"))
	}
	c.start(t, "delete 1")
	if got := s.engine.Snapshot(s.now).Ready; got != maxMoves/firingMoves {
		t.Errorf("%d jobs are ready with the reply, want %d", got, maxMoves/firingMoves)
	}
	for s.engine.Snapshot(s.now).Ready < n {
		before := s.engine.Snapshot(s.now).Ready
		s.now++
		c.ask(t, "peek-ready\r\n")
		if got := s.engine.Snapshot(s.now).Ready - before; got <= 0 || got > 2*maxMoves/firingMoves {
			t.Fatalf("%d more jobs are ready after two looks", got)
		}
	}
	s.noErrors(t)
}

// A flush of so many jobs that others have their turns meanwhile fires none of those that it is to
// delete.
func TestALongFlushFiresNothingOfItsTube(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "%s%s", put1("grp:g"), put1("aft:g"))
	c.putMany(t, 3, 3*scanSlice, "put 9 0 9 0\r\n\r\n")
	c.expect(t, fmt.Sprintf("FLUSHED %d\r\n", 3*scanSlice+2), "flush-tube default\r\n")
	if n := s.engine.Snapshot(s.now); n.Fired != 0 {
		t.Errorf("%d jobs were fired", n.Fired)
	}
	s.noErrors(t)
}

// The memory of groups is counted, and none is kept when their jobs have gone.
func TestTheMemoryOfGroupsIsCountedAndGivenBack(t *testing.T) {
	s := newLimitedSim(65535, 1, Limits{Memory: 100 << 10})
	c := s.open()
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n", "%s%s%s", put1("grp:g"), put1("grp:g"), put1("aft:g"))
	with := func(x journal.Terms) int64 { return jobFootprint(1, &journal.Keys{Terms: &x}) }
	all := 2*with(journal.Terms{Group: "g"}) + with(journal.Terms{After: "g"}) + groups.Footprint("g")
	if got, want := s.engine.memory.Used(), all+groups.HeldFootprint+groups.ListFootprint; got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	c.expect(t, "MOVED\r\nKICKED\r\n", "move-job 3 t\r\nkick-job 3\r\n")
	if got := s.engine.memory.Used(); got != all {
		t.Errorf("%d bytes are counted when nothing is held, want %d", got, all)
	}
	c.expect(t, "DELETED\r\nDELETED\r\nDELETED\r\n", "delete 1\r\ndelete 2\r\ndelete 3\r\n")
	if got := s.engine.memory.Used(); got != 0 {
		t.Errorf("%d bytes are counted for no job", got)
	}
	s.noErrors(t)
}

// A group is one key, however many tubes its members are in, and whoever joins it passes.
func TestGroupsCountOnceAgainstTheLimitOnKeys(t *testing.T) {
	s := newLimitedSim(65535, 1, Limits{Keys: 2})
	c := s.open()
	c.expect(t, "INSERTED 1\r\nUSING t\r\nINSERTED 2\r\nINSERTED 3\r\nOUT_OF_MEMORY\r\nINSERTED 5\r\n",
		"%suse t\r\n%s%s%s%s", put1("grp:g"), put1("grp:g aft:h"), put1("grp:h"), put1("grp:i"), put1("grp:h aft:i"))
	c.expect(t, "NOT_FOUND\r\nDELETED\r\nDELETED\r\nINSERTED 6\r\n", "stats-group i\r\ndelete 1\r\ndelete 2\r\n%s", put1("grp:i"))
	s.noErrors(t)
}

// A put that is refused leaves its groups as they were, and fires what it has held up.
func TestARefusedPutLeavesItsGroupsAsTheyWere(t *testing.T) {
	s := newSim(100, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	c := s.open()
	c.expect(t, "INSERTED 1\r\n", "%s", put1("grp:h"))
	f.err = journal.ErrNoSpace
	for _, tags := range []string{"grp:g", "aft:h", "grp:g aft:h", "aft:h:settled"} {
		c.expect(t, codec.ReplyOutOfMemory, "%s", put1(tags))
		s.noErrors(t)
	}
	f.err = nil
	c.expect(t, "NOT_FOUND\r\n", "stats-group g\r\n")
	if got := c.ask(t, "stats-group h\r\n"); !strings.Contains(got, "pending: 1\n") || !strings.Contains(got, "waiting-jobs: 0\n") {
		t.Errorf("the group is %q", got)
	}
}

// A record of a held job without a group is refused, not held for ever.
func TestAHeldJobWithoutAGroupIsNotFollowed(t *testing.T) {
	f := New(Config{}).Follow(clock.Always)
	if _, err := f.Full(groupJob(1, "default", journal.Held, journal.Terms{Group: "g"}), journal.Place{Segment: 1}); err == nil {
		t.Error("a full record of one is taken")
	}
}
