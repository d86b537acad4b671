package shard

import (
	"cmp"
	"regexp"
	"slices"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/script"
)

// away is a client whose session is absent.
type away struct {
	conn  *simConn
	id    uint64
	wants Interests
	waits []byte   // what it has sent and is not answered; nil if there is nothing
	was   *history // what nobody is told of otherwise
}

// canPart reports whether a client can go on elsewhere: nothing of its commands is half executed.
func (c *simConn) canPart() bool {
	return c.session.incomingPut() == nil && !c.session.isBusy()
}

// away is what is known elsewhere of the client's session, and more.
func (c *simConn) away() away {
	s := &c.session
	return away{c, s.number(), s.Interests(), s.waitLine(), s.history()}
}

// parts has all clients leave their loops, whose sessions are absent then. It reports false, and does
// nothing, if one of them cannot go on.
func (s *sim) parts(t *testing.T) (list []away, ok bool) {
	t.Helper()
	s.Settle()
	for _, c := range s.conns {
		if !c.ended && !c.canPart() {
			return nil, false
		}
	}
	for _, c := range s.conns {
		if c.ended {
			continue
		}
		list = append(list, c.away())
		if !c.session.Part(s.now) {
			t.Error("a session does not part at once, and nothing is under way")
		}
		c.session = Session{}
	}
	slices.SortFunc(list, func(a, b away) int { return cmp.Compare(a.conn.wait, b.conn.wait) })
	return list, true
}

// goesOn has a client go on, with what is known elsewhere of its session, and its history.
func (s *sim) goesOn(t *testing.T, a away, by clock.Time) {
	t.Helper()
	c, was := a.conn, a.was
	age := clock.Time(0)
	if was.flags&isWaiting != 0 {
		age = s.now - (was.since + by)
	}
	d, err := Absent(a.id, was.grant, a.wants, age)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.loop.GoOn(&c.session, d, by, s.now); err != nil {
		t.Fatal(err)
	}
	c.session.remember(was, by)
	c.session.client.reserved.holder.patience.Store(0)
}

// waitsAgain has a client send the command again whose reply it waits for.
func (s *sim) waitsAgain(t *testing.T, a away) {
	t.Helper()
	c := a.conn
	var decoder codec.Decoder
	decoder.Extensions = true
	var cmd codec.Command
	if n, ok := decoder.Next(a.waits, &cmd); !ok || n != len(a.waits) {
		t.Fatalf("%q is no command", a.waits)
	}
	c.session.CommandEnds(c.offset)
	if c.waiting = c.session.Execute(s.now, &cmd, &c.out) == Wait; c.waiting {
		c.waits()
	}
	c.loop.countNoCommand(&c.session, cmd.CountAs)
	flatten(&c.out)
}

// blink has all clients lose their connections and come back.
func (s *sim) blink(t *testing.T) bool {
	t.Helper()
	forget := s.keepTubes() // nobody may see that a tube was nobody's for a moment
	defer forget()
	list, ok := s.parts(t)
	if !ok {
		return false
	}
	for _, a := range list {
		s.goesOn(t, a, 0)
	}
	s.waitOn(t, list)
	return true
}

// keepTubes keeps all tubes from ending until forget is called.
func (s *sim) keepTubes() (forget func()) {
	var kept []*tube
	for _, sh := range s.engine.shards {
		for _, t := range sh.byName {
			t.using++
			kept = append(kept, t)
		}
	}
	return func() {
		c := Tx{shared: s.engine.Shards}
		for _, t := range kept {
			t.shard.lock(&c, s.now)
			t.using--
			t.shard.removeIfUnused(t)
			t.shard.unlock(&c)
		}
	}
}

// waitOn has those wait on who have waited.
func (s *sim) waitOn(t *testing.T, list []away) {
	t.Helper()
	for _, a := range list {
		if a.was.flags&halfClosed != 0 {
			a.conn.session.HalfClose(s.now, &a.conn.out)
		}
		if a.waits != nil {
			s.waitsAgain(t, a)
		}
	}
	s.Settle()
}

// follows has another engine take office, which knows what is on record, and all clients go on there.
func (s *sim) follows(t *testing.T, record *tape) bool {
	t.Helper()
	s.Settle()
	for _, c := range s.conns {
		if !c.ended && !c.canPart() {
			return false
		}
	}
	var list []away
	for _, c := range s.conns {
		if !c.ended {
			list = append(list, c.away())
			c.session = Session{}
		}
	}
	slices.SortFunc(list, func(a, b away) int { return cmp.Compare(a.conn.wait, b.conn.wait) })
	by := s.succeed(t, record)
	for _, a := range list {
		s.goesOn(t, a, by)
	}
	s.waitOn(t, list)
	if n := s.engine.Contradictions(); n != 0 {
		t.Errorf("%d contradictions", n)
	}
	return true
}

