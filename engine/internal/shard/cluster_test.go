package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/stats"
)

func TestAStrictFollowerFindsWhatCannotBe(t *testing.T) {
	full := func(id uint64) func(*Follower) error {
		return func(f *Follower) error {
			_, err := f.Full(&journal.Record{ID: id, State: journal.Ready, Tube: "a", Body: []byte("x")}, journal.Place{Segment: 1})
			return err
		}
	}
	move := func(id uint64) func(*Follower) error {
		return func(f *Follower) error {
			_, err := f.Full(&journal.Record{ID: id, State: journal.Ready, Tube: "b", Body: []byte("x")}, journal.Place{Segment: 1})
			return err
		}
	}
	update := func(id uint64) func(*Follower) error {
		return func(f *Follower) error {
			return f.Update(&journal.Record{ID: id, State: journal.Buried, BuryOrder: 1})
		}
	}
	remove := func(id uint64) func(*Follower) error {
		return func(f *Follower) error {
			if f.Delete(id) == 0 {
				return fmt.Errorf("job %d ends, but there is none", id)
			}
			return nil
		}
	}
	keyed := func(id uint64, tube string) func(*Follower) error {
		return func(f *Follower) error {
			_, err := f.Full(&journal.Record{
				ID: id, State: journal.Ready, Tube: tube, Keys: journal.Keys{Unique: "k", Seconds: 9},
			}, journal.Place{Segment: 1})
			return err
		}
	}
	tombstoned := func(id uint64, tube string) func(*Follower) error {
		return func(f *Follower) error {
			_, err := f.Full(&journal.Record{
				ID: id, State: journal.Deleted, Tube: tube, Due: 1e18, Keys: journal.Keys{Unique: "k", Seconds: 9},
			}, journal.Place{Segment: 1})
			return err
		}
	}
	decided := func(id uint64) func(*Follower) error {
		return func(f *Follower) error { f.Decided(id); return nil }
	}
	type steps []func(*Follower) error
	for _, x := range []struct {
		name  string
		steps steps
		err   string // of the last step
	}{
		{"a job's life", steps{full(1), update(1), update(1), remove(1)}, ""},
		{"an id that is left out", steps{full(1), full(9)}, ""},
		{"a put that is late", steps{full(9), full(1)}, ""},
		{"a job below those decided on", steps{full(4), decided(5), update(4), remove(4)}, ""},
		{"a job that moves to another tube", steps{full(1), decided(2), move(1), move(1)}, "job 1 comes into being, but there is one of that id"},
		{"a job that moves, and moves back", steps{full(1), decided(2), move(1), full(1), move(1), remove(1)}, ""},
		{"a job that is there", steps{full(1), full(1)}, "job 1 comes into being, but there is one of that id"},
		{"a key's life", steps{keyed(1, "a"), tombstoned(1, "a"), remove(1), keyed(2, "a"), remove(2), keyed(3, "a")}, ""},
		{"a key of two tubes", steps{keyed(1, "a"), keyed(2, "b")}, ""},
		{"a key that is there", steps{keyed(1, "a"), keyed(2, "a")}, `job 2: it has the key "k", but so has job 1`},
		{"a key that is taken from a tombstone", steps{keyed(1, "a"), tombstoned(1, "a"), keyed(2, "a"), remove(1), remove(2)}, ""},
		{"a key that is moved to a tombstone", steps{keyed(1, "a"), tombstoned(1, "a"), keyed(2, "b"), keyed(2, "a"), remove(1)}, ""},
		{"a tombstone of none", steps{tombstoned(1, "a")}, "job 1 leaves a tombstone, but there is none of that id"},
		{"a second tombstone", steps{keyed(1, "a"), tombstoned(1, "a"), tombstoned(1, "a")}, "job 1 leaves a tombstone that is not its own"},
		{"a tombstone in another tube", steps{keyed(1, "a"), tombstoned(1, "b")}, "job 1 leaves a tombstone that is not its own"},
		{"a tombstone of a job without a key", steps{full(1), tombstoned(1, "a")}, "job 1 leaves a tombstone that is not its own"},
		{"a job that comes back from a tombstone", steps{keyed(1, "a"), tombstoned(1, "a"), keyed(1, "b")}, "job 1 comes into being, but there is one of that id"},
		{"a change of a tombstone", steps{keyed(1, "a"), tombstoned(1, "a"), update(1)}, "job 1 changes, but there is none of that id"},
		{"a change of none", steps{update(1)}, "job 1 changes, but there is none of that id"},
		{"a change of one that is gone", steps{full(1), remove(1), update(1)}, "job 1 changes, but there is none of that id"},
		{"the end of none", steps{remove(1)}, "job 1 ends, but there is none"},
		{"a second end", steps{full(1), remove(1), remove(1)}, "job 1 ends, but there is none"},
		{"a job that comes back", steps{full(1), decided(2), remove(1), full(1)}, "job 1 comes into being, but ids below 2 were decided on before"},
		{"a job that was not to be", steps{decided(5), decided(3), full(4)}, "job 4 comes into being, but ids below 5 were decided on before"},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := New(Config{Info: testInfo})
			defer e.Discard()
			f := e.Follow(clock.Always)
			f.Strict()
			for i, step := range x.steps {
				want := ""
				if i == len(x.steps)-1 {
					want = x.err
				}
				got := ""
				if err := step(f); err != nil {
					got = err.Error()
				}
				if got != want {
					t.Fatalf("step %d: %q, want %q", i, got, want)
				}
			}
			f.Serve(100, 0)
			if err := serves(e, 100); err != nil {
				t.Error(err)
			}
			for _, err := range (&census{engine: e}).run() {
				t.Error(err)
			}
		})
	}
}

