package shard

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/stats"
)

// noErrors checks all that the engine keeps.
func (s *sim) noErrors(t *testing.T) {
	t.Helper()
	for _, err := range (&census{engine: s.engine, sessions: s.sessions()}).run() {
		t.Error(err)
	}
}

// What was put first has the key, also when nothing can be recorded at that moment; and a
// duplicate that would raise a priority waits for room as any change does.
func TestPutsOfOneKeyThatWaitForRoomAreDoneInTheirOrder(t *testing.T) {
	s, f, c := newCramped(t)
	d := s.open()
	c.expect(t, "", "put 9 0 9 1 idp:k\r\nx\r\n")
	d.expect(t, "", "put 5 0 9 1 idp:k\r\ny\r\n")
	f.room = true
	s.engine.Room()
	s.Settle()
	if got, want := c.took()+d.took(), "INSERTED 5\r\nINSERTED 5 READY 5\r\n"; got != want {
		t.Fatalf("answered %q, want %q", got, want)
	}
	f.room = false
	d.expect(t, "", "put 4 0 9 1 idp:k\r\ny\r\n")
	if got := s.engine.dump(); !strings.Contains(got, "job 5 pri 5") {
		t.Errorf("the priority has changed before that was recorded:\n%s", got)
	}
	f.err = journal.ErrNoSpace
	s.engine.Room()
	s.Settle()
	if got := d.took(); got != "OUT_OF_MEMORY\r\n" {
		t.Errorf("answered %q on a full disk", got)
	}
	d.expect(t, "INSERTED 5 READY\r\n", "put 5 0 9 1 idp:k\r\ny\r\n")
	s.noErrors(t)
}

// A tombstone that cannot be ended for want of room is ended a moment later, and its key is
// free meanwhile.
func TestATombstoneEndsWhenThereIsRoom(t *testing.T) {
	s, f, c := newCramped(t)
	f.room = true
	c.expect(t, "INSERTED 5\r\nDELETED\r\n", "put 9 0 9 1 idp:k:5\r\nx\r\ndelete 5\r\n")
	f.room = false
	s.Wait(6 * time.Second)
	if f.jobs[5] == nil {
		t.Fatal("the end of the tombstone was recorded without room")
	}
	f.room = true
	c.expect(t, "INSERTED 6\r\n", "put 9 0 9 1 idp:k\r\nx\r\n")
	s.Wait(time.Second)
	if f.jobs[5] != nil {
		t.Error("the tombstone is still on record")
	}
	c.expect(t, "INSERTED 6 READY\r\n", "put 9 0 9 1 idp:k\r\nx\r\n")
	s.noErrors(t)
}

// What a log has of keys is there again after a restart, goes by the wall clock, and is
// never longer than it was meant to be, although somebody may have set the clock back.
func TestTombstonesOfALogGoByTheWallClock(t *testing.T) {
	const day = 86400
	for name, x := range map[string]struct {
		due  time.Duration // from the start of the server on
		wait time.Duration
		held bool
	}{
		"ended before the start":     {due: -time.Second, held: false},
		"ends at the start":          {due: 0, held: false},
		"ends later":                 {due: 5 * time.Second, wait: 4 * time.Second, held: true},
		"has ended":                  {due: 5 * time.Second, wait: 5 * time.Second, held: false},
		"the clock went back":        {due: day * time.Second, wait: 9 * time.Second, held: true},
		"the clock went back, later": {due: day * time.Second, wait: 10 * time.Second, held: false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(100, 1)
			f := newFile(nil)
			s.engine.log.Journal = f
			r := journal.Record{
				ID: 1, State: journal.Deleted, Due: s.engine.wall(0) + int64(x.due), Tube: "default",
				Keys: journal.Keys{Unique: "k", Seconds: 10},
			}
			f.jobs[1] = &filed{full: r, record: r, segment: 1}
			follower := s.engine.Follow(0)
			if _, err := follower.Full(&r, journal.Place{Segment: 1}); err != nil {
				t.Fatal(err)
			}
			follower.Serve(2, 0)
			s.Wait(x.wait)
			want := "INSERTED 2\r\n"
			if x.held {
				want = "INSERTED 1 DELETED\r\n"
			}
			s.open().expect(t, want, "put 9 0 9 1 idp:k\r\na\r\n")
			if n := s.engine.Snapshot(s.now); (n.Tombstones == 1) != x.held || (f.jobs[1] != nil) != x.held {
				t.Errorf("%d tombstones; on record: %v", n.Tombstones, f.jobs[1] != nil)
			}
			s.noErrors(t)
		})
	}
}

