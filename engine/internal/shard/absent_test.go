package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// numberedSim is a recordedSim whose loops have the numbers 1 and 2 of member 9, which has been given one
// more; connections are of number 1 at first.
func numberedSim(t *testing.T, loops int) (*sim, *tape) {
	s := newSim(100_000, loops)
	record := &tape{file: newFile(nil)}
	s.onRecord(record)
	if _, _, err := s.engine.GiveNumbers(9, 1, 3); err != nil {
		t.Fatal(err)
	}
	return s, record
}

// comesBack has the session of an id go on, on another connection.
func (s *sim) comesBack(id uint64, x Interests, age clock.Time) (*simConn, error) {
	d, err := Absent(id, nil, x, age)
	if err != nil {
		return nil, err
	}
	c := &simConn{sim: s, loop: s.loops[len(s.conns)%len(s.loops)], offset: 1 << 30}
	c.decoder.MaxJobSize, c.decoder.Extensions = s.engine.config.MaxJobSize, true
	if err := c.loop.GoOn(&c.session, d, 0, s.now); err != nil {
		return nil, err
	}
	s.conns = append(s.conns, c)
	return c, nil
}

var plain = Interests{Used: DefaultTube, Watched: []string{DefaultTube}}

// leaves has a client's session part.
func (c *simConn) leaves(t *testing.T) uint64 {
	t.Helper()
	id := c.session.number()
	c.ended = true
	if !c.session.Part(c.sim.now) {
		t.Fatal("it does not part at once")
	}
	return id
}

// A touch that was on its way counts: no time to run ends for a moment.
func TestTheTimeToRunOfAnAbsentSessionsJobDoesNotEndForAMoment(t *testing.T) {
	s, record := numberedSim(t, 1)
	worker, other := s.open(), s.open()
	worker.say("put 0 0 1 1", "x", "put 0 0 1 1", "y", "put 0 0 9 1", "z", "reserve-batch 3")
	from := len(record.entries)
	s.Wait(500 * time.Millisecond)
	id := worker.leaves(t)
	s.Wait(1900 * time.Millisecond)
	if got := record.since(from) + other.say("reserve-with-timeout 0"); got != "TIMED_OUT\r\n" {
		t.Fatalf("its absence is not over: %q", got)
	}
	back, err := s.comesBack(id, plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.say("touch 1"); got != "TOUCHED\r\n" {
		t.Errorf("the touch that was on its way: %q", got)
	}
	from = len(record.entries)
	s.Wait(200 * time.Millisecond)
	if got := record.since(from); got != "u2 ready" {
		t.Errorf("recorded %q, want the end of the other time to run", got)
	}
	if got := other.say("reserve-with-timeout 0"); got != "RESERVED 2 1\r\ny\r\n" {
		t.Errorf("and then %q", got)
	}
	if got := back.say("stats-conn"); !strings.Contains(got, "\nreserved-jobs: [1, 3]\n") || !strings.Contains(got, "\nworker: true\n") {
		t.Errorf("it has %q", got)
	}
	s.noErrors(t)
}

// Who waited goes on waiting for the rest of the time.
func TestAWaitGoesOnForTheRestOfItsTime(t *testing.T) {
	for wait, want := range map[string]string{
		"reserve": "", "reserve-with-timeout 10": "TIMED_OUT\r\n", "reserve-batch 3 10": "RESERVED_BATCH 0\r\n",
	} {
		s, _ := numberedSim(t, 1)
		c := s.open()
		c.say("watch a", "ignore default", "use b", wait)
		s.Wait(4 * time.Second)
		a := c.away()
		if got := string(a.waits); got != wait+"\r\n" {
			t.Errorf("the wait of %s is %q", wait, got)
		}
		c.leaves(t)
		s.Wait(2 * time.Second)
		back, err := s.comesBack(a.id, a.wants, s.now-a.was.since)
		if err != nil {
			t.Fatal(err)
		}
		got := back.say(wait)
		s.Wait(3900 * time.Millisecond)
		if got += back.took(); got != "" {
			t.Errorf("%s: told %q before its time", wait, got)
		}
		if other := s.open(); want == "" {
			if got := other.say(fmt.Sprintf("stats-conn %d", a.id)); !strings.Contains(got, "\nwaiting-time: 9\n") {
				t.Errorf("%s: %q", wait, got)
			}
		}
		s.Wait(200 * time.Millisecond)
		if got := back.took(); got != want {
			t.Errorf("%s: told %q at its time, want %q", wait, got, want)
		}
		if want != "" {
			back.say("reserve-with-timeout 10")
			s.Wait(9 * time.Second)
			if got := back.took(); got != "" {
				t.Errorf("%s: the next wait ends early: %q", wait, got)
			}
		}
		s.noErrors(t)
	}
}

// Who has waited longest is served first, in whatever order clients go on.
func TestAWaitGoesOnInItsPlace(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}} {
		s, _ := numberedSim(t, 2)
		var list [3]away
		for i := range list {
			c := s.open()
			c.say("reserve")
			list[i] = c.away()
			s.Wait(time.Second)
		}
		late := s.open()
		late.say("reserve")
		s.Wait(time.Second)
		for _, a := range list {
			a.conn.leaves(t)
		}
		var back [4]*simConn
		for _, i := range order {
			a := list[i]
			c, err := s.comesBack(a.id, plain, s.now-a.was.since)
			if err != nil {
				t.Fatal(err)
			}
			c.say("reserve")
			back[i] = c
		}
		back[3] = late
		producer := s.open()
		for i, c := range back {
			producer.say("put 0 0 9 1", "x")
			if got, want := c.took(), fmt.Sprintf("RESERVED %d 1\r\nx\r\n", i+1); got != want {
				t.Fatalf("in the order %v: client %d is told %q, want %q", order, i, got, want)
			}
		}
		s.noErrors(t)
	}
}

