package shard

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
)

// bodyFiles are those of a member. What is in them is in bodies of its journal.
type bodyFiles struct {
	live   map[uint32]int64 // bodies that jobs refer to, by file
	last   journal.Place
	writes int
}

// isMember has bodies leave memory for files, which are empty.
func (f *file) isMember() {
	f.member = &bodyFiles{live: map[uint32]int64{}, last: journal.Place{Segment: inLog + 1}}
	clear(f.bodies)
}

// Forget implements record.Files.
func (f *file) Forget(at journal.Place, _ uint32) {
	if f.member.live[at.Segment]--; f.member.live[at.Segment] < 0 {
		panic("a body is forgotten to which nobody refers")
	}
}

// Crowded implements record.Files.
func (f *file) Crowded() {}

// copyBody copies a body to a file.
func (f *file) copyBody(id uint64, body []byte) (at journal.Place) {
	m := f.member
	if m.last.Offset++; m.last.Offset > 5 {
		m.last = journal.Place{Segment: m.last.Segment + 1, Offset: 1}
	}
	m.live[m.last.Segment]++
	f.bodies[m.last] = bodied{id, bytes.Clone(body)}
	return m.last
}

// evictAll has all bodies leave memory that can. Those of a member are copied to files, which fails now and then; and
// files are emptied.
func (f *file) evictAll(e *Engine) {
	if f.member == nil {
		e.evictTo(0, 0, everyEvict)
		e.evictTo(0, 0, everyEvict) // also what was wanted
		return
	}
	f.spill(e)
	if m := f.member; m.writes%3 == 0 {
		for n := uint32(inLog + 1); n < m.last.Segment; n++ {
			if m.live[n] > 0 {
				f.moveAll(e, n)
				break
			}
		}
	}
	f.checkFiles(e)
}

// spill hands all bodies out, and copies them.
func (f *file) spill(e *Engine) {
	var list []journal.Record
	e.copies = &copies{give: func(r *journal.Record) bool {
		list = append(list, copied(r))
		return true
	}}
	e.evictTo(0, 0, everyEvict)
	e.copies = nil
	for _, r := range list {
		if f.member.writes++; f.member.writes%7 == 0 && e.Spilled(r.ID, journal.Place{}) {
			panic("a job refers to what could not be written")
		}
		if at := f.copyBody(r.ID, r.Body); !e.Spilled(r.ID, at) {
			f.Forget(at, r.BodySize())
		}
	}
}

