package shard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
)

// A holdingFile is a file that has reservations of no session.
type holdingFile struct {
	*file
	holds map[uint64]journal.Hold
}

func newHoldingFile() *holdingFile { return &holdingFile{newFile(nil), map[uint64]journal.Hold{}} }

// Hold implements Reservations.
func (f *holdingFile) Hold(h *journal.Hold) (journal.Pos, error) {
	if f.err != nil {
		return 0, f.err
	}
	f.holds[h.ID] = *h
	return f.next(), nil
}

func (f *holdingFile) Update(r *journal.Record) (journal.Pos, error) {
	pos, err := f.file.Update(r)
	if err == nil {
		delete(f.holds, r.ID)
	}
	return pos, err
}

func (f *holdingFile) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	pos, err := f.file.Delete(id, former)
	if err == nil {
		delete(f.holds, id)
	}
	return pos, err
}

func (f *holdingFile) Replace(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	ticket, err := f.file.Replace(r, former)
	if err == nil {
		delete(f.holds, r.ID)
	}
	return ticket, err
}

// tell is that of the file, with the holds behind it.
func (f *holdingFile) tell(to *Follower) error {
	if err := f.file.tell(to); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(f.holds)) {
		h := f.holds[id]
		if err := to.Hold(&h); err != nil {
			return err
		}
	}
	return nil
}

// Move also ends the hold that stands before it: its segment goes.
func (f *holdingFile) Move(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	ticket, err := f.file.Move(r, former)
	if err == nil {
		delete(f.holds, r.ID)
	}
	return ticket, err
}

// lingeringSim is a simulator whose default tube lingers for 50 seconds, and a client that has reserved job 1 there, for
// a time to run of 100.
func lingeringSim(t *testing.T) (*sim, *simConn) {
	s := newSim(100, 1)
	s.engine.recordIn(newHoldingFile())
	c := s.open()
	c.expect(t, "TUBE_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\na\r\n", "set-tube default linger=50\r\nput 0 0 100 1\r\na\r\nreserve\r\n")
	return s, c
}

// again restarts the server.
func (s *sim) again(t *testing.T) *simConn {
	t.Helper()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s.open()
}

// What a client does with a job that is held on record is what the next server knows.
func TestAHoldOnRecordEndsWithTheReservation(t *testing.T) {
	for do, want := range map[string]string{
		"touch 1":                             "state: reserved",
		"bury 1 0":                            "state: buried",
		"release 1 0 0":                       "state: ready",
		"release 1 0 60":                      "state: delayed",
		"move-job 1 other":                    "tube: \"other\"\nstate: ready",
		"move-job 1 default":                  "state: ready",
		"delete 1":                            "NOT_FOUND",
		"quit":                                "state: ready",
		"set-tube default none":               "state: ready",
		"release 1 0 0\r\nreserve":            "state: reserved",
		"bury 1 0\r\nkick 1\r\nreserve-job 1": "state: reserved",
	} {
		s, c := lingeringSim(t)
		c.say(do)
		if got := s.again(t).say("stats-job 1"); !strings.Contains(got, want) {
			t.Errorf("%q: after a restart, the job is %q, want %q", do, got, want)
		}
	}
}

