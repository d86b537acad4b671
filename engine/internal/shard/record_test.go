package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// recordedSim is an engine whose sessions are all on record, and what it records.
func recordedSim() (*sim, *tape) {
	s := newSim(100_000, 1)
	record := &tape{file: newFile(nil)}
	s.onRecord(record)
	return s, record
}

// since is what was recorded from an entry on, in short.
func (t *tape) since(from int) string {
	var list []string
	for _, x := range t.entries[from:] {
		s := string(x.kind)
		switch x.kind {
		case 'p', 'u', 'd':
			s += fmt.Sprintf("%d", x.record.ID)
			if x.kind != 'd' {
				s += " " + x.record.State.String()
			}
			if o := x.record.Origin; o.Session != 0 {
				s += fmt.Sprintf(" by %d at %d", o.Session&(1<<40-1), o.Offset)
			}
		case 's':
			s += fmt.Sprintf(" by %d at %d", x.setting.Origin.Session&(1<<40-1), x.setting.Origin.Offset)
		case 'h':
			s += fmt.Sprintf("%d by %d at %d", x.hold.ID, x.hold.Session&(1<<40-1), x.hold.Offset)
			if x.hold.Touch {
				s += " touch"
			}
		case 'c':
			s += fmt.Sprint(x.session & (1<<40 - 1))
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// What is on record of each command: who has sent it, and where in his input it ends. A command
// over many jobs is named by its first record only.
func TestRecordsNameTheirCommands(t *testing.T) {
	for _, x := range []struct{ name, before, say, want string }{
		{"put", "", "put 0 0 9 1\nx", "p1 ready by 1 at 16"},
		{"put for a worker who waits", "2 reserve", "put 0 0 9 1\nx", "p1 ready by 1 at 16, h1 by 2 at 9"},
		{"reserve", "1 put 0 0 9 1\nx", "reserve", "h1 by 1 at 25"},
		{"reserve-batch", "1 put 0 0 9 1\nx\nput 0 0 9 1\ny", "reserve-batch 5", "h1 by 1 at 49, h2 by 1 at 49"},
		{"reserve-job of a buried job", "1 put 0 0 9 1\nx\nreserve\nbury 1 0", "reserve-job 1", "h1 by 1 at 50"},
		{"touch", "1 put 0 0 9 1\nx\nreserve", "touch 1", "h1 by 1 at 34 touch"},
		{"touch-all", "1 put 0 0 9 1\nx\nput 0 0 9 1\ny\nreserve-batch 5", "touch-all", "h1 by 1 at 60 touch, h2 by 1 at 0"},
		{"release", "1 put 0 0 9 1\nx\nreserve", "release 1 0 0", "u1 ready by 1 at 40"},
		{"delete", "1 put 0 0 9 1\nx\nreserve", "delete 1", "d1 by 1 at 35"},
		{"delete with a tombstone", "1 put 0 0 9 1 idp:k:9\nx", "delete 1", "p1 deleted by 1 at 34"},
		{"kick of many", "1 put 0 50 9 1\nx\nput 0 50 9 1\ny", "kick 5", "u1 ready by 1 at 42, u2 ready"},
		{"flush of many", "1 put 0 0 9 1\nx\nput 0 0 9 1\ny", "flush-tube default", "d1 by 1 at 52, d2"},
		{"move to another tube", "1 put 0 0 9 1\nx\nreserve", "move-job 1 b", "p1 ready by 1 at 39"},
		{"a setting", "", "set-dlq a 3 b", "s by 1 at 15"},
		// A new leader would let the old holder release what he was told is moved.
		{"move of a held job to its own tube", "1 put 0 0 9 1\nx\nreserve", "move-job 1 default", "u1 ready by 1 at 45"},
		// A standby has it held, or its session's end is being carried out.
		{"a duplicate that raises a held job", "1 put 9 0 9 1 idp:k\nx\nreserve", "put 1 0 9 1 idp:k\ny", "u1 stays by 1 at 53"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, record := recordedSim()
			one, two := s.open(), s.open()
			if who, lines, ok := strings.Cut(x.before, " "); ok {
				map[string]*simConn{"1": one, "2": two}[who].say(strings.Split(lines, "\n")...)
			}
			s.Wait(time.Second)
			from := len(record.entries)
			one.say(strings.Split(x.say, "\n")...)
			if got := record.since(from); got != x.want {
				t.Errorf("recorded %q, want %q", got, x.want)
			}
		})
	}
}

// A plantClient is not told of its reservation before that is committed.
func TestRepliesOfReservationsDependOnTheirRecords(t *testing.T) {
	for name, say := range map[string]string{
		"reserve": "reserve", "reserve-batch": "reserve-batch 2", "reserve-job": "reserve-job 1", "touch": "reserve\ntouch 1", "touch-all": "reserve\ntouch-all",
	} {
		s, record := recordedSim()
		c := s.open()
		c.say("put 0 0 9 1", "x")
		record.committed = record.pos
		c.out.Pos = 0
		c.say(strings.Split(say, "\n")...)
		if c.out.Pos != record.pos || record.entries[len(record.entries)-1].kind != 'h' {
			t.Errorf("%s: the reply depends on %d, and %d is on record", name, c.out.Pos, record.pos)
		}
	}
	for _, wait := range []string{"reserve", "reserve-batch 2 9"} {
		s, record := recordedSim()
		worker, producer := s.open(), s.open()
		worker.say(wait)
		producer.say("put 0 0 9 1", "x")
		if worker.out.Pos != record.pos || record.entries[len(record.entries)-1].kind != 'h' {
			t.Errorf("%s that waits: the reply depends on %d, and %d is on record", wait, worker.out.Pos, record.pos)
		}
	}
}

// Another client may have been told that a job is ready whose time to run has ended: so that is on
// record, also where there is no room for more.
func TestTheEndOfATimeToRunIsRecordedWhateverRoomThereIs(t *testing.T) {
	for _, full := range []error{nil, journal.ErrRoom, journal.ErrNoSpace} {
		s, record := recordedSim()
		worker, other := s.open(), s.open()
		worker.say("put 0 0 2 1", "x", "reserve")
		from := len(record.entries)
		record.err = full
		s.Wait(3 * time.Second)
		if got := record.since(from); got != "u1 ready" || record.entries[from].record.Timeouts != 1 {
			t.Errorf("%v: recorded %q, want that the job is ready", full, got)
		}
		record.err = nil
		other.out.Pos = 0
		other.say("reserve")
		if other.out.Pos < record.pos {
			t.Errorf("%v: the next reservation depends on %d of %d", full, other.out.Pos, record.pos)
		}
	}
}

// One record tells the end of a session, however much it holds, before the first of it is ready.
func TestTheEndOfASessionIsOneRecord(t *testing.T) {
	s, record := recordedSim()
	idle, worker, waits := s.open(), s.open(), s.open()
	for range 3 {
		worker.say("put 0 0 9 1", "x")
	}
	worker.say("reserve-batch 3")
	waits.say("reserve")
	from := len(record.entries)
	_ = idle.Close()
	if got := record.since(from); got != "" {
		t.Errorf("a session that never held anything has recorded %q", got)
	}
	_ = worker.Close()
	if got := record.since(from); got != "c2, h1 by 3 at 9" {
		t.Errorf("recorded %q", got)
	}
	if waits.out.Pos != record.pos {
		t.Errorf("the job is handed over at %d of %d", waits.out.Pos, record.pos)
	}
	from = len(record.entries)
	waits.say("delete 1")
	_ = waits.Close()
	if got := record.since(from); !strings.HasSuffix(got, ", c3") {
		t.Errorf("a session that holds nothing any more has recorded %q", got)
	}
}

// A session that was claimed leaves when the job has reached it: its end comes behind the hold.
func TestTheEndOfASessionComesBehindItsLastHold(t *testing.T) {
	s, record := recordedSim()
	worker, producer := s.open(), s.open()
	worker.say("reserve")
	loop := worker.loop
	from := len(record.entries)
	sh := s.engine.defaultTube.shard
	sh.lock(loop.by(), s.now)
	claimed := worker.session.client.claim() // by another loop, which has not reserved the job yet
	to, waiter := worker.session.client.set(), worker.session.client.watched[0].waiter
	sh.unlock(loop.by())
	if !claimed {
		t.Fatal("the worker does not wait")
	}
	if worker.session.Close(s.now) || len(record.entries) != from {
		t.Fatalf("it has left while a job was on its way: %q", record.since(from))
	}
	worker.ended = true
	sh.lock(loop.by(), s.now)
	worker.session.client.watched[0].dequeue()
	sh.unlock(loop.by())
	producer.say("put 0 0 9 1", "x")
	sh.lock(loop.by(), s.now)
	r, j := sh.find(1)
	pos, err := sh.reserve(to, r, j)
	if err != nil {
		t.Fatal(err)
	}
	waiter.Deliver(loop.by(), 1, pos)
	sh.unlock(loop.by())
	worker.loop.Wake()
	s.Settle()
	if got := record.since(from); got != "p1 ready by 2 at 16, h1 by 1 at 9, c1" {
		t.Errorf("recorded %q", got)
	}
}

// A put that is on record and cannot become a job is taken back by a record that names the put:
// the delete of a job that was put looks otherwise.
func TestAPutThatIsTakenBackNamesItself(t *testing.T) {
	s, record := recordedSim()
	c := s.open()
	big := strings.Repeat("x", 2*pinnedSize)
	c.say(fmt.Sprintf("put 0 0 9 %d", len(big)), big, "put 0 0 9 1", "y")
	if got := record.since(0); !strings.HasPrefix(got, "p1 ready by 1 at ") {
		t.Fatalf("recorded %q", got)
	}
	put := record.entries[0].record.Origin
	c.session.CommandEnds(put.Offset)
	sh := s.engine.defaultTube.shard
	in := &Incoming{id: 1, size: uint32(len(big)), ticket: journal.Ticket{Pos: 1, Segment: record.jobs[1].segment}}
	sh.lock(c.loop.by(), s.now)
	err := c.loop.by().unrecord(c.session.client.used, in, c.session.client.Source())
	sh.unlock(c.loop.by())
	if last := record.entries[len(record.entries)-1]; err != nil || last.kind != 'd' || last.record.Origin != put {
		t.Errorf("%v: recorded %+v, want the put's origin %+v", err, last, put)
	}
}

// Who takes office ends all holds that he finds, by records: all members have their jobs ready.
func TestWhoTakesOfficeEndsAllHoldsByRecords(t *testing.T) {
	leader, first := recordedSim()
	a, b := leader.open(), leader.open()
	for range 4 {
		a.say("put 0 0 9 1", "x")
	}
	a.say("reserve-batch 2")
	b.say("reserve", "reserve", "delete 3")
	members := map[string]*Follower{}
	second := &tape{file: newFile(nil)}
	for _, name := range []string{"next", "other"} {
		e := New(Config{Info: testInfo, Start: time.Unix(0, 0)})
		defer e.Discard()
		members[name] = e.Follow(clock.Always)
		members[name].Strict()
		members[name].feed(t, first.entries)
	}
	next, other := members["next"], members["other"]
	if got := strings.Count(other.shared.standing(), "reserved"); got != 3 {
		t.Fatalf("%d jobs are held: %s", got, other.shared.standing())
	}
	next.RecordIn(heldTape{second})
	next.Serve(5, 0)
	other.feed(t, second.entries)
	for name, f := range members {
		if got := f.shared.standing(); got != "1 ready, 2 ready, 4 ready" || f.shared.Contradictions() != 0 {
			t.Errorf("%s has %s, %d contradictions", name, got, f.shared.Contradictions())
		}
	}
	if n := len(second.entries); n != 2 || strings.Trim(second.since(0), "c12, ") != "" {
		t.Errorf("recorded %q, want two ends of sessions", second.since(0))
	}
	if errors.Is(first.err, journal.ErrFailed) {
		t.Fatal(first.err)
	}
}
