package shard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
)

// A term is a journal whose commits another server may put an end to.
type term struct {
	*cramped
	barriers int
	full     error // of all but deletes
}

func (f *term) Barrier() journal.Pos {
	f.barriers++
	return f.next()
}

func (f *term) Put(r *journal.Record) (journal.Ticket, error) {
	if f.full != nil {
		return journal.Ticket{}, f.full
	}
	return f.cramped.Put(r)
}

func (f *term) Update(r *journal.Record) (journal.Pos, error) {
	if f.full != nil {
		return 0, f.full
	}
	return f.cramped.Update(r)
}

// newTerm is a sim with such a journal, and with jobs 1 and 5 ready, 2 reserved by
// the client, 3 buried and 4 delayed.
func newTerm(t *testing.T) (*sim, *term, *simConn) {
	s := newSim(200_000, 1)
	f := &term{cramped: &cramped{file: newFile(nil), room: true}}
	s.engine.recordIn(f)
	t.Cleanup(s.engine.Discard)
	c := s.open()
	c.say(
		"put 1 0 9 1", "a", "put 0 0 9 1", "b", "put 0 0 9 1", "c", "put 0 9 9 1", "d", "put 2 0 9 1", "e",
		"reserve-job 2", "reserve-job 3", "bury 3 0", "watch other",
	)
	c.session.Replied(0, &c.out)
	f.committed = f.pos
	f.barriers = 0
	c.out.Pos = 0
	return s, f, c
}

// settled completes the position of the client's replies, as the reactor does before it
// sends them.
func (c *simConn) settled() journal.Pos {
	c.session.Replied(0, &c.out)
	pos := c.out.Pos
	c.out.Pos = 0
	return pos
}

