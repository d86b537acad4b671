package shard

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
)

// A tape is a journal that remembers all that it was told, in order.
type tape struct {
	*file
	entries []entry
}

// An entry is a record of a tape.
type entry struct {
	kind    byte // p for a put or a move, u for an update, d for a delete, s for a setting
	record  journal.Record
	segment uint32
	setting journal.Setting
	hold    journal.Hold
	session uint64
	numbers journal.Numbers
}

func (t *tape) add(kind byte, r *journal.Record, segment uint32) {
	t.entries = append(t.entries, entry{kind: kind, record: copied(r), segment: segment})
}

func (t *tape) Put(r *journal.Record) (journal.Ticket, error) {
	ticket, err := t.file.Put(r)
	t.add('p', r, ticket.Segment)
	return ticket, err
}

func (t *tape) Move(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	ticket, err := t.file.Move(r, former)
	t.add('p', r, ticket.Segment)
	return ticket, err
}

func (t *tape) Replace(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	ticket, err := t.file.Replace(r, former)
	t.add('p', r, ticket.Segment)
	return ticket, err
}

func (t *tape) Update(r *journal.Record) (journal.Pos, error) {
	pos, err := t.file.Update(r)
	x := copied(r)
	x.Tube, x.TTR, x.Created, x.Body, x.Keys = "", 0, 0, nil, journal.Keys{} // an update does not have them
	t.add('u', &x, 0)
	return pos, err
}

func (t *tape) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	pos, err := t.file.Delete(id, former)
	t.add('d', &journal.Record{ID: id}, former.Segment)
	return pos, err
}

func (t *tape) Set(s *journal.Setting) (journal.Pos, error) {
	pos, err := t.file.Set(s)
	t.entries = append(t.entries, entry{kind: 's', setting: *s})
	return pos, err
}

