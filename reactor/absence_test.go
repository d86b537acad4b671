package reactor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// recording is a server whose journal other servers share.
type recording struct {
	*testServer
	journal *barredJournal
}

// barredJournal is a holdingJournal whose barriers are records, and that keeps what records tell of commands.
type barredJournal struct {
	*holdingJournal
	done []journal.Effect // guarded by mu
}

func (j *barredJournal) Barrier() journal.Pos { return j.next() }

// note keeps what a record tells of a command.
func (j *barredJournal) note(o journal.Origin, id uint64, kind journal.EffectKind, state journal.State) {
	if o.Offset != 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.done = append(j.done, journal.Effect{Session: o.Session, Offset: o.Offset, ID: id, Kind: kind, State: state})
	}
}

func (j *barredJournal) Put(r *journal.Record) (journal.Ticket, error) {
	j.note(r.Origin, r.ID, journal.EffectPut, r.State)
	return j.holdingJournal.Put(r)
}

func (j *barredJournal) Move(r *journal.Record, f journal.Former) (journal.Ticket, error) {
	j.note(r.Origin, r.ID, journal.EffectPut, r.State)
	return j.holdingJournal.Move(r, f)
}

func (j *barredJournal) Replace(r *journal.Record, f journal.Former) (journal.Ticket, error) {
	j.note(r.Origin, r.ID, journal.EffectPut, r.State)
	return j.holdingJournal.Replace(r, f)
}

func (j *barredJournal) Update(r *journal.Record) (journal.Pos, error) {
	j.note(r.Origin, r.ID, journal.EffectUpdate, r.State)
	return j.holdingJournal.Update(r)
}

func (j *barredJournal) EndHold(r *journal.Record) (journal.Pos, error) {
	j.note(r.Origin, r.ID, journal.EffectUpdate, r.State)
	return j.holdingJournal.EndHold(r)
}

func (j *barredJournal) DeleteFor(id uint64, f journal.Former, by journal.Origin) (journal.Pos, error) {
	j.note(by, id, journal.EffectDelete, 0)
	return j.holdingJournal.DeleteFor(id, f, by)
}

func (j *barredJournal) Set(s *journal.Setting) (journal.Pos, error) {
	j.note(s.Origin, 0, journal.EffectSetting, 0)
	return j.holdingJournal.Set(s)
}

func (j *barredJournal) Hold(h *journal.Hold) (journal.Pos, error) {
	kind := journal.EffectHold
	if h.Touch {
		kind = journal.EffectTouch
	}
	j.note(journal.Origin{Session: h.Session, Offset: h.Offset}, h.ID, kind, 0)
	return j.holdingJournal.Hold(h)
}

// effects are what the records of a session tell of its commands that end behind an offset.
func (j *barredJournal) effects(session, behind uint64) (list []journal.Effect) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, x := range j.done {
		if x.Session == session && x.Offset > behind {
			list = append(list, x)
		}
	}
	return list
}

// serveRecording serves with a journal that commits at once.
func serveRecording(t testing.TB, loops int, h hooks) *recording {
	t.Helper()
	j := &barredJournal{holdingJournal: &holdingJournal{fakeJournal: new(fakeJournal)}}
	j.atOnce.Store(true)
	e, now := newJournaledEngine(t, j)
	ts := serveConfig(t, "unix", h, nil, func(c *Config) {
		c.Engine, c.Now, c.Journal, c.Loops, c.Extensions = e, now, j, loops, true
	})
	ts.engine = e
	return &recording{ts, j}
}

// gateway lays a trunk whose gateway resumes sessions to a loop of the server.
func (r *recording) gateway(l *loop) *trunkScript {
	s := r.script(l)
	s.end.Speak(trunk.ResumesSince)
	return s
}

// ends has the trunk end.
func (s *trunkScript) ends() {
	ended := make(chan struct{})
	s.loop.call(func(l *loop) {
		defer close(ended)
		s.end.Disconnect(l.server.now(), io.EOF)
	})
	<-ended
}

// ended are the sessions whose ends are on record.
func (r *recording) ended() []uint64 {
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	return slices.Clone(r.journal.closed)
}

// untilAbsent waits until no loop has a session of the test's gateway.
func (r *recording) untilAbsent() {
	r.t.Helper()
	r.until("the sessions are absent", func() bool { return !r.testServer.engine.NumberPresent(testNumber) })
}