// What a reply tells that clients share must be proven true. Which reply waits for
// what: for a record of its own, for a barrier, or for nothing.
func TestRepliesWaitForAProofOfWhatTheyTell(t *testing.T) {
	const (
		nothing = iota
		ownRecord
		barrier
	)
	big := strings.Repeat("x", 100_000)
	for _, x := range []struct {
		send, reply string
		waits       int
	}{
		{"put 0 0 9 1\r\nx\r\n", "INSERTED", ownRecord},
		{"put 0 5 9 1\r\nx\r\n", "INSERTED", ownRecord},
		{"put 0 0 9 100000\r\n" + big + "\r\n", "INSERTED", ownRecord},
		{"put 0 0 9 1 idp:k con:c\r\nx\r\n", "INSERTED", ownRecord},
		{"put 0 0 9 1 idp:k\r\nx\r\nput 0 0 9 1 idp:k\r\nx\r\n", "INSERTED 6\r\nINSERTED 6 READY", barrier},
		{"put 5 0 9 1 idp:k\r\nx\r\nput 0 0 9 1 idp:k\r\nx\r\n", "INSERTED 6\r\nINSERTED 6 READY 0", ownRecord},
		{"put 0 0 9 1 idp:k:9\r\nx\r\ndelete 6\r\n", "INSERTED 6\r\nDELETED", ownRecord},
		{"put 0 0 9 1 idp:k:9\r\nx\r\ndelete 6\r\nput 0 0 9 1 idp:k\r\nx\r\n", "INSERTED 6\r\nDELETED\r\nINSERTED 6 DELETED", barrier},
		{"put 0 0 9 1\r\nxx\r\n", "EXPECTED_CRLF", nothing},
		{"put 0 0 9 300000\r\n" + big + big + big + "\r\n", "JOB_TOO_BIG", nothing},
		{"put 0 0\r\n", "BAD_FORMAT", nothing},
		{"nonsense\r\n", "UNKNOWN_COMMAND", nothing},
		{"use x\r\n", "USING", nothing},
		{"watch x\r\n", "WATCHING", nothing},
		{"ignore other\r\n", "WATCHING", nothing},
		{"list-tube-used\r\n", "USING", nothing},
		{"list-tubes-watched\r\n", "OK", nothing},
		{"delete 1\r\n", "DELETED", ownRecord},
		{"delete 2\r\n", "DELETED", ownRecord},
		{"delete 99\r\n", "NOT_FOUND", barrier},
		{"release 2 0 0\r\n", "RELEASED", ownRecord},
		{"release 2 0 9\r\n", "RELEASED", ownRecord},
		{"release 1 0 0\r\n", "NOT_FOUND", barrier},
		{"bury 2 0\r\n", "BURIED", ownRecord},
		{"bury 1 0\r\n", "NOT_FOUND", barrier},
		{"kick-job 3\r\n", "KICKED", ownRecord},
		{"kick-job 4\r\n", "KICKED", ownRecord},
		{"kick-job 1\r\n", "NOT_FOUND", barrier},
		{"kick 5\r\n", "KICKED 1", barrier}, // it tells that no more were buried, too
		{"use x\r\nkick 5\r\n", "USING x\r\nKICKED 0", barrier},
		{"touch 2\r\n", "TOUCHED", barrier},
		{"touch 1\r\n", "NOT_FOUND", barrier},
		{"reserve\r\n", "RESERVED 1", barrier},
		{"reserve-with-timeout 0\r\n", "RESERVED 1", barrier},
		{"reserve-job 1\r\n", "RESERVED 1", barrier},
		{"reserve-job 3\r\n", "RESERVED 3", ownRecord},
		{"reserve-job 99\r\n", "NOT_FOUND", barrier},
		{"ignore default\r\nreserve-with-timeout 0\r\n", "WATCHING 1\r\nTIMED_OUT", barrier},
		{"peek 1\r\n", "FOUND", barrier},
		{"peek 99\r\n", "NOT_FOUND", barrier},
		{"peek-ready\r\n", "FOUND", barrier},
		{"peek-delayed\r\n", "FOUND", barrier},
		{"peek-buried\r\n", "FOUND", barrier},
		{"use x\r\npeek-ready\r\n", "USING x\r\nNOT_FOUND", barrier},
		{"pause-tube default 1\r\n", "PAUSED", barrier},
		{"pause-tube none 1\r\n", "NOT_FOUND", barrier},
		{"list-tubes\r\n", "OK", barrier},
		{"stats\r\n", "OK", barrier},
		{"stats-job 1\r\n", "OK", barrier},
		{"stats-job 99\r\n", "NOT_FOUND", barrier},
		{"stats-tube default\r\n", "OK", barrier},
		{"stats-tube none\r\n", "NOT_FOUND", barrier},
		{"flush-tube default\r\n", "FLUSHED 5", barrier},
		{"delete-tube-jobs default buried 1\r\n", "DELETED 1", barrier},
		{"kick-tube default 5\r\n", "KICKED 1", barrier},
		{"move-job 1 x\r\n", "MOVED", ownRecord},
		{"move-job 2 default\r\n", "MOVED", barrier}, // it is ready, which is not on record
		{"move-job 99 x\r\n", "NOT_FOUND", barrier},
		{"move-tube default ready x 1\r\n", "MOVED 1", barrier},
		{"reserve-batch 2 0\r\n", "RESERVED_BATCH 2", barrier},
		{"list-jobs default ready 5\r\n", "OK", barrier},
		{"peek-tube default ready\r\n", "FOUND", barrier},
		{"touch-all\r\n", "TOUCHED_ALL 1", barrier},
		{"stats-conn\r\n", "OK", barrier},
		{"stats-conn 1\r\n", "OK", barrier},
		{"stats-conn 99\r\n", "NOT_FOUND", barrier},
		{"list-connections\r\n", "OK", barrier},
		// A record behind what was seen proves that as well; one before does not.
		{"reserve\r\ndelete 1\r\n", "RESERVED 1 1\r\na\r\nDELETED", ownRecord},
		{"delete 1\r\nreserve\r\n", "DELETED\r\nRESERVED 5", barrier},
		{"stats-tube none\r\nput 0 0 9 1\r\nx\r\n", "NOT_FOUND\r\nINSERTED", ownRecord},
		{"use x\r\nput 0 0 9 1\r\nx\r\nlist-tube-used\r\n", "USING x\r\nINSERTED 6\r\nUSING x", ownRecord},
	} {
		t.Run(strings.ReplaceAll(x.send[:min(len(x.send), 50)], "\r\n", "|"), func(t *testing.T) {
			_, f, c := newTerm(t)
			before := f.pos
			if err := c.Send([]byte(x.send)); err != nil {
				t.Fatal(err)
			}
			recorded := f.pos
			pos := c.settled()
			if got := c.took(); !strings.HasPrefix(got, x.reply) {
				t.Fatalf("answered %.60q, want %q", got, x.reply)
			}
			switch x.waits {
			case nothing:
				if pos != 0 || f.barriers != 0 {
					t.Errorf("it waits for %d, with %d barriers", pos, f.barriers)
				}
			case ownRecord:
				if recorded == before || pos != recorded || f.barriers != 0 {
					t.Errorf("it waits for %d, with %d barriers; its record ends at %d", pos, f.barriers, recorded)
				}
			case barrier:
				if f.barriers != 1 || pos != recorded+10 {
					t.Errorf("it waits for %d, with %d barriers; records end at %d", pos, f.barriers, recorded)
				}
			}
			if again := c.settled(); again != 0 {
				t.Errorf("replies to come wait for %d", again)
			}
		})
	}
}