// feed gives entries to a follower.
func (f *Follower) feed(t interface{ Fatal(...any) }, entries []entry) {
	for i := range entries {
		x := &entries[i]
		var err error
		switch x.kind {
		case 'p':
			_, err = f.Full(&x.record, journal.Place{Segment: x.segment})
		case 'u':
			err = f.Update(&x.record)
		case 's':
			err = f.Setting(&x.setting)
		case 'h':
			err = f.Hold(&x.hold)
		case 'c':
			err = f.Close(x.session)
		case 'n':
			err = f.Numbers(&x.numbers)
		default:
			f.Delete(x.record.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// dump is all that a restart keeps, tube by tube and in the order of the queues.
func (e *Engine) dump() string {
	var b strings.Builder
	tubes := map[string]*tube{}
	for _, sh := range e.shards {
		for name, t := range sh.byName {
			if t.jobs() > 0 {
				tubes[name] = t
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tubes)) {
		t := tubes[name]
		sh := t.shard
		var jobs []*job
		for _, all := range []func(func(ref) bool){t.allReady(), t.delayed.All(), t.buried.All(sh.table)} {
			for r := range all {
				jobs = append(jobs, sh.job(r))
			}
		}
		slices.SortFunc(jobs, func(a, b *job) int {
			order := cmp.Compare(a.state, b.state)
			if a.state == ready && order == 0 {
				order = cmp.Compare(a.pri, b.pri)
			}
			if a.state == buried && order == 0 {
				order = cmp.Compare(a.At, b.At)
			}
			return cmp.Or(order, cmp.Compare(a.ID, b.ID))
		})
		for _, j := range jobs {
			var n counters
			if j.counters != 0 {
				n = *sh.counters.At(j.counters)
			}
			n.order = 0
			due := int64(0)
			if j.state == delayed {
				due = e.wall(j.at())
			}
			keys := sh.keysOf(j)
			fmt.Fprintf(&b, "%s: %v job %d pri %d ttr %d created %d due %d %+v keys%s body %q\n",
				name, j.state, j.ID, j.pri, j.ttr, e.wall(j.created), due, n, tagsOf(&keys), sh.bodyOf(j))
		}
	}
	_ = e.Settings(func(x *journal.Setting) error {
		fmt.Fprintf(&b, "%+v\n", *x)
		return nil
	})
	return b.String() + e.dumpKeys()
}

// dumpKeys is who holds which unique key.
func (e *Engine) dumpKeys() string {
	var list []string
	for _, sh := range e.shards {
		for k := range sh.holders.All() {
			end := int64(0)
			_, j := sh.find(k.id)
			if j.state == tombstone {
				end = e.wall(j.at())
			}
			list = append(list, fmt.Sprintf("%s: job %d holds %s, tombstone until %d\n", k.space.name, k.id, k.unique, end))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

// A standby reads what a leader records, is cut off, reads some of it again, and in
// the end holds what the leader holds.
func TestAnEngineThatFollowsTheJournalOfAnotherEqualsIt(t *testing.T) { followAnother(t, false) }

// If sessions are on record, it has their reservations as well, at each moment; and nothing that
// it reads contradicts what it has.
func TestAnEngineThatFollowsHasTheReservationsOnRecord(t *testing.T) { followAnother(t, true) }

func followAnother(t *testing.T, onRecord bool) {
	rapidFlag(t, "rapid.checks", 300)
	rapidFlag(t, "rapid.steps", 60)
	rapid.Check(t, func(t *rapid.T) {
		leader := newSim(1000, 1)
		record := &tape{file: newFile(t)}
		leader.engine.log.Journal = record
		if onRecord {
			leader.onRecord(record)
		}
		leader.engine.ClockSet(time.Unix(1e9, 0))
		var clients []*simConn
		for range 3 {
			clients = append(clients, leader.open())
		}

		standby := New(Config{Shards: 4, Info: testInfo, Start: time.Unix(1e9+5, 0)})
		follower := standby.Follow(clock.Always)
		fed := 0
		if onRecord {
			follower.Strict()
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
					body := strings.Repeat("x", rapid.IntRange(0, 20).Draw(t, "size"))
					keys := someKeys(t)
					say(t, "put %d %d %d %d%s\n%s", pri(t), delay(t), rapid.IntRange(0, 3).Draw(t, "ttr"), len(body), tagsOf(&keys), body)
				}
			},
			"reserve":     func(t *rapid.T) { say(t, "watch a\nwatch b\nreserve-with-timeout 0") },
			"reserve-job": func(t *rapid.T) { say(t, "reserve-job %d", id(t)) },
			"touch":       func(t *rapid.T) { say(t, "touch %d\ntouch-all", id(t)) },
			"batch":       func(t *rapid.T) { say(t, "watch a\nwatch b\nreserve-batch 3") },
			"wait":        func(t *rapid.T) { say(t, "watch c\nreserve-with-timeout 2") },
			"close": func(t *rapid.T) {
				i := rapid.IntRange(0, len(clients)-1).Draw(t, "client")
				_ = clients[i].Close()
				clients[i] = leader.open()
			},
			"release":  func(t *rapid.T) { say(t, "release %d %d %d", id(t), pri(t), delay(t)) },
			"bury":     func(t *rapid.T) { say(t, "bury %d %d", id(t), pri(t)) },
			"kick":     func(t *rapid.T) { say(t, "kick %d", rapid.IntRange(1, 3).Draw(t, "jobs")) },
			"kick-job": func(t *rapid.T) { say(t, "kick-job %d", id(t)) },
			"delete":   func(t *rapid.T) { say(t, "delete %d", id(t)) },
			"move-job": func(t *rapid.T) { say(t, "move-job %d %s", id(t), among(t, "tube", "default", "a", "b", "e")) },
			"move-tube": func(t *rapid.T) {
				say(t, "move-tube %s %s %s 3", among(t, "from", "default", "a", "b"), among(t, "state", "ready", "delayed", "buried"), among(t, "to", "b", "c"))
			},
			"set-dlq": func(t *rapid.T) {
				say(t, "set-dlq %s %d %s", among(t, "tube", "default", "a", "b"), rapid.IntRange(0, 2).Draw(t, "attempts"), among(t, "dead", "a", "c", "d"))
			},
			"set-tube": func(t *rapid.T) {
				say(t, "set-tube %s %s", among(t, "tube", "default", "a", "b"), among(t, "pairs", "retry-min=1", "retry-min=3 retry-max=5", "disconnects=1", "disconnects=1 retry-min=1", "dead=", "attempts=2", "none"))
			},
			"flush-tube": func(t *rapid.T) { say(t, "flush-tube %s", among(t, "tube", "default", "a", "b")) },
			"move": func(t *rapid.T) {
				if x := record.jobs[id(t)]; x != nil && !onRecord { // a cluster does not move records
					if err := leader.engine.Migrate(x.record.ID, journal.Place{Segment: x.segment}, nil); err != nil {
						t.Fatal(err)
					}
				}
			},
			"pass": func(t *rapid.T) { leader.Wait(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond) },
			"follow": func(t *rapid.T) {
				end := rapid.IntRange(fed, len(record.entries)).Draw(t, "end")
				follower.feed(t, record.entries[fed:end])
				fed = end
			},
			"tidy": func(*rapid.T) {
				follower.Stamp(leader.engine.wall(leader.now))
				follower.Tidy()
			},
			"follow again": func(t *rapid.T) {
				if onRecord {
					return // it is strict
				}
				follower.feed(t, record.entries[rapid.IntRange(0, fed).Draw(t, "from"):fed])
			},
		})
		if onRecord {
			follower.feed(t, record.entries[fed:])
			fed = len(record.entries)
			if ours, theirs := leader.engine.held(leader.engine.ids.Last.Load()), standby.held(leader.engine.ids.Last.Load()); ours != theirs || standby.Contradictions() != 0 {
				t.Fatalf("the standby holds\n%s\nthe leader\n%s\n%d contradictions", theirs, ours, standby.Contradictions())
			}
		}
		// What is not on record becomes so: reservations end, and all is moved.
		for _, c := range clients {
			_ = c.Close()
		}
		for _, id := range slices.Sorted(maps.Keys(record.jobs)) {
			if err := leader.engine.Migrate(id, journal.Place{Segment: record.jobs[id].segment}, nil); err != nil {
				t.Fatal(err)
			}
		}
		follower.strict = false // what is moved comes twice
		follower.feed(t, record.entries[fed:])
		if got, want := standby.dump(), leader.engine.dump(); got != want {
			t.Fatalf("the standby has\n%s\nthe leader\n%s", got, want)
		}
		if theirs, ours := standby.digestAt(t, clock.MaxTime), leader.engine.digestAt(t, clock.MaxTime); theirs != ours {
			t.Fatalf("the standby's digest is %v, the leader's %v", theirs, ours)
		}
		for id, x := range record.jobs {
			if p := standby.ids.Get(id); p == 0 || standby.shards[p.Shard()].job(p.Ref()).segment != x.segment {
				t.Fatalf("the standby does not know where job %d is on record", id)
			}
		}
		follower.Serve(leader.engine.ids.Last.Load()+1, 0)
		if err := serves(standby, leader.engine.ids.Last.Load()+1); err != nil {
			t.Error(err)
		}
		for _, err := range (&census{engine: standby}).run() {
			t.Error(err)
		}
		standby.discardAll()
	})
}

// serves puts a job, which must get the id next.
func serves(e *Engine, next uint64) error {
	s := &sim{engine: e}
	l := &simLoop{alarm: clock.MaxTime}
	l.Loop = e.NewLoop(l)
	s.loops = append(s.loops, l)
	c := s.open()
	got := c.say("use new", "put 0 0 9 0", "", fmt.Sprint("delete ", next))
	if want := fmt.Sprintf("USING new\r\nINSERTED %d\r\nDELETED\r\n", next); got != want {
		return fmt.Errorf("a put after it began to serve: %q, want %q", got, want)
	}
	return c.Close()
}

// discardAll gives the memory of all jobs back.
func (e *Engine) discardAll() {
	(&rig{engine: e}).discard()
}

// A standby does not know how long it will stand by, nor whether its clock is right:
// delays end when it begins to serve, and not before.
func TestNothingBecomesReadyInAStandbyBeforeItServes(t *testing.T) {
	s := newSim(100, 1)
	f := s.engine.Follow(clock.Always)
	for i, due := range []int64{-1e9, 0, 1, 1e9, 2e9} {
		r := journal.Record{ID: uint64(i + 1), State: journal.Delayed, TTR: 9, Delay: 5, Due: s.engine.wall(0) + due, Tube: "default"}
		if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
	}
	s.Wait(1500 * time.Millisecond)
	if n := s.engine.Snapshot(s.now); n.Ready != 0 || n.Delayed != 5 {
		t.Fatalf("%d are ready and %d delayed in a standby", n.Ready, n.Delayed)
	}
	f.Serve(6, s.now)
	s.Wait(0)
	if n := s.engine.Snapshot(s.now); n.Ready != 4 || n.Delayed != 1 {
		t.Errorf("%d are ready and %d delayed when it serves, want 4 and 1", n.Ready, n.Delayed)
	}
	s.Wait(500 * time.Millisecond)
	if n := s.engine.Snapshot(s.now); n.Ready != 5 {
		t.Errorf("%d are ready in the end", n.Ready)
	}
}

// A full record replaces all of a job, also its tube and its body.
func TestAFullRecordReplacesTheTubeAndTheBody(t *testing.T) {
	s := newSim(100, 1)
	f := s.engine.Follow(0)
	other := "b"
	for s.engine.shardFor([]byte(other)) == s.engine.shardFor([]byte("a")) {
		other += "b"
	}
	for i, r := range []journal.Record{
		{State: journal.Ready, Pri: 3, TTR: 5, Tube: "a", Body: []byte("one"), Reserves: 2},
		{State: journal.Buried, BuryOrder: 7, Pri: 4, TTR: 6, Tube: other, Body: []byte("three")},
		{State: journal.Delayed, Due: 9e9, Delay: 9, Pri: 5, TTR: 7, Tube: other, Body: []byte("others")},
	} {
		r.ID = 1
		replaced, err := f.Full(&r, journal.Place{Segment: uint32(i + 1)})
		if err != nil || replaced.Segment != uint32(i) {
			t.Fatalf("record %d replaces segment %d, %v", i, replaced, err)
		}
		p := s.engine.ids.Get(1)
		sh := s.engine.shards[p.Shard()]
		j := sh.job(p.Ref())
		ch := sh.present(j)
		got := sh.describe(j, &ch)
		if got.State != r.State || got.Tube != r.Tube || !bytes.Equal(got.Body, r.Body) || got.Pri != r.Pri ||
			got.TTR != r.TTR || got.Due != r.Due || got.BuryOrder != r.BuryOrder || got.Reserves != r.Reserves {
			t.Fatalf("the job is %+v, want %+v", got, r)
		}
	}
	f.Serve(2, 0)
	c := s.open()
	c.expect(t, "NOT_FOUND\r\nDELETED\r\nNOT_FOUND\r\n", "stats-tube a\r\ndelete 1\r\nstats-tube %s\r\n", other)
	for _, err := range (&census{engine: s.engine, sessions: []*Session{&c.session}}).run() {
		t.Error(err)
	}
}

// BenchmarkPromotion is what passes between the moment when a standby with ten million
// jobs is told to serve and its first reply, and tells what a record costs before.
func BenchmarkPromotion(b *testing.B) {
	const jobs, groups = 10_000_000, 100_000
	for _, grouped := range []bool{false, true} {
		b.Run(map[bool]string{false: "no groups", true: "100000 groups"}[grouped], func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				e := New(Config{Info: testInfo})
				f := e.Follow(clock.Always)
				began := time.Now()
				body := make([]byte, 100)
				for id := range uint64(jobs) {
					r := journal.Record{ID: id + 1, State: journal.Ready, TTR: 9, Tube: "default", Body: body}
					if id%10 == 0 {
						r.State, r.Due = journal.Delayed, 1 // overdue
					}
					if grouped && id < 2*groups { // a member and one that waits, of half of the groups the latter alone
						name := fmt.Sprint("group", id/2)
						switch {
						case id%2 == 0:
							r.State, r.Keys.Terms = journal.Held, &journal.Terms{After: name}
						case id%4 == 1:
							r.Keys.Terms = &journal.Terms{Group: name}
						}
					}
					if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(time.Since(began))/jobs, "ns/record")
				b.StartTimer()
				f.Serve(jobs+1, clock.Second)
				if err := serves(e, jobs+1); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				e.discardAll()
			}
		})
	}
}

// tidyUp calls Tidy until there is nothing more to do.
func (f *Follower) tidyUp() {
	for f.Tidy() {
	}
}

// A standby has no loops, but memory of jobs that are gone is the system's again.
func TestAStandbyGivesMemoryBack(t *testing.T) {
	const n = 20_000
	e := New(Config{Info: testInfo})
	defer e.Discard()
	f := e.Follow(clock.Always)
	f.Strict()
	body, large := make([]byte, 500), make([]byte, 200_000)
	for id := range uint64(n) {
		r := journal.Record{ID: id + 1, State: journal.Ready, TTR: 9, Kicks: 1, Tube: fmt.Sprint(id % 10), Body: body}
		if id%500 == 1 {
			r.Body = large
		}
		if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
	}
	full := e.mapped()
	f.Stamp(5e9)
	f.tidyUp()
	for id := uint64(1); id <= n; id++ {
		if id%100 != 0 && f.Delete(id) == 0 {
			t.Fatalf("there is no job %d", id)
		}
	}
	if !arena.Discarded() {
		t.Fatal("nothing is left to be given back")
	}
	f.tidyUp()
	if arena.Discarded() {
		t.Error("memory is left to be given back")
	}
	left := e.dump()
	// What is left is moved together when some time has passed.
	for at := range int64(10) {
		f.Stamp(6e9 + at*1e9)
		f.tidyUp()
	}
	if got := e.mapped(); got > full/20 || arena.Discarded() {
		t.Errorf("%d bytes are mapped for 1 %% of the jobs, %d were for all; more is left to be given back: %v", got, full, arena.Discarded())
	}
	if e.dump() != left {
		t.Error("the jobs that are left have changed")
	}
	for id := uint64(100); id <= n; id += 100 {
		if f.Delete(id) == 0 {
			t.Fatalf("there is no job %d", id)
		}
	}
	for at := range int64(10) {
		f.Stamp(20e9 + at*1e9)
		f.tidyUp()
	}
	if got := e.mapped(); got != 0 || arena.Discarded() {
		t.Errorf("%d bytes are mapped for no job; more is left to be given back: %v", got, arena.Discarded())
	}
}