// An end that no client brings about is on record, too.
func TestAHoldOnRecordEndsByItself(t *testing.T) {
	for what, after := range map[string]time.Duration{"a time-out": 100 * time.Second, "as an orphan": 50 * time.Second} {
		s, c := lingeringSim(t)
		if what == "as an orphan" {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s.Wait(after)
		if got := s.again(t).say("stats-job 1"); !strings.Contains(got, "state: ready") {
			t.Errorf("%s: after a restart, the job is %q", what, got)
		}
	}
}

// Compaction records all of a job again, and its hold behind that. A server that ends between the two has the hold that
// stands before.
func TestCompactionMovesAHoldAlongWithItsJob(t *testing.T) {
	s, _ := lingeringSim(t)
	f := s.engine.log.Journal.(*holdingFile)
	before := f.holds[1]
	if err := s.engine.Migrate(1, journal.Place{Segment: f.jobs[1].segment}, nil); err != nil {
		t.Fatal(err)
	}
	if h := f.holds[1]; h != before {
		t.Errorf("the hold was %+v and is %+v", before, h)
	}
	if got := s.again(t).say("stats-job 1"); !strings.Contains(got, "state: reserved") {
		t.Errorf("after compaction and a restart, the job is %q", got)
	}

	e := newEngine(Config{MaxJobSize: 100}, placement)
	follower := e.Follow(0)
	setting := journal.Setting{Tube: "default", Policy: journal.DefaultPolicy}
	setting.Linger = 50
	record := journal.Record{ID: 1, State: journal.Ready, TTR: 100, Tube: "default", Body: []byte("a")}
	hold := journal.Hold{ID: 1, End: e.start.Load() + 100e9, Reserves: 1}
	err := follower.Setting(&setting)
	for _, segment := range []uint32{1, 2} {
		_, e := follower.Full(&record, journal.Place{Segment: segment})
		err = errors.Join(err, e)
		if segment == 1 {
			err = errors.Join(err, follower.Hold(&hold), follower.Hold(&hold))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	follower.Serve(2, 0)
	if n := e.Snapshot(0).Reserved; n != 1 {
		t.Errorf("%d jobs are reserved", n)
	}
}

// A restart begins lingering anew, whatever the setting has become, and whatever somebody has made of the wall clock.
func TestOrphansOfTheServerBeforeLinger(t *testing.T) {
	for name, x := range map[string]struct {
		before        string
		wall          time.Duration // by which the wall clock is set ahead
		restarts      int           // each 40 seconds after the other
		state         string
		left, becomes time.Duration // of its time to run; after how long it is ready
	}{
		"as it was":                  {restarts: 1, state: "reserved", left: 100 * time.Second, becomes: 50 * time.Second},
		"with another setting":       {before: "set-tube default linger=7", restarts: 1, state: "reserved", left: 100 * time.Second, becomes: 7 * time.Second},
		"without the setting":        {before: "set-tube default linger=", restarts: 1, state: "ready"},
		"with the wall clock ahead":  {wall: time.Hour, restarts: 1, state: "ready"},
		"with it a little ahead":     {wall: 70 * time.Second, restarts: 1, state: "reserved", left: 30 * time.Second, becomes: 30 * time.Second},
		"with the wall clock behind": {wall: -time.Hour, restarts: 1, state: "reserved", left: 100 * time.Second, becomes: 50 * time.Second},
		"twice while it lingers":     {restarts: 2, state: "reserved", left: 60 * time.Second, becomes: 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := lingeringSim(t)
			if x.before != "" {
				c.say(x.before)
			}
			for range x.restarts - 1 {
				s.again(t)
				s.Wait(40 * time.Second)
			}
			s.engine.config.Start = time.Unix(0, s.engine.start.Load()).Add(x.wall)
			c = s.again(t)
			want := fmt.Sprintf("state: %s\n", x.state)
			if got := c.say("stats-job 1"); !strings.Contains(got, want) || !strings.Contains(got, fmt.Sprintf("time-left: %d\n", x.left/time.Second)) {
				t.Fatalf("the job is %q, want %q with %v", got, want, x.left)
			}
			if x.becomes == 0 {
				return
			}
			s.Wait(x.becomes - 1)
			if got := c.say("stats-job 1"); !strings.Contains(got, "state: reserved") {
				t.Fatalf("a moment before its end the job is %q", got)
			}
			s.Wait(1)
			if got := c.say("stats-job 1"); !strings.Contains(got, "state: ready") {
				t.Fatalf("at its end the job is %q", got)
			}
		})
	}
}

// In the moment in which its lingering ends an orphan is ready. A moment earlier it is adopted, and that is on record.
func TestAnOrphanIsAdoptedOrReadyAtItsEnd(t *testing.T) {
	for _, x := range []struct {
		before       time.Duration
		reply, state string
		left         int // of its time to run
	}{
		{before: 1, reply: "TOUCHED\r\n", state: "reserved", left: 99},
		{before: 0, reply: "NOT_FOUND\r\n", state: "ready", left: 0},
	} {
		s, c := lingeringSim(t)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		s.Wait(50*time.Second - x.before)
		adopter := s.open()
		if got := adopter.say("touch 1"); got != x.reply {
			t.Errorf("%v before its end, touch is answered %q, want %q", x.before, got, x.reply)
		}
		s.Wait(x.before)
		state, left := fmt.Sprintf("state: %s\n", x.state), fmt.Sprintf("time-left: %d\n", x.left)
		if got := adopter.say("stats-job 1"); !strings.Contains(got, state) {
			t.Errorf("%v before its end: at its end, the job is %q", x.before, got)
		}
		if got := s.again(t).say("stats-job 1"); !strings.Contains(got, state) || !strings.Contains(got, left) {
			t.Errorf("%v before its end: after a restart, the job is %q", x.before, got)
		}
	}
}