// Sessions outlive a trunk only if their gateway says that it resumes them, and the client has not gone.
func TestSessionsOutliveTheirTrunkIfTheyCanGoOn(t *testing.T) {
	t.Parallel()
	for how, x := range map[string]struct {
		version uint16
		end     func(r *recording, s *trunkScript)
		ended   bool
	}{
		"end":             {2, func(_ *recording, s *trunkScript) { s.ends() }, false},
		"old gateway":     {1, func(_ *recording, s *trunkScript) { s.ends() }, true},
		"close":           {2, func(_ *recording, s *trunkScript) { s.say(bare(trunk.KindClose, 1)) }, true},
		"close, then end": {2, func(_ *recording, s *trunkScript) { s.say(bare(trunk.KindClose, 1)); s.ends() }, true},
		"leave":           {2, func(_ *recording, s *trunkScript) { s.say(bare(trunk.KindLeave, 0)) }, true},
		"leave, then end": {2, func(_ *recording, s *trunkScript) { s.say(bare(trunk.KindLeave, 0)); s.ends() }, true},
		"quit, then end":  {2, func(_ *recording, s *trunkScript) { s.say(input(1, "quit\r\n")); s.ends() }, true},
		"shutdown":        {2, func(r *recording, _ *trunkScript) { _ = r.Shutdown(r.t.Context()) }, false},
		"held":            {2, func(r *recording, s *trunkScript) { r.Hold(true); s.ends(); r.Hold(false) }, false},
		"held, close": {2, func(r *recording, s *trunkScript) {
			r.Hold(true)
			s.say(bare(trunk.KindClose, 1))
			s.ends()
			r.Hold(false)
		}, true},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := serveRecording(t, 2, hooks{})
			s := r.gateway(r.loops[0])
			s.end.Speak(x.version)
			id := r.dial().put("x")
			s.say(opens(1, 1), input(1, "reserve\r\n"))
			s.expectReplies(1, reserved(id, "x"))
			x.end(r, s)
			r.untilAbsent()
			if got := len(r.ended()) > 0; got != x.ended {
				t.Errorf("that the session has ended is on record: %v", got)
			}
			if !x.ended && how != "shutdown" {
				c := r.dial()
				c.do("reserve-with-timeout 0\r\n", "TIMED_OUT\r\n")
				r.testServer.engine.CloseAbsent(testNumber)
				c.do("reserve\r\n", reserved(id, "x"))
			}
		})
	}
}

// What ends while nothing is executed ends afterwards: nothing is recorded meanwhile.
func TestATrunkThatEndsDuringAHoldRecordsNothing(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 2, hooks{})
	s := r.gateway(r.loops[0])
	id := r.dial().put("x")
	s.say(opens(1, 1), input(1, "reserve\r\n"), opens(2, 2), input(2, "reserve\r\n"))
	s.expectReplies(1, reserved(id, "x"))
	r.Hold(true)
	before := r.journal.recorded.Load()
	s.say(input(1, fmt.Sprintf("delete %d\r\n", id)), bare(trunk.KindHalfClose, 2), bare(trunk.KindLeave, 0))
	s.ends()
	for range 3 {
		r.onLoops(func(*loop) {})
	}
	if n := r.journal.recorded.Load() - before; n > 0 || !r.testServer.engine.NumberPresent(testNumber) {
		t.Errorf("%d records were made", n)
	}
	r.Hold(false)
	r.untilAbsent()
	r.dial().do("reserve\r\n", reserved(id, "x"))
}

// That a gateway has left is told when all that its sessions had is given back.
func TestThatAGatewayHasLeftIsToldWhenItsSessionsHaveEnded(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 2, hooks{})
	left := make(chan bool, 2) // with whether all sessions had ended
	p := r.acceptTest(func(c *TrunkConn) {
		c.Version = trunk.ResumesSince
		c.Leaves = func() { left <- !r.testServer.engine.NumberPresent(testNumber) }
	})
	w := r.dial()
	const jobs = 20_000 // they are given back in turns
	var puts, got strings.Builder
	for range jobs {
		puts.WriteString("put 0 0 9 1\r\nx\r\n")
	}
	go w.send(puts.String())
	for range jobs {
		w.line()
	}
	p.send(p.frames(opens(1, 1), opens(2, 2), credit(1, trunk.MaxCredit-trunk.FirstCredit)))
	p.send(p.frames(input(1, strings.Repeat("reserve-batch 1000\r\n", jobs/1000)), input(1, "list-tube-used\r\n")))
	for !strings.HasSuffix(got.String(), "USING default\r\n") {
		it, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if it.Kind == trunk.KindReplies {
			got.Write(it.Data)
		}
	}
	p.send(p.frames(bare(trunk.KindLeave, 0)))
	if !<-left {
		t.Error("its sessions have not ended")
	}
	p.send(p.frames(bare(trunk.KindLeave, 0)))
	p.Close()
	_ = r.Shutdown(t.Context())
	if len(left) > 0 {
		t.Error("it was told twice")
	}
}