// To find the place of a wait that goes on costs no more because very many wait.
func TestAWaitThatGoesOnPassesAFew(t *testing.T) {
	s, _ := numberedSim(t, 1)
	first := s.open()
	first.say("reserve")
	s.Wait(time.Second)
	others := make([]*simConn, maxPassed+2)
	for i := range others {
		others[i] = s.open()
		others[i].say("reserve")
	}
	s.Wait(time.Second)
	a := first.away()
	first.leaves(t)
	back, err := s.comesBack(a.id, plain, s.now-a.was.since)
	if err != nil {
		t.Fatal(err)
	}
	back.say("reserve")
	want := []*simConn{others[0], others[1], back, others[2]}
	producer := s.open()
	for i, c := range want {
		producer.say("put 0 0 9 1", "x")
		if got, want := c.took(), fmt.Sprintf("RESERVED %d 1\r\nx\r\n", i+1); got != want {
			t.Errorf("client %d in line is told %q, want %q", i, got, want)
		}
	}
	s.noErrors(t)
}

// A job that is handed over while the session parts is that of the absent session.
func TestAJobOnItsWayIsThatOfTheAbsentSession(t *testing.T) {
	s, record := numberedSim(t, 2)
	worker, producer := s.open(), s.open() // on two loops
	worker.say("reserve")
	c := codec.Command{Op: codec.OpPut, CountAs: codec.OpPut, TTR: 9, Size: 1, Body: []byte("x"), Terminated: true}
	producer.session.CommandEnds(9)
	if producer.session.Execute(s.now, &c, &producer.out) != Done {
		t.Fatal("no put")
	}
	id := worker.session.number()
	worker.ended = true
	if worker.session.Part(s.now) {
		t.Fatal("it has parted while a job is on its way")
	}
	if _, err := s.comesBack(id, plain, 0); !errors.Is(err, ErrSessionID) {
		t.Errorf("it goes on before it has parted: %v", err)
	}
	s.Settle()
	if got := record.since(1); got != "p1 ready by 2 at 9, h1 by 1 at 9" {
		t.Errorf("recorded %q", got)
	}
	back, err := s.comesBack(id, plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.say("delete 1"); got != "DELETED\r\n" {
		t.Errorf("got %q", got)
	}
}

// What leaves has left before its session goes on: otherwise its end would free what the session holds by then.
func TestASessionDoesNotGoOnWhileItsEndIsUnderWay(t *testing.T) {
	s, record := numberedSim(t, 1)
	l := slow(t, s)
	c := s.open()
	for range 6000 {
		c.say("put 0 0 99 1", "x")
	}
	for range 6 {
		c.say("reserve-batch 1000")
	}
	id := c.session.number()
	l.loop.Refill()
	c.ended = true
	if c.session.Close(s.now) {
		t.Fatal("it has given back all at once")
	}
	if _, err := s.comesBack(id, plain, 0); !errors.Is(err, ErrSessionID) {
		t.Errorf("it goes on while its end is under way: %v", err)
	}
	if err := l.loop.OpenAs(new(Session), id, nil, s.now); !errors.Is(err, ErrSessionID) {
		t.Errorf("it begins again while its end is under way: %v", err)
	}
	l.rounds()
	from := len(record.entries)
	if back, err := s.comesBack(id, plain, 0); err != nil || back.session.Reserves(s.now) {
		t.Errorf("when it has ended: %v", err)
	}
	if got := record.since(from); got != "" {
		t.Errorf("recorded %q behind its end", got)
	}
}

// The clients of sessions that were not named have left.
func TestAbsentSessionsThatWereNotNamedEnd(t *testing.T) {
	s, record := numberedSim(t, 2)
	var ids []uint64
	for n := range 4 {
		c := s.open()
		if n == 3 {
			s.ids = func(n int) uint64 { return sessionID(2, uint64(n)) }
			c = s.open()
		}
		c.say("put 0 0 99 1", "x", "reserve")
		ids = append(ids, c.leaves(t))
	}
	waits := s.open()
	waits.say("watch a", "reserve")
	if _, err := s.comesBack(ids[1], plain, 0); err != nil {
		t.Fatal(err)
	}
	from := len(record.entries)
	s.engine.CloseAbsent(1)
	s.Settle()
	got := record.since(from)
	if strings.Count(got, "c1") != 1 || strings.Count(got, "c3") != 1 || strings.Count(got, "c") != 2 || strings.Index(got, "c") > strings.Index(got, "h") {
		t.Errorf("recorded %q, want the ends of the first session and the third, and a job handed over behind one", got)
	}
	if !strings.HasPrefix(waits.took(), "RESERVED ") {
		t.Error("who waits gets none of their jobs")
	}
	for i, want := range []error{nil, ErrSessionID, nil, nil} {
		back, err := s.comesBack(ids[i], plain, 0)
		if !errors.Is(err, want) {
			t.Errorf("session %d goes on: %v, want %v", i, err, want)
		}
		if err == nil && back.session.Reserves(s.now) != (i == 3) {
			t.Errorf("session %d has a job: %v", i, back.session.Reserves(s.now))
		}
	}
	from = len(record.entries)
	s.engine.CloseAbsent(1)
	s.engine.CloseAbsent(3)
	s.Settle()
	if got := record.since(from); got != "" {
		t.Errorf("nobody is absent, and recorded is %q", got)
	}
	s.noErrors(t)
}

// When a number is gone, on record, its sessions never come back, and what they held is ready. One record
// tells it of all, before the first of it is ready.
func TestWhatANumberHoldsIsReadyWhenItIsGone(t *testing.T) {
	for name, end := range map[string]func(e *Engine) error{
		"it ends":            func(e *Engine) error { _, err := e.EndNumber(1); return err },
		"its process is new": func(e *Engine) error { _, _, err := e.GiveNumbers(9, 2, 1); return err },
	} {
		s, record := numberedSim(t, 1)
		a, b := s.open(), s.open()
		a.say("put 0 0 99 1", "x", "put 0 0 99 1", "y", "reserve")
		b.say("reserve")
		first, from := a.leaves(t), len(record.entries)
		if err := end(s.engine); !errors.Is(err, ErrSessionsLeft) || len(record.entries) != from {
			t.Errorf("%s while one of its sessions is there: %v; recorded %q", name, err, record.since(from))
		}
		second := b.leaves(t)
		s.ids = nil // what the server's own clients reserve is not on record
		waits := s.open()
		waits.say("reserve")
		waits.out.Pos = 0
		if err := end(s.engine); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		gone := record.pos
		s.Settle()
		if got := record.since(from); got != "n" {
			t.Errorf("%s: recorded %q", name, got)
		}
		if got := waits.took(); got != "RESERVED 1 1\r\nx\r\n" || waits.out.Pos < gone {
			t.Errorf("%s: who waits gets %q at %d of %d", name, got, waits.out.Pos, gone)
		}
		for _, id := range []uint64{first, second} {
			if _, err := s.comesBack(id, plain, 0); !errors.Is(err, ErrNumberGone) {
				t.Errorf("%s: a session goes on: %v", name, err)
			}
		}
		from = len(record.entries)
		for _, number := range []uint32{0, 1, 50, 1 << 30} {
			if pos, err := s.engine.EndNumber(number); pos != 0 || err != nil {
				t.Errorf("%s: number %d ends at %d; %v", name, number, pos, err)
			}
		}
		if got := record.since(from); got != "" {
			t.Errorf("%s: no number ends, and recorded is %q", name, got)
		}
		waits.out.Pos = 0
		if got := waits.say("reserve"); got != "RESERVED 2 1\r\ny\r\n" || waits.out.Pos < gone {
			t.Errorf("%s: the other job: %q at %d of %d", name, got, waits.out.Pos, gone)
		}
		s.noErrors(t)
	}
}

// Who gave up office settled goes on elsewhere, also with what it holds, and its wait.
func TestOwnClientsGoOnUnderTheNextLeaderWithTheirJobs(t *testing.T) {
	s := newSim(100, 2)
	record := &tape{file: newFile(nil)}
	s.engine.recordIn(heldTape{record})
	for i, l := range s.loops {
		l.Number(uint32(i+1), 70)
	}
	holder, waits, early := s.open(), s.open(), s.open()
	if holder.session.number() != sessionID(1, 71) || waits.session.number() != sessionID(2, 71) || s.loops[0].Sessions() != 72 {
		t.Fatalf("the sessions are %x and %x, and the first loop has had %d", holder.session.number(), waits.session.number(), s.loops[0].Sessions())
	}
	holder.say("put 0 0 9 1", "x", "put 0 0 9 1", "y", "put 0 0 9 1", "z", "reserve", "reserve")
	early.say("reserve")
	waits.say("watch a", "reserve-with-timeout 20")
	s.Wait(5 * time.Second)
	from := len(record.entries)
	s.engine.Hold(true)
	var room atomic.Int64
	room.Store(2 * journal.HoldSize)
	for c, want := range map[*simConn]bool{holder: true, waits: true} {
		if got := c.session.Record(&room, s.now); got != want {
			t.Errorf("the session is on record: %v, want %v", got, want)
		}
	}
	if early.session.Record(&room, s.now) || room.Load() != 0 {
		t.Errorf("there was room for two jobs, and is for %d bytes", room.Load())
	}
	if got := record.since(from); got != "h1 by 71 at 0, h2 by 71 at 0" && got != "h2 by 71 at 0, h1 by 71 at 0" {
		t.Errorf("recorded %q", got)
	}
	if holder.session.Record(&room, s.now); len(record.entries) != from+2 {
		t.Errorf("recorded twice: %q", record.since(from))
	}
	if _, ok := early.session.DetachRecorded(); ok {
		t.Error("a client goes on whose job is off the record")
	}
	early.ended = true
	was, ok := waits.session.DetachRecorded()
	if !ok {
		t.Fatal("a client that waits does not go on")
	}
	held, ok := holder.session.DetachRecorded()
	if !ok {
		t.Fatal("a client that holds jobs on record does not go on")
	}
	holder.ended, waits.ended = true, true
	s.follows(t, record)
	back, err := s.comesBack(held.ID(), held.Interests(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.say("delete 1", "touch 2"); got != "DELETED\r\nTOUCHED\r\n" {
		t.Errorf("it goes on with %q", got)
	}
	again, err := s.comesBack(was.ID(), was.Interests(), 5*clock.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.say(strings.TrimSpace(string(was.Wait()))); got != "RESERVED 3 1\r\nz\r\n" {
		t.Errorf("who waits gets %q, want the job that was off the record", got)
	}
}

// The first leader's first clients come before its loops have numbers.
func TestASessionFromBeforeItsLoopHadANumberGoesOn(t *testing.T) {
	s := newSim(100, 1)
	record := &tape{file: newFile(nil)}
	s.engine.recordIn(heldTape{record})
	c, other := s.open(), s.open()
	c.say("put 0 0 9 1", "x", "reserve")
	s.loops[0].Number(3, 0)
	late := s.open()
	from := len(record.entries)
	s.engine.Hold(true)
	var room atomic.Int64
	room.Store(1 << 20)
	if !c.session.Record(&room, s.now) || !other.session.Record(&room, s.now) {
		t.Fatal("they are not on record")
	}
	if got := record.since(from); got != "h1 by 2 at 0" {
		t.Errorf("recorded %q", got)
	}
	for i, x := range []*simConn{late, c, other} {
		if got, want := x.session.number(), sessionID(3, uint64(i+1)); got != want || !slices.Contains(s.engine.onRoll(), &x.session) {
			t.Errorf("the session is %x, want %x, or nobody finds it", got, want)
		}
	}
	was, ok := c.session.DetachRecorded()
	if !ok {
		t.Fatal("it does not go on")
	}
	for _, x := range s.conns {
		x.ended = true
	}
	s.follows(t, record)
	back, err := s.comesBack(was.ID(), was.Interests(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.say("delete 1"); got != "DELETED\r\n" {
		t.Errorf("it goes on with %q", got)
	}
}

// A session with a number is on record at most once, and one without stays off the record.
func TestSessionsWithoutANumberAreNotPutOnRecord(t *testing.T) {
	s := newSim(100, 1)
	s.engine.recordIn(heldTape{&tape{file: newFile(nil)}})
	c := s.open()
	s.engine.Hold(true)
	var room atomic.Int64
	room.Store(1 << 20)
	if c.session.Record(&room, s.now) {
		t.Error("a session of a loop without a number is on record")
	}
	s.engine.recordIn(withoutHolds{heldTape{&tape{file: newFile(nil)}}})
	s.loops[0].Number(1, 0)
	if c := s.open(); c.session.Record(&room, s.now) {
		t.Error("a session is on record where nobody could read it")
	}
}

// A client that was handed a job, and was not told, has a reply to come that only the log, and whoever has its
// session, knows of.
func TestWhoWasNotToldOfItsJobGoesOnWithIt(t *testing.T) {
	s, record := numberedSim(t, 2)
	worker, producer := s.open(), s.open()
	worker.say("reserve")
	c := codec.Command{Op: codec.OpPut, CountAs: codec.OpPut, TTR: 9, Size: 1, Body: []byte("x"), Terminated: true}
	producer.session.CommandEnds(9)
	producer.session.Execute(s.now, &c, &producer.out)
	s.engine.Hold(true)
	was, ok := worker.session.DetachRecorded()
	if !ok || was.Handed() != 1 || string(was.Wait()) != "reserve\r\n" {
		t.Fatalf("it is detached: %v", ok)
	}
	if _, ok := producer.session.Detach(); ok {
		t.Error("a session on record is detached as if it were none")
	}
	if d, ok := producer.session.DetachRecorded(); !ok || d.Handed() != 0 {
		t.Error("the other one is not")
	}
	worker.ended, producer.ended = true, true
	s.follows(t, record)
	var back simConn
	back.loop = s.loops[0]
	if err := back.loop.GoOn(&back.session, was, 0, s.now); err != nil {
		t.Fatal(err)
	}
	if outcome := back.session.Resume(s.now, &back.out); outcome != Done || string(back.out.Buf) != "RESERVED 1 1\r\nx\r\n" {
		t.Errorf("it goes on with %q, %v", back.out.Buf, outcome)
	}
	back.out.Discard()
	back.session.Close(s.now)
}

// A client that was handed a job, and was not told, is told by the next server, for whom that is what its wait has done.
func TestWhoWasNotToldOfItsJobIsToldElsewhere(t *testing.T) {
	for _, wait := range []string{"reserve", "reserve-with-timeout 20", "reserve-batch 3 20"} {
		s, record := numberedSim(t, 2)
		worker, producer := s.open(), s.open()
		worker.say(wait)
		c := codec.Command{Op: codec.OpPut, CountAs: codec.OpPut, TTR: 9, Size: 1, Body: []byte("x"), Terminated: true}
		producer.session.CommandEnds(9)
		producer.session.Execute(s.now, &c, &producer.out)
		s.engine.Hold(true)
		if _, ok := producer.session.Detach(); ok {
			t.Error("a session on record is detached as if it were none")
		}
		other, ok := producer.session.DetachRecorded()
		if !ok || other.Offset() != 9 {
			t.Fatalf("the one who put the job is not detached: %v", ok)
		}
		if id := other.Handed(); id != 0 {
			t.Errorf("it has got job %d", id)
		}
		was, ok := worker.session.DetachRecorded()
		if !ok {
			t.Fatal("the worker is not detached")
		}
		if was.Handed() != 1 || was.Offset() != uint64(len(wait)+2) {
			t.Errorf("its wait behind %d got job %d", was.Offset(), was.Handed())
		}
		x := journal.Effect{Session: was.ID(), Offset: was.Offset() + uint64(len(was.Wait())), ID: was.Handed(), Kind: journal.EffectHold}
		s.succeed(t, record)
		worker.waiting, producer.ended = false, true
		d, err := Absent(was.ID(), nil, was.Interests(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.loop.GoOn(&worker.session, d, 0, s.now); err != nil {
			t.Fatal(err)
		}
		worker.offset = was.Offset()
		_, ok = worker.again(string(was.Wait()), []journal.Effect{x}, 0)
		if got, _ := worker.Pending(); !ok || !strings.HasSuffix(string(got), "RESERVED 1 1\r\nx\r\n") {
			t.Errorf("%s: told %q, %v", wait, got, ok)
		}
		s.noErrors(t)
	}
}

// Nobody has to be told again what the server's own clients have done, who end with it.
func TestRecordsDoNotNameCommandsOfTheServersOwnClients(t *testing.T) {
	s, record := numberedSim(t, 1)
	c := s.open()
	c.say("use a", "watch a")
	id, x := c.session.number(), c.session.Interests()
	c.leaves(t)
	d, err := Absent(id, nil, x, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.EndsAt(77)
	var own Session
	if err := c.loop.GoOn(&own, d, 0, s.now); err != nil {
		t.Fatal(err)
	}
	from := len(record.entries)
	var decoder codec.Decoder
	decoder.MaxJobSize, decoder.Extensions = 100_000, true
	var out reply.Output
	var cmd codec.Command
	big := strings.Repeat("b", pinnedSize)
	in := []byte(lines("put 0 0 9 1 idp:k:9\na\nput 0 0 9 1\nb\nput 0 0 9 1\nc\nput 0 0 9 32768\n" + big +
		"\nreserve-batch 9\ntouch 2\nrelease 2 0 0\nbury 3 0\nkick-job 3\ndelete 1\nmove-job 3 b\nset-dlq q 3 b\ndelete 2"))
	for len(in) > 0 {
		n, ok := decoder.Next(in, &cmd)
		if in = in[n:]; ok && own.Execute(s.now, &cmd, &out) != Done {
			t.Fatalf("%s is not done", cmd.Op)
		}
	}
	replies := strings.Count(string(out.Buf), "\r\n")
	for _, e := range record.entries[from:] {
		if x, ok := e.effect(); ok && (x.Offset > 77 || x.Kind != journal.EffectHold) {
			t.Errorf("a record tells of %+v", x)
		}
	}
	if replies < 12 || len(record.entries)-from < 15 {
		t.Errorf("%d replies, %d records: %q", replies, len(record.entries)-from, record.since(from))
	}
	out.Discard()
	if was, ok := own.DetachRecorded(); !ok || was.Offset() != 77 {
		t.Error("it does not go on where it was")
	}
}

// A put whose body has come in part goes on at another server, which is sent again what has come of it.
func TestAPutInPartIsSentAgain(t *testing.T) {
	for _, x := range []struct{ put, tags string }{
		{"put 7 5 9 4\nabcd", ""},
		{"put 7 5 9 4\nab\n", ""},
		{"put 7 5 9 4\nabcdef", ""},
		{"put 7 5 9 4\nabcd\n", ""},
		{"put 7 0 9 4 idp:k con:l fair:f grp:g aft:h exp:7\nabcd", " idp:k:0 con:l:1 fair:f grp:g aft:h exp:7"},
		{"put 7 0 9 4 idp:k:5 con:l:3 aft:h:settled exp:0\nabcd", " idp:k:5 con:l:3 aft:h:settled exp:0"},
		{"put 7 0 9 4 exp:0\nabcd", " exp:0"},
	} {
		in := lines(x.put) + "list-tube-used\r\n"
		step := 1
		if !proof {
			step = 5
		}
		for cut := 0; cut < len(in); cut += step {
			s, record := numberedSim(t, 1)
			c, whole := s.open(), s.open()
			whole.say("set-tube a expire=99", "use a")
			c.say("use a")
			_ = c.Send([]byte(in[:cut]))
			told, _ := c.Pending()
			s.engine.Hold(true)
			d, ok := c.session.DetachRecorded()
			if !ok {
				t.Fatalf("cut at %d: it is not detached", cut)
			}
			put, ok := d.Put()
			begun, known := c.decoder.Held()
			if !ok || !known {
				t.Fatalf("cut at %d: it cannot be sent again", cut)
			}
			if line, _, _ := strings.Cut(string(put), "\r"); x.tags != "" && put != nil && !strings.HasSuffix(line, x.tags) {
				t.Errorf("sent again is %q, want the tags%s", line, x.tags)
			}
			rest := string(put) + string(begun) + in[cut:]
			s.succeed(t, record)
			whole.ended, c.ended = true, true
			back, err := s.comesBack(d.ID(), d.Interests(), 0)
			if err != nil {
				t.Fatal(err)
			}
			_ = back.Send([]byte(rest))
			more, _ := back.Pending()
			one := s.open()
			one.say("use a")
			_ = one.Send([]byte(in))
			want, _ := one.Pending()
			first, _, _ := strings.Cut(string(want), " ")
			if got := string(told) + string(more); !strings.HasPrefix(got, first) || strings.Count(got, "\r\n") != strings.Count(string(want), "\r\n") {
				t.Fatalf("cut at %d: told %q, and without a change %q", cut, got, want)
			}
			job := func(reply string) (shown string) {
				var id int
				if _, err := fmt.Sscanf(reply, "INSERTED %d", &id); err == nil {
					_, shown, _ = strings.Cut(back.say(fmt.Sprintf("stats-job %d", id))+back.say(fmt.Sprintf("peek %d", id)), "tube:")
				}
				return strings.ReplaceAll(shown, fmt.Sprintf("FOUND %d", id), "FOUND")
			}
			if a, b := job(string(more)), job(string(want)); len(told) == 0 && a != b {
				t.Errorf("cut at %d: the job is %q, and without a change %q", cut, a, b)
			}
			s.noErrors(t)
		}
	}
}

// Nothing is known of a body that is being discarded.
func TestAPutThatIsDiscardedIsNotSentAgain(t *testing.T) {
	s := newConfiguredSim(Config{MaxJobSize: 100_000, Limits: Limits{Memory: 10_000}}, 1)
	s.onRecord(&tape{file: newFile(nil)})
	c := s.open()
	_ = c.Send([]byte("put 0 0 9 50000\r\nabc"))
	d, ok := c.session.DetachRecorded()
	if !ok {
		t.Fatal("it is not detached")
	}
	if sent, ok := d.Put(); ok {
		t.Errorf("sent again is %q", sent)
	}
	if b, ok := c.decoder.Held(); !ok || b != nil {
		t.Errorf("the decoder has %q", b)
	}
}

// What another server tells of a session is looked at.
func TestASessionThatGoesOnWatchesSomethingOnce(t *testing.T) {
	for _, x := range []Interests{
		{Used: "a"},
		{Used: "a", Watched: []string{"b", "b"}},
		{Used: "a", Watched: []string{"b"}, Weights: []uint16{1, 2}},
		{Used: "a", Watched: []string{"b"}, Weights: []uint16{0}},
		{Used: "a", Watched: []string{"b"}, Mode: codec.Weighted},
	} {
		if _, err := Absent(sessionID(1, 1), nil, x, 0); err == nil {
			t.Errorf("%+v is taken", x)
		}
	}
	s, _ := numberedSim(t, 1)
	c := s.open()
	c.say("watch a 3", "watch b 5", "ignore default", "use c", "reserve-mode weighted-fair info")
	x := c.session.Interests()
	id := c.leaves(t)
	back, err := s.comesBack(id, x, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(back.session.Interests()), fmt.Sprint(x); got != want || x.Mode != codec.WeightedFair || !x.Info {
		t.Errorf("it goes on with %s, want %s", got, want)
	}
	if got := back.say("put 0 0 9 1", "x", "list-tubes-watched"); !strings.Contains(got, "- b\n- a\n") {
		t.Errorf("got %q", got)
	}
	s.noErrors(t)
}