// A tombstone of a standby ends when the standby serves, and not before.
func TestTombstonesDoNotEndInAStandby(t *testing.T) {
	s := newSim(100, 1)
	f := s.engine.Follow(clock.Always)
	r := journal.Record{ID: 1, State: journal.Deleted, Due: s.engine.wall(0), Tube: "t", Keys: journal.Keys{Unique: "k", Seconds: 9}}
	if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	s.Wait(time.Second)
	if n := s.engine.Snapshot(s.now); n.Tombstones != 1 {
		t.Fatalf("%d tombstones in a standby", n.Tombstones)
	}
	f.Serve(2, s.now)
	s.Wait(0)
	if n := s.engine.Snapshot(s.now); n.Tombstones != 0 {
		t.Errorf("%d tombstones when it serves", n.Tombstones)
	}
}

// To a server without extensions limits mean nothing, but no key is lost.
func TestLimitsSleepInAStockServer(t *testing.T) {
	for _, stock := range []bool{true, false} {
		s := newSim(100, 1)
		s.engine.cfg.Stock = stock
		f := newFile(nil)
		s.engine.log.Journal = f
		follower := s.engine.Follow(0)
		keys := journal.Keys{Limited: "c", Limit: 1}
		for id := range uint64(2) {
			r := journal.Record{ID: id + 1, State: journal.Ready, TTR: 9, Tube: "default", Body: []byte("x"), Keys: keys}
			f.jobs[r.ID] = &filed{full: r, record: r, segment: 1}
			if _, err := follower.Full(&r, journal.Place{Segment: 1}); err != nil {
				t.Fatal(err)
			}
		}
		follower.Serve(3, 0)
		want := "RESERVED 1 1\r\nx\r\nTIMED_OUT\r\n"
		if stock {
			want = "RESERVED 1 1\r\nx\r\nRESERVED 2 1\r\nx\r\n"
		}
		s.open().expect(t, want, "reserve\r\nreserve-with-timeout 0\r\n")
		if err := s.engine.Migrate(1, journal.Place{Segment: 1}, nil); err != nil || f.jobs[1].full.Keys != keys {
			t.Errorf("job 1 is recorded again as %+v: %v", f.jobs[1].full, err)
		}
		s.noErrors(t)
	}
}

// A flush erases many tombstones, some under each lock.
func TestAFlushErasesManyTombstones(t *testing.T) {
	const n = 3*scanSlice + 7
	s := newSim(100, 1)
	c := s.open()
	var in strings.Builder
	for id := range n {
		fmt.Fprintf(&in, "put 9 0 9 1 idp:k%d:50\r\na\r\ndelete %d\r\n", id, id+1)
	}
	c.ask(t, "%s", in.String())
	if got := s.engine.Snapshot(s.now); got.Tombstones != n || got.UniqueKeys != 0 {
		t.Fatalf("%+v", got)
	}
	c.expect(t, "FLUSHED 0\r\n", "flush-tube default\r\n")
	if got := s.engine.Snapshot(s.now); got.Tombstones != 0 {
		t.Errorf("%d tombstones are left", got.Tombstones)
	}
	c.expect(t, fmt.Sprintf("INSERTED %d\r\n", n+1), "put 9 0 9 1 idp:k5\r\na\r\n")
	s.noErrors(t)
}

// Keys count as memory, and all of it is given back.
func TestMemoryOfKeysIsCountedAndGivenBack(t *testing.T) {
	s := newLimitedSim(65535, 1, Limits{Memory: 100 << 10})
	c := s.open()
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\nINSERTED 2 READY\r\nUSING t\r\nINSERTED 4\r\n",
		"put 9 0 9 1 idp:k:9 con:c\r\na\r\nput 9 0 9 1 idp:j\r\na\r\nput 9 0 9 1 idp:j\r\na\r\nuse t\r\nput 9 0 9 1 idp:j\r\na\r\n")
	with := func(keys journal.Keys) int64 { return jobFootprint(1, &keys) }
	unique := with(journal.Keys{Unique: "j"})
	limited := limitedKeyFootprint("c") + groupMemory
	tubes := keyspaceFootprint(DefaultTube) + keyspaceFootprint("t")
	if got, want := s.engine.memory.Used(), with(journal.Keys{Unique: "k", Limited: "c"})+limited+2*unique+tubes; got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	c.expect(t, "DELETED\r\nMOVED\r\n", "delete 1\r\nmove-job 2 t\r\n") // a tombstone; a job that loses its key
	if got, want := s.engine.memory.Used(), tombstoneFootprint(&journal.Keys{Unique: "k"})+unique+jobFootprint(1, nil)+tubes; got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	c.expect(t, "DELETED\r\nDELETED\r\n", "delete 2\r\ndelete 4\r\n")
	s.Wait(9 * time.Second)
	s.noErrors(t)
	if got := s.engine.memory.Used(); got != 0 {
		t.Errorf("%d bytes are counted for no job", got)
	}
}

