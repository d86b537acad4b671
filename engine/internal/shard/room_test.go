package shard

import (
	"fmt"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/engine/internal/reply"
)

// A cramped journal has no room until it is told to.
type cramped struct {
	*file
	room     bool
	refusals int
	refuse   func() // called whenever it refuses
}

func (c *cramped) check() error {
	if c.room || c.err != nil {
		return nil
	}
	c.refusals++
	if c.refuse != nil {
		c.refuse()
	}
	return fmt.Errorf("now: %w", journal.ErrRoom)
}

func (c *cramped) Put(r *journal.Record) (journal.Ticket, error) {
	if err := c.check(); err != nil {
		return journal.Ticket{}, err
	}
	return c.file.Put(r)
}

func (c *cramped) Update(r *journal.Record) (journal.Pos, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.file.Update(r)
}

func (c *cramped) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.file.Delete(id, former)
}

func (c *cramped) Set(s *journal.Setting) (journal.Pos, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.file.Set(s)
}

func (c *cramped) Replace(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	if err := c.check(); err != nil {
		return journal.Ticket{}, err
	}
	return c.file.Replace(r, former)
}

// sessions are those of the sim that are open.
func (s *sim) sessions() (list []*Session) {
	for _, c := range s.conns {
		if !c.ended {
			list = append(list, &c.session)
		}
	}
	return list
}

// newCramped is a sim with such a journal, which has room at first, and with job 1
// ready, 2 reserved by the client, 3 buried and 4 delayed.
func newCramped(t *testing.T) (*sim, *cramped, *simConn) {
	s := newSim(200_000, 1)
	f := &cramped{file: newFile(nil), room: true}
	s.engine.log.Journal = f
	c := s.open()
	c.say(
		"put 1 0 9 1", "a", "put 0 0 9 1", "b", "put 0 0 9 1", "c", "put 0 9 9 1", "d",
		"reserve-job 2", "reserve-job 3", "bury 3 0",
	)
	f.room = false
	return s, f, c
}

var cramping = map[string]struct{ command, reply string }{
	"put":                   {"put 0 0 9 1\r\nx\r\n", "INSERTED 5\r\n"},
	"put of a delayed job":  {"put 0 1 9 1\r\nx\r\n", "INSERTED 5\r\n"},
	"put of a large body":   {"put 0 0 9 100000\r\n" + strings.Repeat("x", 100000) + "\r\n", "INSERTED 5\r\n"},
	"put with tags":         {"put 0 0 9 1 idp:k:9 con:c\r\nx\r\n", "INSERTED 5\r\n"},
	"large put with tags":   {"put 0 0 9 100000 idp:k con:c:2\r\n" + strings.Repeat("x", 100000) + "\r\n", "INSERTED 5\r\n"},
	"put that expires":      {"put 0 0 9 1 exp:900\r\nx\r\n", "INSERTED 5\r\n"},
	"delete of a ready job": {"delete 1\r\n", "DELETED\r\n"},
	"delete of one's own":   {"delete 2\r\n", "DELETED\r\n"},
	"release":               {"release 2 5 0\r\n", "RELEASED\r\n"},
	"release with delay":    {"release 2 5 5\r\n", "RELEASED\r\n"},
	"bury":                  {"bury 2 5\r\n", "BURIED\r\n"},
	"kick":                  {"kick 10\r\n", "KICKED 1\r\n"},
	"kick-job of a buried":  {"kick-job 3\r\n", "KICKED\r\n"},
	"kick-job of a delayed": {"kick-job 4\r\n", "KICKED\r\n"},
	"reserve-job":           {"reserve-job 4\r\n", "RESERVED 4 1\r\nd\r\n"},
}