func TestDigestsDifferInWhateverIsOnRecord(t *testing.T) {
	base := journal.Record{
		ID: 1, State: journal.Delayed, Pri: 1, Delay: 5, TTR: 9, Created: 1e18, Due: 1e18 + 5e9,
		Releases: 1, Buries: 1, Kicks: 1, Tube: "a", Body: []byte("body"),
	}
	digest := func(due clock.Time, records ...journal.Record) journal.Digest {
		e := New(Config{Info: testInfo, Start: time.Unix(1e9, 0)})
		defer e.Discard()
		f := e.Follow(clock.Always)
		for i := range records {
			if _, err := f.Full(&records[i], journal.Place{Segment: uint32(i) + 1}); err != nil {
				t.Fatal(err)
			}
		}
		return e.digestAt(t, due)
	}
	want := digest(0, base)
	differs := func(name string, change func(r *journal.Record)) {
		r := base
		change(&r)
		if digest(0, r) == want {
			t.Errorf("%s makes no difference", name)
		}
	}
	differs("the id", func(r *journal.Record) { r.ID = 2 })
	differs("the state", func(r *journal.Record) { r.State = journal.Ready })
	differs("being buried", func(r *journal.Record) { r.State = journal.Buried })
	differs("the priority", func(r *journal.Record) { r.Pri++ })
	differs("the delay", func(r *journal.Record) { r.Delay++ })
	differs("the time to run", func(r *journal.Record) { r.TTR++ })
	differs("the time of the put", func(r *journal.Record) { r.Created++ })
	differs("the end of the delay", func(r *journal.Record) { r.Due++ })
	differs("the releases", func(r *journal.Record) { r.Releases++ })
	differs("the buries", func(r *journal.Record) { r.Buries++ })
	differs("the kicks", func(r *journal.Record) { r.Kicks++ })
	differs("the tube", func(r *journal.Record) { r.Tube = "b" })
	differs("the body", func(r *journal.Record) { r.Body = []byte("bodY") })
	differs("where tube and body part", func(r *journal.Record) { r.Tube, r.Body = "ab", []byte("ody") })
	buried := base
	buried.State, buried.BuryOrder = journal.Buried, 1
	later := buried
	later.BuryOrder = 2
	if digest(0, buried) == digest(0, later) {
		t.Error("the order of burying makes no difference")
	}
	if digest(0, base, later) == want {
		// later replaces base: the last record counts
		t.Error("a later record makes no difference")
	}

	counted := base
	counted.Reserves, counted.Timeouts = 7, 7
	ready := base
	ready.State = journal.Ready
	second := base
	second.ID = 2
	for name, same := range map[string]bool{
		"the counts of reservations":   digest(0, counted) == want,
		"the order of the jobs":        digest(0, base, second) == digest(0, second, base),
		"that a delay is over by then": digest(5e9, base) == digest(5e9, ready),
		"that a delay has an end":      digest(clock.MaxTime, base) == digest(clock.MaxTime, ready),
	} {
		if !same {
			t.Errorf("%s makes a difference", name)
		}
	}
	if digest(4999999999, base) == digest(4999999999, ready) {
		t.Error("a job whose delay is not over counts as ready")
	}
}

