package shard

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// digestAt is the digest of all that the engine has on record, at a time.
func (e *Engine) digestAt(t interface{ Fatal(...any) }, due clock.Time) journal.Digest {
	until := int64(math.MaxInt64)
	if due != clock.MaxTime {
		until = e.wall(due)
	}
	d := journal.NewDigester(until, math.MinInt64)
	for from := uint64(1); from != 0; {
		var err error
		if from, err = e.Walk(from, 1024, d.Add); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Settings(d.AddSetting); err != nil {
		t.Fatal(err)
	}
	return d.Digest()
}

// While clients do what they like, a walk takes some jobs at a time. What it has seen,
// and then all that was recorded from its beginning to its end, is what the engine holds.
func TestAWalkAndTheRecordsMadeMeanwhileMakeAnEqualEngine(t *testing.T) { walkOver(t, false) }

// So it is with the reservations of sessions on record, also of those that are giving back what
// they had.
func TestAWalkAndTheRecordsMadeMeanwhileHaveTheReservationsOnRecord(t *testing.T) {
	walkOver(t, true)
}

func walkOver(t *testing.T, onRecord bool) {
	rapidFlag(t, "rapid.checks", 300)
	rapidFlag(t, "rapid.steps", 80)
	rapid.Check(t, func(t *rapid.T) {
		leader := newSim(100_000, 1)
		record := &tape{file: newFile(t)}
		leader.engine.log.Journal = record
		if onRecord {
			leader.onRecord(record)
		}
		leader.engine.ClockSet(time.Unix(1e9, 0))
		defer leader.engine.Discard()
		var clients []*simConn
		for range 3 {
			clients = append(clients, leader.open())
		}
		var (
			seen []walked
			next uint64
			from int // the first record that was made after the walk began
		)
		walk := func(n int) {
			var err error
			if next, err = leader.engine.Walk(next, n, func(r *journal.Record, h *journal.Hold) error {
				x := walked{record: copied(r)}
				if h != nil {
					x.hold = *h
				}
				seen = append(seen, x)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if next == 0 {
				// It has come to its end.
				compareWalked(t, leader, seen, record.entries[from:])
				seen, from = nil, len(record.entries)
			}
		}
		say := func(t *rapid.T, format string, args ...any) {
			pick(t, "client", clients).say(strings.Split(fmt.Sprintf(format, args...), "\n")...)
		}
		id := func(t *rapid.T) uint64 {
			return rapid.Uint64Range(1, leader.engine.ids.Last.Load()+1).Draw(t, "id")
		}
		pri := func(t *rapid.T) uint32 { return rapid.Uint32Range(0, 20).Draw(t, "pri") }
		delay := func(t *rapid.T) uint32 { return among[uint32](t, "delay", 0, 0, 1, 50) }
		t.Repeat(map[string]func(*rapid.T){
			"use": func(t *rapid.T) { say(t, "use %s", among(t, "tube", "default", "a", "b", "c", "d")) },
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "jobs") {
					body := strings.Repeat("x", among(t, "size", 0, 1, 20, 50_000, 70_000))
					keys := someKeys(t)
					say(t, "put %d %d %d %d%s\n%s", pri(t), delay(t), rapid.IntRange(0, 3).Draw(t, "ttr"), len(body), tagsOf(&keys), body)
				}
			},
			"skip ids":    func(t *rapid.T) { leader.engine.skipIDs(rapid.Uint64Range(1, 600).Draw(t, "ids")) },
			"reserve":     func(t *rapid.T) { say(t, "watch a\nwatch b\nreserve-with-timeout 0") },
			"reserve-job": func(t *rapid.T) { say(t, "reserve-job %d", id(t)) },
			"touch":       func(t *rapid.T) { say(t, "touch %d\ntouch-all", id(t)) },
			"batch":       func(t *rapid.T) { say(t, "watch a\nwatch b\nreserve-batch 3") },
			"wait":        func(t *rapid.T) { say(t, "watch c\nreserve-with-timeout 2") },
			"close": func(t *rapid.T) {
				i := rapid.IntRange(0, len(clients)-1).Draw(t, "client")
				leader.loops[0].allow(rapid.IntRange(1, 20).Draw(t, "budget")) // it gives back in turns
				clients[i].end()
				clients[i] = leader.open()
				if next == 0 { // a walk begins, and nobody has gone on
					walk(20)
				}
			},
			"release":  func(t *rapid.T) { say(t, "release %d %d %d", id(t), pri(t), delay(t)) },
			"bury":     func(t *rapid.T) { say(t, "bury %d %d", id(t), pri(t)) },
			"kick":     func(t *rapid.T) { say(t, "kick %d", rapid.IntRange(1, 3).Draw(t, "jobs")) },
			"kick-job": func(t *rapid.T) { say(t, "kick-job %d", id(t)) },
			"move":     func(t *rapid.T) { say(t, "move-job %d %s", id(t), among(t, "tube", "default", "a", "b", "c", "d")) },
			"move tube": func(t *rapid.T) {
				say(t, "move-tube %s ready %s 3", among(t, "tube", "a", "b", "c"), among(t, "to", "d", "a"))
			},
			"delete": func(t *rapid.T) { say(t, "delete %d", id(t)) },
			"flush":  func(t *rapid.T) { say(t, "flush-tube %s", among(t, "tube", "a", "b")) },
			"pass":   func(t *rapid.T) { leader.Wait(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond) },
			"walk":   func(t *rapid.T) { walk(rapid.IntRange(1, 6).Draw(t, "jobs")) },
		})
		for walk(3); next != 0; {
			walk(3)
		}
	})
}

// walked is what a walk tells of a job.
type walked struct {
	record journal.Record
	hold   journal.Hold // its ID is 0 if there is none
}

// walkedHolds is who holds which job by what a walk tells.
func (e *Engine) walkedHolds(t *testing.T) string {
	t.Helper()
	var list []string
	for from := uint64(1); from != 0; {
		var err error
		if from, err = e.Walk(from, 100, func(r *journal.Record, h *journal.Hold) error {
			if h != nil {
				list = append(list, fmt.Sprintf("%d by %d until %v", h.ID, h.Session&(1<<40-1), time.Duration(h.End)))
			}
			if r.State != journal.Ready || h != nil && (h.ID != r.ID || h.Offset != 0 || !h.Valid()) {
				t.Errorf("%v of %v", h, r)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(list, ", ")
}

// Nobody would end a hold that is told of behind the record that ends it, though the session has
// the job until its turn has come.
func TestAWalkTellsOfNoHoldWhoseEndIsOnRecord(t *testing.T) {
	s, _ := recordedSim()
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	for i := range 5 {
		c.say(fmt.Sprintf("use t%d", i), "put 0 0 9 1", "x", fmt.Sprintf("watch t%d", i))
	}
	c.say("reserve-batch 4")
	other.say("watch t4", "reserve-job 5")
	if got := s.engine.walkedHolds(t); got != "1 by 1 until 9s, 2 by 1 until 9s, 3 by 1 until 9s, 4 by 1 until 9s, 5 by 2 until 9s" {
		t.Errorf("held are %s", got)
	}
	c.loop.allow(1)
	c.end()
	if n := s.engine.Snapshot(s.now).Reserved; n < 2 {
		t.Fatalf("all was given back at once: %d are reserved", n)
	}
	if got := s.engine.walkedHolds(t); got != "5 by 2 until 9s" {
		t.Errorf("the session has ended, and held are %s", got)
	}
	s.engine.LoopNumbers.Take(&journal.Numbers{First: 1, Count: 1, Member: 3, Nonce: 4})
	if got := s.engine.walkedHolds(t); got != "5 by 2 until 9s" {
		t.Errorf("its number was given, and held are %s", got)
	}
	s.engine.LoopNumbers.Take(&journal.Numbers{First: 1, Count: 1})
	if got := s.engine.walkedHolds(t); got != "" {
		t.Errorf("its number is gone, and held are %s", got)
	}
}

// skipIDs leaves ids out, as loops do that put at the same time.
func (e *Engine) skipIDs(n uint64) {
	last := e.ids.Last.Add(n)
	e.ids.RetireUnused(last-n+1, last)
}

// compareWalked makes an engine of what a walk has seen and of records, and compares it with
// that which was walked over.
func compareWalked(t *rapid.T, s *sim, seen []walked, entries []entry) {
	copied := New(Config{Shards: 2, Info: testInfo, Start: time.Unix(1e9-7, 0)})
	defer copied.Discard()
	f := copied.Follow(clock.Always)
	for i := range seen {
		x := &seen[i]
		_, err := f.Full(&x.record, journal.Place{Segment: 1})
		if err == nil && x.hold.ID != 0 {
			err = f.Hold(&x.hold)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.feed(t, entries)
	if got, want := copied.digestAt(t, clock.MaxTime), s.engine.digestAt(t, clock.MaxTime); got != want {
		t.Fatalf("walked over are %v, there are %v\n%s\n%s", got, want, copied.dump(), s.engine.dump())
	}
	// Those that are delayed are so until the same moment.
	later := s.now + clock.Second/2
	if got, want := copied.digestAt(t, later+7*clock.Second), s.engine.digestAt(t, later); got != want {
		t.Fatalf("walked over are %v, there are %v, at %d\n%s\n%s", got, want, later, copied.dump(), s.engine.dump())
	}
}

func TestAWalkEndsWithTheErrorOfItsVisitor(t *testing.T) {
	s := newSim(100, 1)
	defer s.engine.Discard()
	s.open().say("put 0 0 9 1", "a", "put 0 0 9 1", "b", "put 0 0 9 1", "c")
	full := errors.New("full")
	next, err := s.engine.Walk(0, 10, func(r *journal.Record, _ *journal.Hold) error {
		if r.ID == 2 {
			return full
		}
		return nil
	})
	if next != 2 || err != full {
		t.Errorf("it has come to %d, with %v", next, err)
	}
}

func TestAWalkVisitsNoMoreJobsThanItIsTold(t *testing.T) {
	s := newSim(100, 1)
	defer s.engine.Discard()
	c := s.open()
	var all []uint64
	for _, n := range []int{300, 10_000, 256, 1} {
		s.engine.skipIDs(uint64(n))
		for range 3 {
			c.say("put 0 0 9 1", "a")
			all = append(all, s.engine.ids.Last.Load())
		}
	}
	for n := range 5 {
		var seen []uint64
		for from := uint64(0); ; {
			before := len(seen)
			next, err := s.engine.Walk(from, n+1, func(r *journal.Record, _ *journal.Hold) error {
				seen = append(seen, r.ID)
				return nil
			})
			if err != nil || len(seen)-before > n+1 || next != 0 && next <= from {
				t.Fatalf("from %d it went on to %d and has seen %v, %v", from, next, seen[before:], err)
			}
			if from = next; from == 0 {
				break
			}
		}
		if fmt.Sprint(seen) != fmt.Sprint(all) {
			t.Errorf("%d at a time: it has seen %v, want %v", n+1, seen, all)
		}
	}
}

// The record of a large body is made before there is a job that a walk could find. Here
// there is no memory for the job, and no room to say so: the walk waits until there is.
func TestAWalkWaitsForJobsThatAreOnRecordAndCannotBeFoundYet(t *testing.T) {
	s, f, _ := newCramped(t)
	f.room = true
	c := s.open()
	body := strings.Repeat("x", pinnedSize)
	head := fmt.Sprintf("put 0 0 9 %d\r\n", len(body))
	if err := c.Send([]byte(head + body)); err != nil {
		t.Fatal(err)
	}
	// It is told at once that no more is coming, so that its put has to be taken back.
	in := c.session.incomingPut()
	in.since = s.now
	if err := c.loop.by().recordLarge(c.session.client.used, in, new(reply.Output)); err != nil {
		t.Fatal(err)
	}
	f.room = false
	_ = c.Close()
	if c.session.incomingPut() == nil {
		t.Fatal("the put was forgotten although the journal does not know")
	}
	done := make(chan int)
	var walking atomic.Bool
	go func() {
		seen := 0
		walking.Store(true)
		for from, first := uint64(0), true; from != 0 || first; first = false {
			from, _ = s.engine.Walk(from, 1, func(*journal.Record, *journal.Hold) error { seen++; return nil })
		}
		done <- seen
	}()
	for !walking.Load() || s.engine.era.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case n := <-done:
		t.Fatalf("it has not waited, and seen %d jobs", n)
	default:
	}
	f.room = true
	s.engine.Room()
	s.Settle()
	if n := <-done; n != 4 {
		t.Errorf("it has seen %d jobs", n)
	}
	if c.session.incomingPut() != nil || f.jobs[in.id] != nil {
		t.Error("the put is still there, or on record")
	}
	if n := c.loop.by().ahead[0].Load() + c.loop.by().ahead[1].Load(); n != 0 {
		t.Errorf("%d are said to be on record and no jobs", n)
	}
	for _, err := range (&census{engine: s.engine, sessions: s.sessions()}).run() {
		t.Error(err)
	}
}

// Loops run as fast as they can while somebody walks over the jobs, and a job that stays
// is always seen.
func TestJobsThatStayAreSeenByEveryWalkBesideRunningLoops(t *testing.T) {
	c := newCrew(t, 3, 4)
	stay := map[uint64]string{}
	h := c.hire()
	for i := range 50 {
		body := strings.Repeat(string(rune('a'+i%26)), 1+i*1000)
		stay[h.put(5, 0, 100, body)] = body
	}
	var stop atomic.Bool
	var working sync.WaitGroup
	for i := range 3 {
		w := c.hire()
		working.Add(1)
		go func() {
			defer working.Done()
			tube := fmt.Sprint("t", i)
			w.use(tube)
			w.watchOnly(tube)
			for n := 0; !stop.Load(); n++ {
				w.put(0, 0, 100, strings.Repeat("z", n%7*10_000))
				id, _ := w.reserve()
				w.with(codec.OpDelete, id)
			}
		}()
	}
	for range 20 {
		seen := 0
		for from, first := uint64(0), true; from != 0 || first; first = false {
			var err error
			from, err = c.engine.Walk(from, 7, func(r *journal.Record, _ *journal.Hold) error {
				if body, ok := stay[r.ID]; ok {
					seen++
					if string(r.Body) != body {
						t.Errorf("job %d has a body of %d bytes, want %d", r.ID, len(r.Body), len(body))
					}
				} else if strings.Trim(string(r.Body), "z") != "" {
					t.Errorf("job %d has a body of others", r.ID)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if seen != len(stay) {
			t.Errorf("%d of %d jobs were seen", seen, len(stay))
		}
	}
	stop.Store(true)
	working.Wait()
}

// A standby is fed while somebody walks over its jobs.
func TestJobsThatStayAreSeenByEveryWalkBesideAFollower(t *testing.T) {
	e := New(Config{Info: testInfo})
	defer e.Discard()
	f := e.Follow(clock.Always)
	f.Strict()
	put := func(id uint64, body string) {
		if _, err := f.Full(&journal.Record{ID: id, State: journal.Ready, TTR: 9, Tube: fmt.Sprint("t", id%9), Body: []byte(body)}, journal.Place{Segment: 1}); err != nil {
			t.Error(err)
		}
	}
	const stay = 3000
	for id := range uint64(stay) {
		put(2*id+1, "stays")
	}
	var stop atomic.Bool
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for n := 0; !stop.Load(); n++ {
			for id := range uint64(stay) {
				put(2*id+2, strings.Repeat("z", int(id)%3*20_000))
				if err := f.Update(&journal.Record{ID: 2*id + 1, State: journal.Buried, BuryOrder: id}); err != nil {
					t.Error(err)
				}
				if id >= 20 {
					f.Delete(2*(id-20) + 2)
				}
			}
			for id := uint64(stay - 20); id < stay; id++ {
				f.Delete(2*id + 2)
			}
		}
	}()
	for range 10 {
		seen := 0
		for from, first := uint64(0), true; from != 0 || first; first = false {
			var err error
			if from, err = e.Walk(from, 100, func(r *journal.Record, _ *journal.Hold) error {
				if r.ID%2 == 1 {
					seen++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if seen != stay {
			t.Errorf("%d of %d jobs were seen", seen, stay)
		}
	}
	stop.Store(true)
	<-fed
}

// BenchmarkWalk is what it costs to look at a job with a body of 100 bytes.
func BenchmarkWalk(b *testing.B) {
	const jobs = 1_000_000
	e := New(Config{Info: testInfo})
	defer e.Discard()
	f := e.Follow(clock.Always)
	body := make([]byte, 100)
	for id := range uint64(jobs) {
		if _, err := f.Full(&journal.Record{ID: id + 1, State: journal.Ready, TTR: 9, Tube: "default", Body: body}, journal.Place{Segment: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("walk", func(b *testing.B) {
		b.ReportAllocs()
		from := uint64(0)
		for left := b.N; left > 0; left -= 256 {
			from, _ = e.Walk(from, min(left, 256), func(*journal.Record, *journal.Hold) error { return nil })
		}
	})
	b.Run("digest", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			e.digestAt(b, clock.MaxTime)
		}
		b.ReportMetric(float64(b.Elapsed())/float64(b.N)/jobs, "ns/job")
	})
}