// The replies of a loop's sessions stand in one Output: what one has noted and not told must not
// be taken for a note of the next one's.
func TestACommandThatTellsNothingLeavesNothingToProve(t *testing.T) {
	s, f, c := newTerm(t)
	c.say("ignore default", "release 2 0 0")
	c.settled()
	f.barriers = 0
	c.say("reserve-with-timeout 5")
	if pos := c.settled(); pos != 0 || f.barriers != 0 {
		t.Errorf("what waits leaves replies that wait for %d, with %d barriers", pos, f.barriers)
	}
	// The job that ends the wait has gone by then: it goes on.
	if err := s.open().Send([]byte("use other\r\nput 0 0 9 1\r\nx\r\nflush-tube other\r\n")); err != nil {
		t.Fatal(err)
	}
	f.barriers = 0
	c.work()
	if pos := c.settled(); pos != 0 || f.barriers != 0 {
		t.Errorf("what waits on leaves replies that wait for %d, with %d barriers", pos, f.barriers)
	}
	c.out.ShowsState()
	c.out.Buf = append(c.out.Buf, "FOUND"...)
	c.out.Discard()
	if pos := c.settled(); pos != 0 || len(c.out.Buf) != 0 {
		t.Errorf("what was discarded leaves %q, which waits for %d", c.out.Buf, pos)
	}
}

func TestRepliesThatEndAWaitNeedABarrierOfTheirOwn(t *testing.T) {
	for _, x := range []struct {
		name, reply string
		end         func(s *sim, c *simConn)
	}{
		{"a job", "RESERVED 6 1\r\nx\r\n", func(s *sim, _ *simConn) { s.open().say("use other", "put 0 0 9 1", "x") }},
		{"the time-out", "TIMED_OUT\r\n", func(s *sim, _ *simConn) { s.Wait(5 * time.Second) }},
		{"the client's end", "TIMED_OUT\r\n", func(_ *sim, c *simConn) { _ = c.HalfClose() }},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, f, c := newTerm(t)
			if got := c.say("ignore default", "release 2 0 0", "reserve-with-timeout 5"); got != "WATCHING 1\r\nRELEASED\r\n" {
				t.Fatalf("answered %q", got)
			}
			c.settled()
			f.barriers = 0
			x.end(s, c)
			before := f.pos
			if pos := c.settled(); f.barriers != 1 || pos <= before {
				t.Errorf("it waits for %d, with %d barriers; records end at %d", pos, f.barriers, before)
			}
			if got := c.took(); got != x.reply {
				t.Errorf("answered %q, want %q", got, x.reply)
			}
		})
	}
}

// Where others follow the journal, a job must not be in another state than they know of.
func TestABuriedJobIsNotReservedIfThatCannotBeRecorded(t *testing.T) {
	for _, id := range []string{"3", "4"} {
		_, f, c := newTerm(t)
		f.full = errors.Join(errors.New("disk"), journal.ErrNoSpace)
		if got := c.say("reserve-job " + id); got != "OUT_OF_MEMORY\r\n" {
			t.Errorf("answered %q", got)
		}
		f.full = nil
		if got := c.say("kick-job " + id); got != "KICKED\r\n" {
			t.Errorf("afterwards, answered %q", got)
		}
	}
}

// A server that was replaced says nothing any more, not even that.
func TestARefusalAfterTheJournalsEndIsNotSent(t *testing.T) {
	_, f, c := newTerm(t)
	f.full = journal.ErrFailed
	if got := c.say("put 0 0 9 1", "x"); got != "INTERNAL_ERROR\r\n" {
		t.Errorf("answered %q", got)
	}
	if pos := c.settled(); f.barriers != 1 || pos == 0 {
		t.Errorf("it waits for %d", pos)
	}
}