func TestACommandThatFindsNoRoomInTheJournalIsExecutedWhenThereIsSome(t *testing.T) {
	for name, x := range cramping {
		t.Run(name, func(t *testing.T) {
			s, f, c := newCramped(t)
			before := s.engine.dump()
			c.out.Pos = 0
			c.expect(t, "", "%s", x.command)
			if !c.waiting || f.refusals == 0 {
				t.Fatalf("waiting %v after %d refusals", c.waiting, f.refusals)
			}
			if c.out.Pos != 0 {
				t.Errorf("a reply that is not there depends on %d", c.out.Pos)
			}
			if after := s.engine.dump(); after != before {
				t.Errorf("it has changed\n%sto\n%s", before, after)
			}
			// Others go on meanwhile.
			s.open().expect(t, "FOUND 1 1\r\na\r\n", "peek 1\r\n")
			refusals := f.refusals
			s.engine.Room() // for nothing
			s.Settle()
			if f.refusals == refusals || !c.waiting {
				t.Fatalf("it was tried %d times more, waiting %v", f.refusals-refusals, c.waiting)
			}
			f.room = true
			s.engine.Room()
			s.Settle()
			if got := c.took(); got != x.reply {
				t.Fatalf("answered %.40q, want %.40q", got, x.reply)
			}
			c.expect(t, "USING default\r\n", "list-tube-used\r\n")
			for _, err := range (&census{engine: s.engine, sessions: s.sessions()}).run() {
				t.Error(err)
			}
		})
	}
}

// Puts that wait for room keep their tags, and the expiry of their tube, while others are put.
func TestPutsThatWaitForRoomKeepTheirTags(t *testing.T) {
	s, f, c := newCramped(t)
	f.room = true
	c.expect(t, "TUBE_SET\r\n", "set-tube default expire=50\r\n")
	f.room = false
	want := map[uint64]journal.Keys{
		5: {Unique: "u5", Seconds: 5, Terms: &journal.Terms{Group: "g5", Expires: 50}},
		6: {Limited: "l6", Limit: 6, Terms: &journal.Terms{Fair: "f6", Expires: 50}},
		7: {Terms: &journal.Terms{Expires: 7}},
		8: {Terms: &journal.Terms{Expires: 50}},
		9: {Unique: "u9"},
	}
	var clients []*simConn
	for i, tags := range []string{"idp:u5:5 grp:g5", "con:l6:6 fair:f6", "exp:7", "", "idp:u9 exp:0"} {
		c := s.open()
		clients = append(clients, c)
		if i%2 == 0 {
			c.expect(t, "", "put 0 0 9 1 %s\r\nx\r\n", tags)
		} else {
			c.expect(t, "", "%s\r\n", strings.TrimSpace("put 0 0 9 1 "+tags))
			c.expect(t, "", "x\r\n")
		}
	}
	f.room = true
	s.engine.Room()
	s.Settle()
	for _, c := range clients {
		c.took()
	}
	for id, keys := range want {
		if x := f.jobs[id]; x == nil || !x.full.Keys.Equal(&keys) {
			t.Errorf("job %d is on record as %+v, want the keys %+v", id, x, keys)
		}
	}
	s.noErrors(t)
}

// A put that waits for room goes on at another server, which is sent all of it again, whether its tube has a setting or
// not.
func TestAPutThatWaitsForRoomIsSentAgain(t *testing.T) {
	for _, x := range []struct{ setting, tags, added string }{
		{"", "", ""},
		{"", " exp:7", ""},
		{"", " exp:0", ""},
		{"", " idp:k:5 con:l:3 fair:f grp:g aft:h:settled exp:7", ""},
		{"expire=99", "", " exp:99"},
		{"expire=99", " exp:7", ""},
		{"expire=99", " exp:0", ""},
	} {
		for _, body := range []string{"abcd\r\n", "ab"} { // that has come with the line
			s, f, _ := newCramped(t)
			if f.room = true; x.setting != "" {
				s.open().expect(t, "TUBE_SET\r\n", "set-tube default %s\r\n", x.setting)
			}
			f.room = false
			c := s.open()
			c.expect(t, "", "put 7 0 9 4%s\r\n%s", x.tags, body)
			c.expect(t, "", "%s", strings.TrimPrefix("abcd\r\n", body))
			s.engine.Hold(true)
			d, ok := c.session.Detach()
			if !ok {
				t.Fatalf("put%s: its session is not detached", x.tags)
			}
			if got, want := string(d.Wait()), "put 7 0 9 4"+x.tags+x.added+"\r\nabcd\r\n"; got != want {
				t.Errorf("sent again is %q, want %q", got, want)
			}
		}
	}
}