// moveAll empties a file.
func (f *file) moveAll(e *Engine, number uint32) {
	var places []journal.Place
	for at := range f.bodies {
		if at.Segment == number {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, func(a, b journal.Place) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, from := range places {
		b := f.bodies[from]
		if !e.Leaves(b.id, from) {
			continue
		}
		if to := f.copyBody(b.id, b.body); e.Moved(b.id, from, to) {
			f.Forget(from, 0)
		} else {
			f.Forget(to, 0)
		}
	}
	if n := f.member.live[number]; n > 0 {
		panic("bodies are left in a file that was emptied")
	}
	for _, at := range places {
		delete(f.bodies, at)
	}
}

// checkFiles looks whether files count what jobs refer to.
func (f *file) checkFiles(e *Engine) {
	want := map[uint32]int64{}
	for _, sh := range e.shards {
		sh.jobs.Walk(^ref(0), math.MaxInt, func(r ref) {
			if j := sh.job(r); j.state != tombstone && j.size > 0 && j.segment > inLog {
				want[j.segment]++
			}
		})
	}
	for n := uint32(inLog); n <= f.member.last.Segment; n++ {
		if f.member.live[n] != want[n] {
			panic("a file counts other bodies than those that jobs refer to")
		}
	}
}

// memberSim is a simulator of a member in which nothing leaves memory by itself.
func memberSim() (*sim, *file) {
	s := newLimitedSim(100_000, 1, Limits{Bodies: someBodies})
	f := newHoldingFile()
	f.isMember()
	s.engine.SpillTo(f.file)
	s.engine.recordIn(f)
	return s, f.file
}

// memberWith is a memberSim after some commands of a client, all that they have recorded being committed.
func memberWith(commands ...string) (*sim, *file, *simConn) {
	s, f := memberSim()
	c := s.open()
	c.say(commands...)
	f.committed = f.pos
	return s, f, c
}

// hand hands out all bodies.
func (s *sim) hand() (list []journal.Record) {
	s.engine.copies = &copies{give: func(r *journal.Record) bool {
		list = append(list, copied(r))
		return true
	}}
	s.engine.evictTo(0, 0, everyEvict)
	s.engine.copies = nil
	return list
}

// near is the name of a tube that is in the shard of the default one.
func (s *sim) near() string {
	for n := 0; ; n++ {
		if name := fmt.Sprint("near", n); s.engine.shardFor([]byte(name)) == s.engine.defaultTube.shard {
			return name
		}
	}
}

// A member copies only what is committed.
func TestAMemberCopiesOnlyWhatIsCommitted(t *testing.T) {
	s, _, c := memberWith("put 0 0 9 1\r\nx")
	defer s.engine.Discard()
	c.say("put 0 0 9 1\r\ny")
	if list := s.hand(); len(list) != 1 || list[0].ID != 1 || string(list[0].Body) != "x" || list[0].Tube != "default" {
		t.Errorf("copied are %+v", list)
	}
	if list := s.hand(); len(list) != 0 {
		t.Errorf("copied again are %+v", list)
	}
}

// A job that was moved within its shard has two entries there, and its body is copied once.
func TestABodyWithTwoEntriesIsCopiedOnce(t *testing.T) {
	s, f := memberSim()
	defer s.engine.Discard()
	c := s.open()
	c.say("put 0 0 9 1\r\nx", "move-job 1 "+s.near(), "put 0 0 9 1\r\ny")
	f.committed = f.pos
	if n := s.engine.defaultTube.shard.residents.Len(); n != 3 {
		t.Fatalf("two jobs have %d entries", n)
	}
	if list := s.hand(); len(list) != 2 || list[0].ID != 1 || list[1].ID != 2 {
		t.Errorf("copied are %+v", list)
	}
}

// A body that could not be written stays, and is handed out again.
func TestABodyThatCouldNotBeCopiedStaysAndIsTriedAgain(t *testing.T) {
	s, _, c := memberWith("put 0 0 9 1\r\nx")
	defer s.engine.Discard()
	for range 3 {
		if list := s.hand(); len(list) != 1 || s.engine.Spilled(1, journal.Place{}) || s.coldJobs() != 0 {
			t.Fatalf("copied are %+v, %d are cold", list, s.coldJobs())
		}
	}
	c.told(t, "RESERVED 1 1\r\nx\r\n", "reserve")
}

// What is said of a copy counts for nothing when the job has ended since, or has got another full record, or the engine
// has another life.
func TestACopyOfWhatHasChangedIsNotReferredTo(t *testing.T) {
	at := journal.Place{Segment: 2, Offset: 10}
	for name, command := range map[string]string{
		"deleted": "delete 1", "moved": "move-job 1 a", "moved within its shard": "move-job 1 ", "a tombstone": "delete 1", "moved and back": "move-job 1 a\r\nmove-job 1 default",
	} {
		s, f := memberSim()
		c := s.open()
		if name == "moved within its shard" {
			command += s.near()
		}
		put := "put 0 0 9 1\r\nx"
		if name == "a tombstone" {
			put = "put 0 0 9 1 idp:k:9\r\nx"
		}
		c.say(put)
		f.committed = f.pos
		if list := s.hand(); len(list) != 1 {
			t.Fatalf("copied are %+v", list)
		}
		c.say(command)
		f.committed = f.pos
		if s.engine.Spilled(1, at) || s.coldJobs() != 0 {
			t.Errorf("%s: a job refers to the copy", name)
		}
		if list := s.hand(); name[0] == 'm' && (len(list) != 1 || list[0].ID != 1) {
			t.Errorf("%s: copied again are %+v", name, list)
		}
		s.engine.Discard()
		if s.engine.Spilled(1, at) || s.engine.Leaves(1, at) || s.engine.Moved(1, at, at) {
			t.Errorf("%s: an engine that was discarded refers to it", name)
		}
	}
}

// A body that came back from its file leaves memory again without being copied, until the job gets another full record:
// the copy names another tube then.
func TestAJobForgetsItsPlaceWhenItIsMoved(t *testing.T) {
	s, f, c := memberWith("put 0 0 9 1\r\nx")
	defer s.engine.Discard()
	f.spill(s.engine)
	if got := c.say("stats-job 1"); !strings.Contains(got, "\nfile: 1\n") {
		t.Errorf("its record is not in the log: %q", got)
	}
	f.warm(s.engine)
	if list := s.hand(); len(list) != 0 || s.coldJobs() != 1 {
		t.Errorf("copied again are %+v, and %d are cold", list, s.coldJobs())
	}
	f.warm(s.engine)
	c.say("move-job 1 a")
	f.committed = f.pos
	if f.member.live[2] != 0 {
		t.Error("its place is not forgotten")
	}
	if list := s.hand(); len(list) != 1 || list[0].Tube != "a" || s.coldJobs() != 0 {
		t.Errorf("copied are %+v, and %d are cold", list, s.coldJobs())
	}
}

// A job ends, and its body's place is forgotten, be it in memory or not; that of a tombstone as well.
func TestAPlaceIsForgottenWhenItsJobEnds(t *testing.T) {
	for _, put := range []string{"put 0 0 9 1\r\nx", "put 0 0 9 1 idp:k:9\r\nx"} {
		for _, warm := range []bool{false, true} {
			s, f, c := memberWith(put)
			if f.spill(s.engine); f.member.live[2] != 1 {
				t.Fatalf("%d bodies are in the file", f.member.live[2])
			}
			if warm {
				f.warm(s.engine)
			}
			if c.say("delete 1"); f.member.live[2] != 0 {
				t.Errorf("%q, in memory: %v: %d bodies are in the file", put, warm, f.member.live[2])
			}
			f.checkFiles(s.engine)
			s.engine.Discard()
		}
	}
}

// When a file is emptied, a body that is in memory as well only forgets it, and one that comes back meanwhile does, too.
func TestABodyInMemoryForgetsAFileThatIsEmptied(t *testing.T) {
	s, f, _ := memberWith("put 0 0 9 1\r\nx")
	defer s.engine.Discard()
	f.spill(s.engine)
	from := f.member.last
	if s.engine.Leaves(1, journal.Place{Segment: 2, Offset: 77}) || !s.engine.Leaves(1, from) {
		t.Error("what is needed is not known by its place")
	}
	to := f.copyBody(1, []byte("x"))
	f.warm(s.engine)
	if s.engine.Moved(1, from, to) {
		t.Error("what is in memory refers to a place")
	}
	f.Forget(to, 1)
	f.checkFiles(s.engine)
	if n := f.member.live[2]; n != 0 {
		t.Errorf("%d bodies are left", n)
	}
	if list := s.hand(); len(list) != 1 {
		t.Errorf("copied again are %+v", list)
	}
}

// A body that somebody needs in memory when its copy is there stays, and needs no other copy.
func TestABodyThatAReplyRefersToStaysAlthoughItIsCopied(t *testing.T) {
	large := string(bytes.Repeat([]byte("x"), pinnedSize))
	s, f, _ := memberWith("put 0 0 9 32768\r\n" + large)
	defer s.engine.Discard()
	if list := s.hand(); len(list) != 1 || string(list[0].Body) != large {
		t.Fatalf("%d bodies are copied", len(list))
	}
	sh, _ := s.engine.defaultTube.shard, 0
	_, j := sh.find(1)
	p := sh.pin(j, 0)
	if at := f.copyBody(1, []byte(large)); !s.engine.Spilled(1, at) || s.coldJobs() != 0 {
		t.Error("it has left")
	}
	p.Release()
	if list := s.hand(); len(list) != 0 || s.coldJobs() != 1 {
		t.Errorf("then %d are copied again, and %d are cold", len(list), s.coldJobs())
	}
}

// Under one lock no more is copied than 64 KiB, or one large body, and who has enough is given no more. What was given
// is told.
func TestLittleIsCopiedUnderOneLock(t *testing.T) {
	put := "put 0 0 9 5000\r\n" + strings.Repeat("x", 5000)
	s, _, _ := memberWith(slices.Repeat([]string{put}, 30)...)
	defer s.engine.Discard()
	n := 0
	s.engine.copies = &copies{give: func(r *journal.Record) bool { n++; return false }}
	freed, more := s.engine.evictTo(0, 0, everyEvict)
	if s.engine.copies = nil; n*5000 > copyMost || n < 5 || !more || freed != int64(n)*arena.Footprint(5000) {
		t.Errorf("%d bodies of 5000 bytes are copied, %d bytes are told, more: %v", n, freed, more)
	}
}

// A full record that comes again says the body: what was in a file is in memory, and what is in both is in memory only.
func TestAStandbyIsToldAFullRecordOfAJobInAFile(t *testing.T) {
	for _, warm := range []bool{false, true} {
		s, f := memberSim()
		follower := s.engine.Follow(s.now)
		at := journal.Place{Segment: 2, Offset: 7}
		f.bodies[at] = bodied{1, []byte("x")}
		f.member.live[2] = 1
		r := journal.Record{ID: 1, State: journal.Ready, TTR: 9, Tube: "a", Absent: &journal.Fetch{ID: 1, Place: at, Size: 1}}
		if _, err := follower.Full(&r, at); err != nil || s.coldJobs() != 1 {
			t.Fatalf("%d jobs are cold, %v", s.coldJobs(), err)
		}
		if warm {
			f.warm(s.engine)
		}
		r.Absent, r.Body = nil, []byte("x")
		if _, err := follower.Full(&r, journal.Place{Segment: inLog}); err != nil || s.coldJobs() != 0 || f.member.live[2] != 0 {
			t.Errorf("then %d jobs are cold, %d bodies are in the file, %v", s.coldJobs(), f.member.live[2], err)
		}
		if list := s.hand(); len(list) != 1 {
			t.Errorf("copied are %+v", list)
		}
		s.engine.Discard()
	}
}