// A reserved job is ready to others, and what it has gone through is not on record.
func TestADigestDoesNotTellReservedJobsFromReadyOnes(t *testing.T) {
	s := newSim(100, 1)
	defer s.engine.Discard()
	s.engine.log.Journal = newFile(nil)
	c := s.open()
	c.say("put 0 0 1 1", "a", "put 0 1 9 1", "b")
	want := s.engine.digestAt(t, s.now+2*clock.Second)
	check := func(when string) {
		t.Helper()
		if got := s.engine.digestAt(t, 2*clock.Second); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	c.say("reserve")
	check("reserved")
	s.Wait(1500 * time.Millisecond)
	check("when the time to run and the delay are over")
	c.say("reserve")
	check("reserved again")
}

func TestADigestTellsHoldsThatHaveNotEnded(t *testing.T) {
	base := journal.Hold{ID: 1, Session: 5, End: 7, Reserves: 2}
	digest := func(last int64, h *journal.Hold) journal.Digest {
		d := journal.NewDigester(0, last)
		if err := d.Add(&journal.Record{ID: 1, State: journal.Ready, Tube: "a"}, h); err != nil {
			t.Fatal(err)
		}
		return d.Digest()
	}
	want, none := digest(6, &base), digest(6, nil)
	if want.Sum != none.Sum || want.Jobs != none.Jobs || none.Holds != 0 {
		t.Errorf("held %v, and not held %v", want, none)
	}
	for what, change := range map[string]func(h *journal.Hold){
		"the job":          func(h *journal.Hold) { h.ID++ },
		"the session":      func(h *journal.Hold) { h.Session++ },
		"the end":          func(h *journal.Hold) { h.End++ },
		"the reservations": func(h *journal.Hold) { h.Reserves++ },
	} {
		h := base
		change(&h)
		if digest(6, &h) == want {
			t.Errorf("%s: no difference", what)
		}
	}
	if got := digest(7, &base); got != none {
		t.Errorf("a hold that has ended counts: %v", got)
	}
}

// A process may make many engines: the memory of one is there for the next, and all of it
// is given back.
func TestADiscardedEngineHasGivenAllMemoryBack(t *testing.T) {
	body := make([]byte, 300)
	large := make([]byte, 200_000)
	engines := 5
	if proof {
		engines = 20
	}
	for range engines {
		e := New(Config{Info: testInfo})
		f := e.Follow(clock.Always)
		for id := range uint64(20_000) {
			r := journal.Record{ID: id + 1, State: journal.Delayed, Due: int64(id), TTR: 9, Kicks: 1, Tube: fmt.Sprint(id % 100), Body: body}
			if id%1000 == 0 {
				r.Body = large
			}
			if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if n := e.Snapshot(0); n.Memory < 20_000*400 || n.Delayed != 20_000 {
			t.Fatalf("%d bytes for %d jobs", n.Memory, n.Delayed)
		}
		e.Discard()
		if arena.Discarded() {
			t.Fatal("memory is left to be given back")
		}
		if n := e.Snapshot(0); n.Memory != 0 || n.Delayed != 0 || n.Tubes != 0 {
			t.Fatalf("%d bytes, %d jobs and %d tubes are left", n.Memory, n.Delayed, n.Tubes)
		}
		if _, err := e.Walk(0, 1, nil); err != errDiscarded {
			t.Fatalf("a walk ends with %v", err)
		}
		e.EachTube(0, func(tube *stats.Tube) { t.Fatalf("there is a tube: %v", tube) })
	}
}

// A standby begins at a time of the cluster's, months ago perhaps, and serves later: what
// stats tell is as if it had been this server's own.
func TestAnEngineServesAnyTimeAfterItsBeginning(t *testing.T) {
	const year = 365 * 24 * 3600 * clock.Second
	start := time.Unix(1e9, 0)
	cfg := Config{Start: start, Info: testInfo, MaxJobSize: 100}
	cfg.Info.Uptime = func() time.Duration { return 77 * time.Second }
	e := New(cfg)
	defer e.Discard()
	f := e.Follow(clock.Always)
	records := &tape{file: newFile(nil)}
	add := func(at clock.Time, r journal.Record) {
		f.Stamp(start.UnixNano() + int64(at))
		r.TTR, r.Created = 60, start.UnixNano()+int64(at)
		if r.Tube == "" {
			r.Tube = "default"
		}
		if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
		records.jobs[r.ID] = &filed{record: r, full: r, segment: 1}
	}
	wall := func(at clock.Time) int64 { return start.UnixNano() + int64(at) }
	add(0, journal.Record{ID: 1, State: journal.Ready})
	add(year-10*clock.Second, journal.Record{ID: 2, State: journal.Delayed, Delay: 9, Due: wall(year - clock.Second)})
	add(year-5*clock.Second, journal.Record{ID: 3, State: journal.Delayed, Delay: 15, Due: wall(year + 10*clock.Second)})
	add(year-3*clock.Second, journal.Record{ID: 4, State: journal.Buried, BuryOrder: 3})
	add(year-3*clock.Second, journal.Record{ID: 5, State: journal.Ready, Tube: "other"})
	f.RecordIn(records)
	f.Serve(6, year)

	s := &sim{engine: e, now: year}
	l := &simLoop{alarm: clock.MaxTime}
	l.Loop = e.NewLoop(l)
	s.loops = append(s.loops, l)
	s.Wait(0)
	c := s.open()
	for _, x := range []struct{ ask, want string }{
		{"stats", "\nuptime: 77\n"},
		{"stats-job 1", "\nstate: ready\n"},
		{"stats-job 1", "\nage: 31536000\n"},
		{"stats-job 2", "\nstate: ready\n"},
		{"stats-job 3", "\nstate: delayed\n"},
		{"stats-job 3", "\ntime-left: 10\n"},
		{"stats-job 3", "\nage: 5\n"},
		{"stats-job 4", "\nstate: buried\n"},
		{"reserve-with-timeout 0", "RESERVED 1 "},
		{"reserve-with-timeout 0", "RESERVED 2 "},
		{"stats-job 1", "\ntime-left: 60\n"},
	} {
		if got := c.say(x.ask); !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, want %q", x.ask, got, x.want)
		}
	}
	if got := c.say("reserve-with-timeout 20"); got != "" {
		t.Fatalf("answered %q", got)
	}
	s.Wait(9 * time.Second)
	if got := c.took(); got != "" {
		t.Fatalf("answered %q too early", got)
	}
	s.Wait(2 * time.Second)
	if got := c.took(); got != "RESERVED 3 0\r\n\r\n" {
		t.Errorf("answered %q", got)
	}
	// A job is ready since its record was made.
	e.EachTube(s.now, func(tube *stats.Tube) {
		if tube.Name == "other" && tube.OldestReady != 14*time.Second {
			t.Errorf("the oldest job has been ready for %v", tube.OldestReady)
		}
	})
	for _, err := range (&census{engine: e, sessions: s.sessions()}).run() {
		t.Error(err)
	}
	if got := c.say("put 0 0 9 1", "x"); got != "INSERTED 6\r\n" || records.entries[len(records.entries)-1].record.Created != wall(s.now) {
		t.Errorf("answered %q, recorded %+v", got, records.entries)
	}
}