func TestAFullDiskAnswersThoseWhoWaitForRoomInTheJournal(t *testing.T) {
	for name, x := range cramping {
		t.Run(name, func(t *testing.T) {
			s, f, c := newCramped(t)
			c.expect(t, "", "%s", x.command)
			f.err = journal.ErrNoSpace
			s.engine.Room()
			s.Settle()
			want := "OUT_OF_MEMORY\r\n"
			if strings.HasPrefix(x.command, "delete") || strings.HasPrefix(x.command, "reserve") {
				want = x.reply // they need no space, or do without
			}
			if got := c.took(); got != want {
				t.Fatalf("answered %.40q, want %.40q", got, want)
			}
		})
	}
}

func TestAClientThatClosesWhileItWaitsForRoomInTheJournalChangesNothing(t *testing.T) {
	for name, x := range cramping {
		t.Run(name, func(t *testing.T) {
			s, f, c := newCramped(t)
			c.expect(t, "", "%s", x.command)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			f.room = true
			s.engine.Room()
			s.Settle()
			if n := s.engine.Snapshot(s.now); n.Ready != 2 || n.Buried != 1 || n.Delayed != 1 || n.Reserved != 0 || len(f.jobs) != 4 {
				t.Errorf("%+v", n)
			}
			for _, err := range (&census{engine: s.engine}).run() {
				t.Error(err)
			}
		})
	}
}