// succeed has another engine take office, which knows what is on record. Its times are greater by what is returned.
func (s *sim) succeed(t *testing.T, record *tape) clock.Time {
	t.Helper()
	const by = clock.Time(77 * time.Hour)
	cfg, next, draining := s.engine.config, s.engine.ids.Last.Load()+1, s.engine.Draining()
	s.engine.Discard()
	if cfg.Start.IsZero() {
		cfg.Start = time.Unix(0, 0)
	}
	cfg.Journal, cfg.Start = nil, cfg.Start.Add(-time.Duration(by))
	e := newEngine(cfg, placement)
	f := e.Follow(clock.Always)
	f.Strict()
	f.feed(t, record.entries)
	for id, x := range record.jobs { // see heldTape.Put
		if sh, _, j := f.lockJob(id); sh != nil {
			j.segment = x.segment
			sh.unlock(&f.tx)
		}
	}
	f.RecordIn(heldTape{record})
	s.engine, s.now = e, s.now+by
	f.ServeOn(next, s.now)
	e.Drain(draining) // which nobody but operators knows
	for _, l := range s.loops {
		l.woken, l.alarm = true, clock.MaxTime
		l.Loop = e.NewLoop(l)
	}
	return by
}

// stops has the server stop, so that its clients leave, and another engine take office.
func (s *sim) stops(t *testing.T, record *tape) {
	t.Helper()
	for _, l := range s.loops {
		l.Stop()
	}
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.Settle()
	s.succeed(t, record)
}

// standbyAgrees compares what the engine holds with what a standby knows by the records.
func (s *sim) standbyAgrees(t *testing.T, record *tape) {
	standby := New(Config{Info: testInfo, Shards: 4})
	defer standby.Discard()
	f := standby.Follow(clock.Always)
	f.Strict()
	f.feed(t, record.entries)
	if ours, theirs := s.engine.held(s.engine.ids.Last.Load()), standby.held(s.engine.ids.Last.Load()); ours != theirs || standby.Contradictions() != 0 {
		t.Errorf("the standby holds\n%s\nthe leader\n%s\n%d contradictions", theirs, ours, standby.Contradictions())
	}
}

// playOnRecord plays one of so many scripts, or all of them in a proof, with all sessions on record.
func playOnRecord(t *testing.T, every int, leave *regexp.Regexp, before func(s *sim, record *tape)) {
	t.Helper()
	if proof {
		every = 1
	}
	for i, c := range script.Corpus() {
		if i%every != 0 || !c.Applies("trellis", "access") || leave != nil && leave.Match(c.Input()) {
			continue
		}
		target := simTarget{loops: 1 + i%3, setUp: func(s *sim) {
			record := &tape{file: newFile(nil)}
			s.onRecord(record)
			s.ids = func(n int) uint64 { return uint64(n) } // which the scripts know
			s.before = func() { before(s, record) }
			s.restart = func() { s.stops(t, record) }
			s.ended = func() { s.standbyAgrees(t, record) }
		}}
		if err := script.Play(c, target, "trellis", "access"); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// Whatever clients do on record, their replies are the same if each of them loses its connection before
// anybody sends something, and goes on through another one.
func TestScriptsOfSessionsThatGoOn(t *testing.T) {
	times := 0
	playOnRecord(t, 5, nil, func(s *sim, _ *tape) {
		if s.blink(t) {
			times++
		}
	})
	if times < 500 {
		t.Errorf("all have lost their connections %d times", times)
	}
}

// offRecord is what shows something that no other server knows: counters, pauses, the order of tubes,
// whose turn it is among fair ones.
var offRecord = regexp.MustCompile(`stats\r|stats-tube|stats-conn|pause|list-tubes\r|fair:|weighted`)

// Whatever clients do on record, their replies are the same if another server takes office before anybody
// sends something, where they show nothing that is off the record.
func TestScriptsUnderOneLeaderAfterTheOther(t *testing.T) {
	changes := 0
	playOnRecord(t, 9, offRecord, func(s *sim, record *tape) {
		if s.follows(t, record) {
			changes++
		}
	})
	if changes < 300 {
		t.Errorf("another leader has come %d times", changes)
	}
}