// A pong proves that the server led when the ping came.
func TestAPongWaitsForTheBarrier(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 2, hooks{})
	s := r.gateway(r.loops[0])
	ping := func(n int) trunk.Item { return trunk.Item{Kind: trunk.KindPing, Number: uint32(n)} }
	pong := func(n int) trunk.Item { return trunk.Item{Kind: trunk.KindPong, Number: uint32(n)} }
	r.journal.atOnce.Store(false)
	for n := range 2 * relay.MaxPings {
		s.say(ping(n))
	}
	s.drained()
	r.journal.commit(r.testServer, 2)
	s.expect(pong(0), pong(1))
	s.drained()
	r.journal.commit(r.testServer, relay.MaxPings)
	for n := 2; n < relay.MaxPings; n++ {
		s.expect(pong(n))
	}
	s.drained()
	s.say(ping(99), opens(1, 1), input(1, "list-tubes\r\n"), ping(100))
	s.drained()
	r.journal.commit(r.testServer, relay.MaxPings+3)
	var got []string
	for range 3 {
		it := s.next()
		got = append(got, fmt.Sprint(it.Kind, " ", it.Number))
	}
	slices.Sort(got)
	if want := []string{"pong 100", "pong 99", "replies 12"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	r.CommitFailed()
	s.say(ping(7))
	s.drained()
}

// What a client has asked for is told as another leader has to know it, to gateways that know how.
func TestWeightsAndModesAreTold(t *testing.T) {
	t.Parallel()
	const in = "watch a 7\r\nwatch a\r\nwatch b 1\r\nreserve-mode weighted info\r\nreserve-mode bogus\r\nreserve-mode fifo\r\n"
	answer := replies(1, len(in), 0, "WATCHING 2\r\nWATCHING 2\r\nWATCHING 3\r\nUSING weighted info\r\nBAD_FORMAT\r\nUSING fifo\r\n")
	chooses := func(n uint32) trunk.Item {
		return trunk.Item{Kind: trunk.KindState, Channel: 1, Flags: trunk.Chooses, Number: n}
	}
	watches := func(tube string, weight uint32) trunk.Item {
		it := state(1, trunk.Watches, tube)
		it.Number = weight
		return it
	}
	r := serveRecording(t, 1, hooks{})
	s := r.gateway(r.loops[0])
	s.say(opens(1, 1), input(1, in))
	s.expect(watches("a", 7), watches("a", 0), watches("b", 0), chooses(trunk.Choice(3, true, false)), chooses(trunk.Choice(1, false, false)), answer)
	s = r.script(r.loops[0])
	s.say(opens(1, 2), input(1, in))
	s.expect(watches("a", 0), watches("a", 0), watches("b", 0), answer)
}

// A gateway that is told to retire has all replies. When the hold was for nothing, its sessions go on.
func TestAGatewayIsToldToRetireBehindAllReplies(t *testing.T) {
	t.Parallel()
	for _, speaks := range [][2]uint16{{1, trunk.ResumesSince}, {trunk.ResumesSince, 1}, {trunk.ResumesSince, trunk.ResumesSince}} {
		version := min(speaks[0], speaks[1])
		h, executed := counting()
		h.trunks = speaks[0]
		r := serveRecording(t, 2, h)
		ended := make(chan error, 1)
		p := r.acceptTest(func(c *TrunkConn) {
			c.Version, c.Term, c.Fence = speaks[1], 3, 4
			c.Ended = func(err error) { ended <- err }
		})
		it, err := p.read()
		if w, werr := trunk.ParseWelcome(it.Data); err != nil || werr != nil ||
			w != (trunk.Welcome{Version: version, Extensions: true, MaxJobSize: maxJob, Term: 3, Fence: 4}) {
			t.Fatalf("got %s (%v)", show(it), err)
		}
		r.journal.atOnce.Store(false)
		const all = 1000
		p.send(p.frames(opens(1, 1), input(1, strings.Repeat("put 0 0 9 1\r\nx\r\n", all))))
		r.until("some are executed", func() bool { return executed.Load() > 0 })
		r.Hold(true)
		puts := int(executed.Load())
		p.send(p.frames(input(1, "list-tube-used\r\n")))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Flush(over); err == nil {
			t.Error("replies were sent that are not committed")
		}
		r.journal.commit(r.testServer, r.journal.recorded.Load())
		if err := r.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if version < trunk.ResumesSince {
			puts = all
			r.journal.atOnce.Store(true)
			r.Hold(false)
		}
		inserted, last := 0, ""
		for last != "retire" && last != "USING default\r\n" {
			it, err := p.read()
			if err != nil {
				t.Fatal(err)
			}
			switch it.Kind {
			case trunk.KindReplies:
				inserted += strings.Count(string(it.Data), "INSERTED")
				last = string(it.Data[max(0, len(it.Data)-15):])
			case trunk.KindRetire:
				last = "retire"
			}
		}
		if inserted != puts || (last == "retire") != (version == trunk.ResumesSince) {
			t.Errorf("%d are inserted, the last is %q", inserted, last)
		}
		if version < trunk.ResumesSince {
			continue
		}
		r.journal.atOnce.Store(true)
		before := executed.Load()
		p.send(p.frames(input(1, "list-tube-used\r\n")))
		r.Hold(false)
		<-ended
		r.untilAbsent()
		if n := executed.Load() - before; n > 0 || len(r.ended()) > 0 {
			t.Errorf("%d commands were executed on a trunk that was to retire, and %v have ended", n, r.ended())
		}
		if it, err := p.read(); err == nil {
			t.Errorf("got %s behind the last", show(it))
		}
	}
}
