package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/script"
)

// session is the id of a session on record, of a loop with the given number.
func sessionID(number uint32, n uint64) uint64 { return uint64(number)<<(64-journal.NumberBits) | n }

// standing is what a standby has of holds: where its jobs are, and who holds them until when.
func (e *Shards) standing() string {
	var list []string
	for id := uint64(1); id <= 20; id++ {
		p := e.ids.Get(id)
		if p == 0 {
			continue
		}
		sh := e.shards[p.Shard()]
		j := sh.job(p.Ref())
		s := fmt.Sprintf("%d %v", id, j.state)
		if j.state == reserved {
			h := sh.reservations[j.Next].of.holder
			if h == nil {
				list = append(list, fmt.Sprintf("%s by nobody until %d", s, time.Duration(j.At)/time.Second))
				continue
			}
			s += fmt.Sprintf(" by %d of %d until %d", h.Session&^(uint64(journal.NumberOf(h.Session))<<40), journal.NumberOf(h.Session), time.Duration(j.At)/time.Second)
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// A standby has what is on record of reservations, whatever it has met before: the last record of
// a job counts, and what does not fit is counted.
func TestAStandbyHoldsWhatIsOnRecord(t *testing.T) {
	type step = func(f *Follower) error
	a, b, c := sessionID(1, 1), sessionID(1, 2), sessionID(2, 1)
	put := func(id uint64, state journal.State) step {
		return func(f *Follower) error {
			_, err := f.Full(&journal.Record{ID: id, State: state, Tube: fmt.Sprint("tube", id), TTR: 9, Due: 50e9, BuryOrder: 3}, journal.Place{Segment: 1})
			return err
		}
	}
	hold := func(id, session uint64, end int64) step {
		return func(f *Follower) error {
			return f.Hold(&journal.Hold{ID: id, Session: session, End: end * 1e9, Offset: 5, Reserves: 7})
		}
	}
	touch := func(id, session uint64, end int64) step {
		return func(f *Follower) error {
			return f.Hold(&journal.Hold{ID: id, Session: session, End: end * 1e9, Offset: 5, Touch: true})
		}
	}
	update := func(id uint64, state journal.State) step {
		return func(f *Follower) error {
			return f.Update(&journal.Record{ID: id, State: state, Pri: 4, Due: 60e9, BuryOrder: 5})
		}
	}
	move := func(id uint64) step {
		return func(f *Follower) error {
			_, err := f.Full(&journal.Record{ID: id, State: journal.Ready, Tube: "other", TTR: 9}, journal.Place{Segment: 1})
			return err
		}
	}
	linger := func(id uint64, seconds uint32) step {
		return func(f *Follower) error {
			x := journal.Setting{Tube: fmt.Sprint("tube", id), Policy: journal.DefaultPolicy}
			x.Linger = seconds
			return f.Setting(&x)
		}
	}
	end := func(session uint64) step { return func(f *Follower) error { return f.Close(session) } }
	numbers := func(first, count uint32, nonce uint64) step {
		return func(f *Follower) error {
			return f.Numbers(&journal.Numbers{First: first, Count: count, Member: 8, Nonce: nonce})
		}
	}
	remove := func(id uint64) step {
		return func(f *Follower) error { f.Delete(id); return nil }
	}
	for _, x := range []struct {
		name   string
		steps  []step
		want   string
		counts uint64 // contradictions
	}{
		{"a ready job is held", []step{put(1, journal.Ready), hold(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"so is a delayed one", []step{put(1, journal.Delayed), hold(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"and a buried one", []step{put(1, journal.Buried), hold(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"a touch has another end", []step{put(1, journal.Ready), hold(1, a, 9), touch(1, a, 12)}, "1 reserved by 1 of 1 until 12", 0},
		{"a hold that comes twice", []step{put(1, journal.Ready), hold(1, a, 9), hold(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"a hold of a job that another has", []step{put(1, journal.Ready), hold(1, a, 9), hold(1, b, 10)}, "1 reserved by 2 of 1 until 10", 1},
		{"a touch of a job that nobody has", []step{put(1, journal.Ready), touch(1, a, 9)}, "1 reserved by 1 of 1 until 9", 1},
		{"a hold of no job", []step{hold(1, a, 9)}, "", 1},
		{"an orphan", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9)}, "1 reserved by nobody until 9", 0},
		{"an orphan of a delayed job", []step{linger(1, 5), put(1, journal.Delayed), hold(1, 0, 9)}, "1 reserved by nobody until 9", 0},
		{"an orphan that comes twice", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9), hold(1, 0, 9)}, "1 reserved by nobody until 9", 0},
		{"an orphan whose time begins anew", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9), hold(1, 0, 12)}, "1 reserved by nobody until 12", 0},
		{"an orphan where none may be", []step{put(1, journal.Ready), hold(1, 0, 9)}, "1 reserved by nobody until 9", 1},
		{"a session leaves an orphan", []step{linger(1, 5), put(1, journal.Ready), hold(1, a, 9), hold(1, 0, 9), end(a)}, "1 reserved by nobody until 9", 0},
		{"an orphan is adopted by a reserve", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9), hold(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"an orphan is adopted by a touch", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9), touch(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"an update ends an orphan", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9), update(1, journal.Ready)}, "1 ready", 0},
		{"another setting leaves orphans", []step{linger(1, 5), put(1, journal.Ready), hold(1, 0, 9), linger(1, 6)}, "1 reserved by nobody until 9", 0},
		{"a setting ends orphans", []step{linger(1, 5), linger(2, 5), put(1, journal.Ready), put(2, journal.Ready), hold(1, 0, 9), hold(2, 0, 9), linger(1, 0)}, "1 ready, 2 reserved by nobody until 9", 0},
		{"and not what sessions have", []step{linger(1, 5), put(1, journal.Ready), hold(1, a, 9), linger(1, 0)}, "1 reserved by 1 of 1 until 9", 0},
		{"an orphan is none of a number that is gone", []step{linger(1, 5), numbers(1, 2, 5), put(1, journal.Ready), hold(1, a, 9), hold(1, 0, 9), numbers(1, 2, 0)}, "1 reserved by nobody until 9", 0},
		{"an update ends it", []step{put(1, journal.Ready), hold(1, a, 9), update(1, journal.Ready)}, "1 ready", 0},
		{"a burial ends it", []step{put(1, journal.Ready), hold(1, a, 9), update(1, journal.Buried)}, "1 buried", 0},
		{"a delay ends it", []step{put(1, journal.Ready), hold(1, a, 9), update(1, journal.Delayed)}, "1 delayed", 0},
		{"a move ends it", []step{put(1, journal.Ready), hold(1, a, 9), move(1)}, "1 ready", 0},
		{"the job's end ends it", []step{put(1, journal.Ready), hold(1, a, 9), remove(1)}, "", 0},
		{"a held job stays", []step{put(1, journal.Ready), hold(1, a, 9), update(1, journal.Stays)}, "1 reserved by 1 of 1 until 9", 0},
		{"a ready job stays", []step{put(1, journal.Ready), update(1, journal.Stays)}, "1 ready", 0},
		{"a delayed job stays", []step{put(1, journal.Delayed), update(1, journal.Stays)}, "1 delayed", 0},
		{"a close ends what the session has", []step{put(1, journal.Ready), put(2, journal.Buried), put(3, journal.Ready), hold(1, a, 9), hold(2, a, 9), hold(3, b, 9), end(a)}, "1 ready, 2 ready, 3 reserved by 2 of 1 until 9", 0},
		{"a close of a session that has nothing", []step{put(1, journal.Ready), end(a), hold(1, b, 9)}, "1 reserved by 2 of 1 until 9", 0},
		{"a raise behind a close", []step{put(1, journal.Ready), hold(1, a, 9), end(a), update(1, journal.Stays)}, "1 ready", 0},
		{"numbers are given", []step{numbers(1, 2, 5), put(1, journal.Ready), hold(1, a, 9)}, "1 reserved by 1 of 1 until 9", 0},
		{"numbers are gone", []step{numbers(1, 2, 5), put(1, journal.Ready), put(2, journal.Ready), hold(1, a, 9), hold(2, c, 8), numbers(2, 1, 0)}, "1 reserved by 1 of 1 until 9, 2 ready", 0},
		{"a process has restarted", []step{numbers(1, 2, 5), put(1, journal.Ready), put(2, journal.Ready), hold(1, a, 9), hold(2, c, 8), numbers(3, 1, 6)}, "1 ready, 2 ready", 0},
		{"a hold of a number that is gone", []step{numbers(1, 2, 5), numbers(2, 1, 0), put(1, journal.Ready), hold(1, c, 9)}, "1 reserved by 1 of 2 until 9", 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := New(Config{Info: testInfo, Start: time.Unix(0, 0)})
			defer e.Discard()
			f := e.Follow(clock.Always)
			f.Strict()
			for i, step := range x.steps {
				if err := step(f); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			if got := e.standing(); got != x.want || e.Contradictions() != x.counts {
				t.Errorf("it has %q, with %d contradictions; want %q, with %d", got, e.Contradictions(), x.want, x.counts)
			}
			f.Serve(100, 20*clock.Second)
			if s := e.standing(); strings.Contains(strings.ReplaceAll(s, "reserved by nobody", ""), "reserved") {
				t.Errorf("it serves, and still holds %s", s)
			}
			if err := serves(e, 100); err != nil {
				t.Error(err)
			}
			for _, err := range (&census{engine: e}).run() {
				t.Error(err)
			}
		})
	}
}

// What a snapshot repeats is no contradiction.
func TestRecordsOfHoldsMayComeTwiceWhileASnapshotIsLoaded(t *testing.T) {
	e := New(Config{Info: testInfo})
	defer e.Discard()
	f := e.Follow(clock.Always)
	full := &journal.Record{ID: 1, State: journal.Ready, Tube: "a", TTR: 9}
	_, err := f.Full(full, journal.Place{Segment: 1})
	for _, err := range []error{
		err, f.Hold(&journal.Hold{ID: 1, Session: 8, End: 9e9, Reserves: 2}), // as the walk has met it
		f.Hold(&journal.Hold{ID: 1, Session: 7, End: 8e9, Reserves: 1}), f.Close(7),
		f.Hold(&journal.Hold{ID: 2, Session: 8, End: 9e9, Reserves: 1}),
		f.Hold(&journal.Hold{ID: 1, Session: 8, End: 9e9, Reserves: 2}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := e.ids.Get(1)
	sh := e.shards[p.Shard()]
	j := sh.job(p.Ref())
	if n := sh.counters.At(j.counters).reserves; n != 2 || !strings.Contains(e.standing(), "reserved by 8") || e.Contradictions() != 0 {
		t.Errorf("%s, reserved %d times, with %d contradictions", e.standing(), n, e.Contradictions())
	}
}

// A server alone takes a hold for a job that is ready.
func TestAServerAloneHoldsNothing(t *testing.T) {
	e := New(Config{Info: testInfo})
	defer e.Discard()
	f := e.Follow(0)
	_, err := f.Full(&journal.Record{ID: 1, State: journal.Buried, BuryOrder: 4, Tube: "a", TTR: 9}, journal.Place{Segment: 1})
	if err == nil {
		err = f.Hold(&journal.Hold{ID: 1, Session: 8, End: 9e9, Reserves: 3})
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := e.standing(); s != "1 ready" {
		t.Errorf("it has %s", s)
	}
}

// A follower forgets sessions that hold nothing: the end of some is never on record.
func TestAStandbyForgetsSessionsThatHoldNothing(t *testing.T) {
	e := New(Config{Info: testInfo})
	defer e.Discard()
	f := e.Follow(clock.Always)
	for id := range uint64(2) {
		if _, err := f.Full(&journal.Record{ID: id + 1, State: journal.Ready, Tube: "a", TTR: 9}, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
	}
	f.Strict()
	if err := f.Hold(&journal.Hold{ID: 1, Session: 1 << 50, End: 1}); err != nil {
		t.Fatal(err)
	}
	for s := range uint64(10 * minSweep) {
		if err := f.Hold(&journal.Hold{ID: 2, Session: s + 1, End: 1}); err != nil {
			t.Fatal(err)
		}
		if err := f.Update(&journal.Record{ID: 2, State: journal.Ready}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.absent); n > 2*minSweep || f.absent[1<<50] == nil || e.Contradictions() != 0 {
		t.Errorf("it knows %d sessions; the one that holds a job: %v", n, f.absent[1<<50])
	}
}

// heldTape is a tape of a journal that has reservations.
type heldTape struct{ *tape }

// Counters are those of a server without a log, as scripts want them.
func (t heldTape) Counters() journal.Counters { return journal.Counters{} }

// Put shows a small job in no file, as a server without a log does.
func (t heldTape) Put(r *journal.Record) (journal.Ticket, error) {
	ticket, err := t.tape.Put(r)
	if err == nil && len(r.Body) < pinnedSize {
		ticket.Segment = 0
		t.jobs[r.ID].segment = 0
	}
	return ticket, err
}

func (t heldTape) RecordsHolds() bool { return true }

func (t heldTape) RecordsAll() bool { return true }

func (t heldTape) RecordsLinger() bool { return true }

func (t heldTape) keep(x entry) (journal.Pos, error) {
	if t.err != nil && errors.Is(t.err, journal.ErrFailed) {
		return 0, t.err
	}
	t.entries = append(t.entries, x)
	return t.next(), nil
}

func (t heldTape) Hold(h *journal.Hold) (journal.Pos, error) {
	if !h.Valid() {
		return 0, fmt.Errorf("%+v is not valid", *h)
	}
	return t.keep(entry{kind: 'h', hold: *h})
}

func (t heldTape) Close(session uint64) (journal.Pos, error) {
	return t.keep(entry{kind: 'c', session: session})
}

func (t heldTape) Numbers(n *journal.Numbers) (journal.Pos, error) {
	return t.keep(entry{kind: 'n', numbers: *n})
}

// Update puts on the tape what was recorded only.
func (t heldTape) Update(r *journal.Record) (journal.Pos, error) {
	if t.err != nil {
		return 0, t.err
	}
	return t.tape.Update(r)
}

func (t heldTape) EndHold(r *journal.Record) (journal.Pos, error) {
	err := t.err
	if t.err = nil; errors.Is(err, journal.ErrFailed) {
		t.err = err
	}
	pos, failed := t.Update(r)
	t.err = err
	return pos, failed
}

func (t heldTape) DeleteFor(id uint64, former journal.Former, by journal.Origin) (journal.Pos, error) {
	pos, err := t.Delete(id, former)
	t.entries[len(t.entries)-1].record.Origin = by
	return pos, err
}

// onRecord has all sessions on record, on a tape.
func (s *sim) onRecord(record *tape) {
	s.engine.recordIn(heldTape{record})
	s.ids = func(n int) uint64 { return sessionID(1, uint64(n)) }
}

// held is who holds which job up to the last on record until when, and how often it was reserved.
func (e *Engine) held(last uint64) string {
	var list []string
	for from := uint64(1); from != 0; {
		var err error
		if from, err = e.Walk(from, 1000, func(_ *journal.Record, h *journal.Hold) error {
			if h != nil && h.ID <= last {
				list = append(list, fmt.Sprintf("%d by %x until %d, %d times", h.ID, h.Session, h.End, h.Reserves))
			}
			return nil
		}); err != nil {
			return err.Error()
		}
	}
	return strings.Join(list, "\n")
}

// Whatever clients do on record, their replies are the same, and a standby that reads what they
// have made meets no contradiction.
func TestScriptsOnRecord(t *testing.T) {
	for name, loops := range map[string]int{"one loop": 1, "three loops": 3} {
		t.Run(name, func(t *testing.T) {
			script.RunCorpus(t, simTarget{loops: loops, setUp: func(s *sim) {
				record := &tape{file: newFile(nil)}
				s.onRecord(record)
				s.ids = func(n int) uint64 { return uint64(n) } // which the scripts know
				s.restart = func() { s.stops(t, record) }
				s.ended = func() { s.standbyAgrees(t, record) }
			}}, "trellis", "access", "held", "exact")
		})
	}
}

// What clients of a leader do itself is on record where their tubes linger only. A restart is that of the leader, which is
// killed: another one takes over.
func TestScriptsOfALeadersOwnClients(t *testing.T) {
	for name, loops := range map[string]int{"one loop": 1, "three loops": 3} {
		t.Run(name, func(t *testing.T) {
			script.RunCorpus(t, simTarget{loops: loops, setUp: func(s *sim) {
				record := &tape{file: newFile(nil)}
				s.engine.recordIn(heldTape{record})
				s.restart = func() { s.succeed(t, record) }
				s.ended = func() { s.standbyAgrees(t, record) }
			}}, "trellis", "access", "exact")
		})
	}
}