// A reserve costs the same however many jobs are passed over, and so does the reserve and
// the end of one of theirs.
func BenchmarkReserveAmongPassedOver(b *testing.B) {
	for _, jobs := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			s := newSim(100, 1)
			c := s.open()
			for range jobs {
				c.say("put 5 0 9 1 con:c", "a")
			}
			held := c.say("reserve")
			if !strings.HasPrefix(held, "RESERVED 1 ") {
				b.Fatal(held)
			}
			c.say("put 9 0 9 1", "b")
			b.ReportAllocs()
			for b.Loop() {
				c.say("reserve")
				c.say("release "+fmt.Sprint(jobs+1)+" 9 0", "touch 1")
				c.say("release 1 5 0", "reserve-job 1")
			}
			b.StopTimer()
			s.engine.discardAll()
		})
	}
}

// However tubes and keys are named, what belongs to them is found without a search.
func TestUniqueKeysNamedLikeTheirTubesDoNotShareABucket(t *testing.T) {
	const n = 5000
	s := newSim(100, 1)
	c := s.open()
	for i := range n {
		c.expect(t, fmt.Sprintf("USING x%d\r\nINSERTED %d\r\n", i, i+1), "use x%d\r\nput 0 0 9 0 idp:x%d\r\n\r\n", i, i)
	}
	for _, sh := range s.engine.shards {
		if got := sh.holders.Longest(); got > 16 {
			t.Errorf("of %d keys, %d share a bucket", sh.holders.Len(), got)
		}
	}
}

// A flush whose first tombstone finds no room in the journal erases all when there is some.
func TestAFlushOfTombstonesWaitsForRoom(t *testing.T) {
	s := newSim(100, 1)
	f := &cramped{file: newFile(nil), room: true}
	s.engine.log.Journal = f
	c := s.open()
	for i := range 3 {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\nDELETED\r\n", i+1), "put 0 0 9 0 idp:k%d:1000\r\n\r\ndelete %d\r\n", i, i+1)
	}
	f.room = false
	if c.start(t, "flush-tube default") != Wait {
		t.Fatalf("it does not wait: %q", c.took())
	}
	f.room = true
	s.engine.Room()
	slow(t, s).rounds()
	if got := c.took(); got != "FLUSHED 0\r\n" || s.engine.defaultTube.shard.totals.tombstones != 0 {
		t.Errorf("%q, and %d tombstones are left", got, s.engine.defaultTube.shard.totals.tombstones)
	}
	s.noErrors(t)
}

// What a client asks for must not keep a key, and its place under the limit on keys, for ever.
func TestADeletedJobKeepsItsKeyNoLongerThanItMay(t *testing.T) {
	limits := Limits{Keys: 1, KeySeconds: 100}
	s := newLimitedSim(100, 1, limits)
	f := newFile(nil)
	s.engine.log.Journal = f
	c := s.open()
	c.expect(t, "INSERTED 1\r\nDELETED\r\n", "put 0 0 9 1 idp:k:4294967295\r\na\r\ndelete 1\r\n")
	s.Wait(99 * time.Second)
	c.expect(t, "INSERTED 1 DELETED\r\nOUT_OF_MEMORY\r\n", "put 0 0 9 1 idp:k\r\na\r\nput 0 0 9 1 idp:j\r\na\r\n")
	s.Wait(time.Second)
	c.expect(t, "INSERTED 4\r\nDELETED\r\n", "put 0 0 9 1 idp:j:50\r\na\r\ndelete 4\r\n")
	s.Wait(49 * time.Second)
	c.expect(t, "INSERTED 4 DELETED\r\n", "put 0 0 9 1 idp:j\r\na\r\n")
}

func TestKeysAreShownByTube(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	c.ask(t, "use a\r\nput 0 0 9 1 idp:k:100 con:c\r\na\r\nput 0 0 9 1 idp:j con:c:2\r\na\r\nput 0 0 9 1 con:d\r\na\r\ndelete 1\r\nwatch b\r\n")
	got := map[string]int{}
	s.engine.EachTube(s.now, func(x *stats.Tube) { got[x.Name] = x.Keys })
	if want := map[string]int{"default": 0, "a": 4, "b": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// So it is with what a server without that limit has recorded.
func TestARestoredTombstoneLastsNoLongerThanItMay(t *testing.T) {
	e := New(Config{MaxJobSize: 100, Limits: Limits{KeySeconds: 100}})
	defer e.Discard()
	now := 1000 * clock.Second
	follower := e.Follow(now)
	if _, err := follower.Full(&journal.Record{
		ID: 1, State: journal.Deleted, Due: time.Unix(0, 0).Add(time.Duration(1<<32) * time.Second).UnixNano(), Tube: DefaultTube,
		Keys: journal.Keys{Unique: "k", Seconds: 1<<32 - 1},
	}, journal.Place{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	follower.Serve(2, now)
	sh := e.defaultTube.shard
	if k := sh.holder(DefaultTube, "k"); k == nil {
		t.Fatal("it does not hold its key")
	} else if _, j := sh.find(1); j.at() != now+100*clock.Second {
		t.Errorf("it lasts for %v", time.Duration(j.at()-now))
	}
}