// A large body is on record before it is a job. If its client goes before that, the
// record must not bring a job back.
func TestALargePutThatIsOnRecordAndBecomesNoJobIsDeletedThere(t *testing.T) {
	_, f, c := newCramped(t)
	c.expect(t, "", "put 0 0 9 100000\r\n%s\r\n", strings.Repeat("x", 100000))
	f.room = true
	if err := c.loop.by().recordLarge(c.session.client.used, c.session.incomingPut(), &c.out); err != nil || f.jobs[5] == nil {
		t.Fatalf("not recorded: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if f.jobs[5] != nil {
		t.Error("it is on record still")
	}
}

// Room may come while the command is being refused.
func TestRoomThatComesWhileACommandIsRefusedIsNotMissed(t *testing.T) {
	for name, x := range cramping {
		t.Run(name, func(t *testing.T) {
			s, f, c := newCramped(t)
			f.refuse = func() {
				f.room = true
				s.engine.Room()
			}
			c.expect(t, x.reply, "%s", x.command)
		})
	}
}

// A kick that goes on later does not keep replies of others back until its records
// are committed; its own is.
func TestAKickOverSeveralTurnsDependsOnItsRecordsWhenItIsAnswered(t *testing.T) {
	s := newSim(100, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	c := s.open()
	c.putMany(t, 1, 3*kickSlice, "put 0 9 9 0\r\n\r\n")
	c.out.Pos = 0
	l := slow(t, s)
	l.loop.allow(1)
	if c.start(t, "kick 1000000") != Wait {
		t.Fatal("a kick does not mind that the round is over")
	}
	if c.out.Pos != 0 {
		t.Errorf("a reply that is not there depends on %d", c.out.Pos)
	}
	last := f.pos
	l.loop.allow(kickSlice / 2)
	l.loop.Next(s.now)
	if c.session.Resume(s.now, &c.out) != Wait || c.out.Pos != 0 || f.pos == last {
		t.Errorf("a reply that is not there depends on %d", c.out.Pos)
	}
	l.rounds()
	if got := c.took(); got != fmt.Sprintf("KICKED %d\r\n", 3*kickSlice) || c.out.Pos != f.pos {
		t.Errorf("%q may be sent at %d, the last record is at %d", got, c.out.Pos, f.pos)
	}
}

// What a reply says is not there may be gone by a record that is not committed.
func TestARefusalDependsOnTheRecordThatCausedIt(t *testing.T) {
	for name, x := range map[string]struct{ change, command, reply string }{
		"delete after a delete":          {"delete 1", "delete 1", "NOT_FOUND\r\n"},
		"peek after a delete":            {"delete 1", "peek 1", "NOT_FOUND\r\n"},
		"peek-ready after a delete":      {"delete 1", "peek-ready", "NOT_FOUND\r\n"},
		"stats-job after a delete":       {"delete 1", "stats-job 1", "NOT_FOUND\r\n"},
		"reserve-job after a delete":     {"delete 1", "reserve-job 1", "NOT_FOUND\r\n"},
		"reserve after a delete":         {"delete 1", "reserve-with-timeout 0", "TIMED_OUT\r\n"},
		"kick-job after a kick":          {"kick-job 3", "kick-job 3", "NOT_FOUND\r\n"},
		"kick after a kick":              {"kick 9\r\nkick 9", "kick 9", "KICKED 0\r\n"},
		"peek-buried after a kick":       {"kick-job 3", "peek-buried", "NOT_FOUND\r\n"},
		"bury after a delete":            {"delete 2", "bury 2 0", "NOT_FOUND\r\n"},
		"release after a delete":         {"delete 2", "release 2 0 0", "NOT_FOUND\r\n"},
		"touch after a delete":           {"delete 2", "touch 2", "NOT_FOUND\r\n"},
		"stats-tube after the last left": {"delete 5", "stats-tube t", "NOT_FOUND\r\n"},
		"pause-tube after the last left": {"delete 5", "pause-tube t 9", "NOT_FOUND\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, c := newCramped(t)
			f.room = true
			c.say("use t", "put 0 0 9 0", "", "use default")
			f.committed = f.pos
			c.say(strings.Split(x.change, "\r\n")...)
			c.out.Pos = 0
			other := s.open()
			if other.expect(t, x.reply, "%s\r\n", x.command); other.out.Pos != f.pos {
				t.Errorf("the reply may be sent at %d, what it tells is recorded at %d", other.out.Pos, f.pos)
			}
		})
	}
}

// A body that is being sent stays as it is.
func TestALargeBodyOutlivesItsJobUntilItIsReleased(t *testing.T) {
	for _, size := range []int{pinnedSize, 64 << 10, 64<<10 + 1, 150_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newSim(200_000, 1)
			c := s.open()
			body := strings.Repeat("body", size/4+1)[:size]
			c.expect(t, "INSERTED 1\r\n", "put 0 0 9 %d\r\n%s\r\n", size, body)
			var out [3]reply.Output
			for i, line := range []string{"peek 1\r\n", "peek 1\r\n", "reserve\r\n"} {
				n, _ := c.decoder.Next([]byte(line), &c.cmd)
				if n != len(line) || c.session.Execute(s.now, &c.cmd, &out[i]) != Done || len(out[i].Bodies) != 1 {
					t.Fatalf("%q: %q and %d bodies", line, out[i].Buf, len(out[i].Bodies))
				}
			}
			flatten(&out[0])
			c.expect(t, "DELETED\r\n", "delete 1\r\n")
			for id := range 20 {
				c.expect(t, fmt.Sprintf("INSERTED %d\r\n", id+2), "put 0 0 9 %d\r\n%s\r\n", size, strings.Repeat("x", size))
			}
			for i, want := range []string{"FOUND", "FOUND", "RESERVED"} {
				flatten(&out[i])
				if got, want := string(out[i].Buf), fmt.Sprintf("%s 1 %d\r\n%s\r\n", want, size, body); got != want {
					t.Errorf("reply %d is %.40q with %d bytes, want %.40q with %d", i, got, len(got), want, len(want))
				}
			}
			for _, err := range (&census{engine: s.engine, sessions: []*Session{&c.session}}).run() {
				t.Error(err)
			}
			if sh := s.engine.defaultTube.shard; len(sh.pins) != 0 {
				t.Errorf("%d pins are left", len(sh.pins))
			}
		})
	}
}

// What is recorded of a put that had to wait for room is what the client has sent.
func TestAPutThatHasWaitedForRoomIsRecordedWithItsBody(t *testing.T) {
	for _, size := range []int{0, 1, pinnedSize - 1, pinnedSize, 100_000} {
		for _, inParts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, in parts %v", size, inParts), func(t *testing.T) {
				s, f, c := newCramped(t)
				body := strings.Repeat("body", size/4+1)[:size]
				if inParts {
					c.expect(t, "", "put 0 0 9 %d\r\n", size)
					c.expect(t, "", "%s\r\n", body)
				} else {
					c.expect(t, "", "put 0 0 9 %d\r\n%s\r\n", size, body)
				}
				s.engine.Room() // for nothing
				s.Settle()
				f.room = true
				s.engine.Room()
				s.Settle()
				if got := c.took(); got != "INSERTED 5\r\n" {
					t.Fatalf("answered %q", got)
				}
				if x := f.jobs[5]; x == nil || string(x.full.Body) != body {
					t.Fatalf("recorded with a body of %d bytes", len(x.full.Body))
				}
			})
		}
	}
}
