package shard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
)

// effect is what a record tells of the command that has made it; nothing if it does not say.
func (x *entry) effect() (e journal.Effect, ok bool) {
	o := x.record.Origin
	switch x.kind {
	case 'p':
		e.Kind = journal.EffectPut
	case 'u':
		e.Kind = journal.EffectUpdate
	case 'd':
		e.Kind = journal.EffectDelete
	case 's':
		o, e.Kind = x.setting.Origin, journal.EffectSetting
	case 'h':
		o = journal.Origin{Session: x.hold.Session, Offset: x.hold.Offset}
		if e.Kind = journal.EffectHold; x.hold.Touch {
			e.Kind = journal.EffectTouch
		}
		e.ID = x.hold.ID
	}
	if x.kind == 'p' || x.kind == 'u' {
		e.State = x.record.State
	}
	if x.kind != 'h' {
		e.ID = x.record.ID
	}
	e.Session, e.Offset = o.Session, o.Offset
	return e, o.Offset != 0
}

// effectsOn are the effects on a tape of the commands of a session that end behind an offset.
func (t *tape) effectsOn(session, offset uint64) (list []journal.Effect) {
	for i := range t.entries {
		if e, ok := t.entries[i].effect(); ok && e.Session == session && e.Offset > offset {
			list = append(list, e)
		}
	}
	return list
}

// again has a client send something again, of which the log tells that it has done that. It is false if the client cannot
// go on.
func (c *simConn) again(in string, effects []journal.Effect, cut int) (answers []Answer, ok bool) {
	c.effects, c.answers = effects, nil
	for _, p := range []string{in[:min(cut, len(in))], in[min(cut, len(in)):]} {
		c.in = append(c.in, p...)
		c.work()
	}
	return c.answers, !c.unknown && len(c.effects) == 0
}

// lines are a client's lines, each with its end.
func lines(say string) string {
	if say == "" {
		return ""
	}
	return strings.ReplaceAll(say, "\n", "\r\n") + "\r\n"
}

// Whatever a command has done, its client is told it by another server, which does not do it again; or goes on
// no more, where nobody knows what it would have been told.
func TestLostRepliesAreGivenAgain(t *testing.T) {
	big := strings.Repeat("b", pinnedSize)
	for _, x := range []struct {
		name, before, say string
		want              Answer
	}{
		{"put", "", "put 0 0 9 1\nx", SameAnswer},
		{"put with a delay", "", "put 0 5 9 1\nx", SameAnswer},
		{"put of a large body", "", "put 0 0 9 32768\n" + big, SameAnswer},
		{"put with keys", "", "put 0 0 9 1 idp:k con:l\nx", SameAnswer},
		{"put that is held", "put 0 0 9 1 grp:g\nx", "put 0 0 9 1 aft:g\nx", SameAnswer},
		{"duplicate that raises a ready job", "put 9 0 9 1 idp:k\nx", "put 1 0 9 1 idp:k\ny", SameAnswer},
		{"duplicate that raises a delayed job", "put 9 5 9 1 idp:k\nx", "put 1 0 9 1 idp:k\ny", SameAnswer},
		{"duplicate that raises a held job", "put 9 0 9 1 grp:g\nx\nput 9 0 9 1 aft:g idp:k\nx", "put 1 0 9 1 idp:k\ny", SameAnswer},
		{"duplicate that raises a reserved job", "put 9 0 9 1 idp:k\nx\nreserve", "put 1 0 9 1 idp:k\ny", SameAnswer},
		{"duplicate that raises a buried job", "put 9 0 9 1 idp:k\nx\nreserve\nbury 1 7", "put 1 0 9 1 idp:k\ny", SameAnswer},
		{"reserve", "put 0 0 9 1\nx", "reserve", SameAnswer},
		{"reserve-with-timeout", "put 0 0 9 1\nx", "reserve-with-timeout 0", SameAnswer},
		{"reserve of a large body", "put 0 0 9 32768\n" + big, "reserve", SameAnswer},
		{"reserve of a client that is told more", "put 0 0 9 1\nx\nreserve-mode fifo info", "reserve", OtherAnswer},
		{"reserve-job", "put 0 50 9 1\nx", "reserve-job 1", SameAnswer},
		{"reserve-batch", "put 0 0 9 1\nx\nput 0 0 9 1\ny\nput 0 0 9 32768\n" + big, "reserve-batch 5", SameAnswer},
		{"reserve-batch of a client that is told more", "put 0 0 9 1\nx\nreserve-mode fifo info", "reserve-batch 5", OtherAnswer},
		{"touch", "put 0 0 9 1\nx\nreserve", "touch 1", SameAnswer},
		{"touch-all", "put 0 0 9 1\nx\nput 0 0 9 1\ny\nreserve-batch 5", "touch-all", NotDone},
		{"release", "put 0 0 9 1\nx\nreserve", "release 1 7 0", SameAnswer},
		{"release with a delay", "put 0 0 9 1\nx\nreserve", "release 1 7 3", SameAnswer},
		{"release that buries", "set-dlq default 1 dead\nput 0 0 9 1\nx\nreserve", "release 1 7 3", SameAnswer},
		{"release that buries in its own tube", "set-dlq default 1 default\nput 0 0 9 1\nx\nreserve", "release 1 7 3", SameAnswer},
		{"release with retries", "set-tube default retry-min=5\nput 0 0 9 1\nx\nreserve", "release 1 7 0", SameAnswer},
		{"release of an expired job", "put 0 0 9 1 exp:1\nx\nreserve\nlist-tube-used\nWAIT", "release 1 7 0", SameAnswer},
		{"release of an expired job with a tombstone", "put 0 0 9 1 exp:1 idp:k:9\nx\nreserve\nlist-tube-used\nWAIT", "release 1 7 0", SameAnswer},
		{"delete", "put 0 0 9 1\nx\nreserve", "delete 1", SameAnswer},
		{"delete with a tombstone", "put 0 0 9 1 idp:k:9\nx", "delete 1", SameAnswer},
		{"bury", "put 0 0 9 1\nx\nreserve", "bury 1 7", SameAnswer},
		{"kick-job", "put 0 50 9 1\nx", "kick-job 1", SameAnswer},
		{"kick of one", "put 0 50 9 1\nx\nput 0 50 9 1\ny", "kick 1", SameAnswer},
		{"kick of many", "put 0 50 9 1\nx\nput 0 50 9 1\ny", "kick 2", NoAnswer},
		{"kick-tube of one", "put 0 50 9 1\nx\nput 0 50 9 1\ny", "kick-tube default 1", SameAnswer},
		{"kick-tube of many", "put 0 50 9 1\nx\nput 0 50 9 1\ny", "kick-tube default 2", NoAnswer},
		{"flush", "put 0 0 9 1\nx", "flush-tube default", NoAnswer},
		{"delete-tube-jobs of one", "put 0 0 9 1\nx\nput 0 50 9 1\ny", "delete-tube-jobs default ready 1", SameAnswer},
		{"delete-tube-jobs of many", "put 0 0 9 1\nx\nput 0 50 9 1\ny", "delete-tube-jobs default ready 2", NoAnswer},
		{"move-job", "put 0 0 9 1\nx\nreserve", "move-job 1 b", SameAnswer},
		{"move-job to its own tube", "put 0 0 9 1\nx\nreserve", "move-job 1 default", SameAnswer},
		{"move-job of an expired job to its own tube", "put 0 0 9 1 exp:1\nx\nreserve\nlist-tube-used\nWAIT", "move-job 1 default", SameAnswer},
		{"move-tube of one", "put 0 0 9 1\nx\nput 0 0 9 1\ny", "move-tube default ready b 1", SameAnswer},
		{"move-tube of many", "put 0 0 9 1\nx\nput 0 0 9 1\ny", "move-tube default ready b 2", NoAnswer},
		{"set-dlq", "", "set-dlq a 3 b", SameAnswer},
		{"set-tube", "", "set-tube a rate=5", SameAnswer},
		{"release and what comes behind it", "put 0 0 9 1\nx\nput 0 0 9 1\ny\nreserve", "release 1 7 0\nreserve", SameAnswer},
		{"what depends on its session only", "", "use a\nput 0 0 9 1\nx\nwatch a\nwatch b 2\nignore default\nlist-tubes-watched\nlist-tube-used\nnonsense\nput 1\nput 0 0 9 1\nxyz\nreserve", SameAnswer},
	} {
		t.Run(x.name, func(t *testing.T) {
			step, last := 1, min(len(lines(x.say)), 60)-1
			if !proof {
				step = last - 2
			}
			for cut := 0; cut <= last; cut += step {
				s, record := numberedSim(t, 1)
				c, other := s.open(), s.open()
				other.say("watch a", "watch b", "use other")
				before, waits, _ := strings.Cut(x.before, "\nWAIT")
				c.say(strings.Split(before, "\n")...)
				if s.Wait(time.Second / 2); waits != "" || strings.HasSuffix(x.before, "WAIT") {
					s.Wait(2 * time.Second)
				}
				from := c.offset
				interests := c.session.Interests()
				s.deeds = nil
				_ = c.Send([]byte(lines(x.say)))
				told, _ := c.Pending()
				effects := record.effectsOn(c.session.number(), from)
				if len(effects) == 0 || told == nil {
					t.Fatalf("it has no effect; told %q", told)
				}
				was, deeds := s.engine.dump()+s.engine.held(9), s.deeds
				s.deeds = nil
				// What the client knows of its session, it knew before.
				detached, err := Absent(c.session.number(), nil, interests, 0)
				if err != nil {
					t.Fatal(err)
				}
				s.succeed(t, record)
				c.session, other.ended = Session{}, true
				if err := c.loop.GoOn(&c.session, detached, 0, s.now); err != nil {
					t.Fatal(err)
				}
				c.offset = from
				entries := len(record.entries)
				answers, ok := c.again(lines(x.say), effects, cut)
				again, _ := c.Pending()
				if ok != (x.want != NoAnswer) || len(answers) == 0 || !slices.Equal(answers, slices.Repeat([]Answer{x.want}, len(answers))) {
					t.Fatalf("cut at %d: answered %v, want %d", cut, answers, x.want)
				}
				switch x.want {
				case SameAnswer, NotDone:
					if string(again) != string(told) {
						t.Errorf("cut at %d: told %.100q, and before %.100q", cut, again, told)
					}
				case OtherAnswer:
					if string(again) == "" {
						t.Errorf("cut at %d: told nothing", cut)
					}
				case NoAnswer:
					if len(again) != 0 {
						t.Errorf("cut at %d: told %q, and it is not known", cut, again)
					}
				}
				if n := len(record.entries) - entries; x.want != NotDone && n != 0 {
					t.Errorf("cut at %d: recorded again: %s", cut, record.since(entries))
				}
				if is := s.engine.dump() + s.engine.held(9); is != was {
					t.Errorf("cut at %d: there was\n%s\nand is\n%s", cut, was, is)
				}
				if x.want == SameAnswer && !slices.EqualFunc(s.deeds, deeds, sameDeed) {
					t.Errorf("cut at %d: the audit is told of %v, and was of %v", cut, s.deeds, deeds)
				}
				s.noErrors(t)
			}
		})
	}
}

// Other servers are not trusted to tell of what can be: such a client goes on no more.
func TestNoCommandIsAnsweredByAnEffectThatItCannotHave(t *testing.T) {
	s, _ := numberedSim(t, 1)
	c := s.open()
	c.say("put 0 0 9 1", "x", "reserve")
	var effects []journal.Effect
	for kind := journal.EffectKind(0); kind < 20; kind++ {
		for state := journal.State(0); state < 20; state++ {
			for id := range uint64(3) {
				effects = append(effects, journal.Effect{Session: c.session.number(), Offset: 9, ID: id, Kind: kind, State: state})
			}
		}
	}
	answered := map[codec.Op]int{}
	for op := range codec.OpHTTP + 1 {
		if op == codec.OpPutEnd {
			continue // there is no put
		}
		for _, x := range effects {
			cmd := codec.Command{Op: op, CountAs: op, ID: 1, Bound: 1, Terminated: true, Tube: []byte("a"), To: []byte("b")}
			a, outcome := c.session.Answer(s.now, &cmd, []journal.Effect{x}, &c.out)
			reply, _ := c.Pending()
			if outcome != Done || (len(reply) > 0) != (a == SameAnswer || a == OtherAnswer) {
				t.Errorf("%s is answered %d by %+v: %q", op, a, x, reply)
			}
			if a != NoAnswer {
				answered[op]++
			}
			if a != NoAnswer && !x.Valid() {
				t.Errorf("%s is answered %d by %+v, which no record tells", op, a, x)
			}
		}
		cmd := codec.Command{Op: op, CountAs: op}
		if a, _ := c.session.Answer(s.now, &cmd, nil, &c.out); a != NoAnswer {
			t.Errorf("%s is answered %d without an effect", op, a)
		}
	}
	const puts, updates = 4, 5 // states of which these tell
	want := map[codec.Op]int{
		codec.OpPut: 2*puts + 2, codec.OpReserve: 4, codec.OpReserveWithTimeout: 4, codec.OpReserveJob: 2, codec.OpReserveBatch: 4,
		codec.OpTouch: 1, codec.OpTouchAll: 2, codec.OpDelete: 2, codec.OpRelease: puts + updates + 2, codec.OpBury: updates, codec.OpKickJob: updates,
		codec.OpMoveJob: puts + updates + 2, codec.OpSetDLQ: 1, codec.OpSetTube: 1, codec.OpKick: 2 * updates, codec.OpKickTube: 2 * updates,
		codec.OpMoveTube: 2 * puts, codec.OpDeleteTubeJobs: 4,
	}
	for op := range codec.OpHTTP + 1 {
		if answered[op] != want[op] {
			t.Errorf("%s is answered by %d effects, want %d", op, answered[op], want[op])
		}
	}
}

// lost has a client's commands be done without a reply, and returns what the log tells of them.
func (c *simConn) lost(record *tape, say ...string) []journal.Effect {
	from := c.offset
	c.say(say...)
	c.offset = from
	return record.effectsOn(c.session.number(), from)
}

// What a client got and has not any more is not delivered again: its reserve begins anew, if nothing behind it was done.
func TestAReserveBeginsAnewIfItsJobsAreGone(t *testing.T) {
	for _, x := range []struct {
		say     string
		gone    string // that others delete then
		want    Answer
		deliver string
	}{
		{"reserve", "reserved 1", NotDone, "RESERVED 2 1\r\nb\r\n"},
		{"reserve", "ready 2", SameAnswer, "RESERVED 1 1\r\na\r\n"},
		{"reserve-job 1", "reserved 1", NotDone, "NOT_FOUND\r\n"},
		{"reserve-batch 2", "reserved 1", OtherAnswer, "RESERVED_BATCH 1\r\nRESERVED 2 1\r\nb\r\n"},
		{"reserve-batch 2", "reserved 2", NotDone, "RESERVED_BATCH 1\r\nRESERVED 3 1\r\nc\r\n"},
		{"reserve-with-timeout 0", "", NotDone, "TIMED_OUT\r\n"}, // another client has them
		{"reserve-batch 2", "", NotDone, "RESERVED_BATCH 0\r\n"},
		{"reserve-batch 2", "ready 2", SameAnswer, "RESERVED_BATCH 2\r\nRESERVED 1 1\r\na\r\nRESERVED 2 1\r\nb\r\n"},
	} {
		s, record := numberedSim(t, 1)
		c, other := s.open(), s.open()
		other.say("put 0 0 9 1", "a", "put 0 0 9 1", "b", "put 0 0 9 1", "c")
		effects := c.lost(record, x.say)
		if x.gone != "" {
			other.say("delete-tube-jobs default " + x.gone)
		} else {
			s.Wait(10 * time.Second)
			other.say("reserve-batch 3")
		}
		answers, ok := c.again(lines(x.say), effects, 0)
		if got, _ := c.Pending(); !ok || string(got) != x.deliver || answers[0] != x.want {
			t.Errorf("%s, and %s are gone: answered %v with %q, want %d with %q", x.say, x.gone, answers, got, x.want, x.deliver)
		}
	}
}

// A client that sends no more has left its leader before the replies came, and its jobs linger. The next leader gives
// them back to it with the replies, also where that has begun already.
func TestAReserveWhoseJobsLingerIsAnsweredWithThem(t *testing.T) {
	for _, x := range []struct{ say, deliver string }{
		{"reserve-with-timeout 0", "RESERVED 1 1\r\na\r\n"},
		{"reserve-job 1", "RESERVED 1 1\r\na\r\n"},
		{"reserve-batch 2", "RESERVED_BATCH 2\r\nRESERVED 1 1\r\na\r\nRESERVED 2 1\r\nb\r\n"},
	} {
		s, record := numberedSim(t, 1)
		c, other := s.open(), s.open()
		other.say("set-tube default linger=10", "put 0 0 9 1", "a", "put 0 0 9 1", "b")
		id := c.session.number()
		effects := c.lost(record, x.say)
		for range 2 {
			for i := range s.conns {
				_ = s.conns[i].HalfClose()
				s.conns[i].ended = true
			}
			s.engine.CloseAbsent(1)
			s.succeed(t, record)
			back, err := s.comesBack(id, plain, 0)
			if err != nil {
				t.Fatal(err)
			}
			from := back.offset
			for i := range effects {
				effects[i].Offset = from + uint64(len(lines(x.say)))
			}
			answers, ok := back.again(lines(x.say), effects, 0)
			if got, _ := back.Pending(); !ok || string(got) != x.deliver || answers[0] != SameAnswer {
				t.Errorf("%s is answered %v with %q, want %q", x.say, answers, got, x.deliver)
			}
			effects = append(effects, record.effectsOn(id, from)...)
			s.standbyAgrees(t, record)
		}
	}
}

// The body of the job may have left memory: the reply comes when it was loaded. If the job has gone meanwhile, nobody
// knows what the client was told.
func TestAReserveIsAnsweredAgainWhenTheBodyOfItsJobIsLoaded(t *testing.T) {
	for _, say := range []string{"reserve", "reserve-with-timeout 0", "reserve-job 1", "reserve-batch 1"} {
		for _, gone := range []bool{false, true} {
			s := newLimitedSim(100_000, 1, Limits{Bodies: someBodies})
			s.goCold(true)
			c, other := s.open(), s.open()
			told := c.say("put 0 0 9 1", "a", say)
			if s.Settle(); s.coldJobs() != 1 {
				t.Fatalf("%d jobs are cold", s.coldJobs())
			}
			s.cold.late = 100
			in := lines(say)
			effect := journal.Effect{
				Session: c.session.number(), Offset: c.offset + uint64(len(in)), ID: 1, Kind: journal.EffectHold,
			}
			answers, ok := c.again(in, []journal.Effect{effect}, 0)
			if !ok || answers[0] != SameAnswer || !c.waiting {
				t.Fatalf("%s is answered %v, and waits: %v", say, answers, c.waiting)
			}
			if gone {
				other.say("delete-tube-jobs default reserved 1")
			}
			s.cold.late = 0
			s.Settle()
			got, _ := c.Pending()
			if want := strings.TrimPrefix(told, "INSERTED 1\r\n"); !gone && string(got) != want {
				t.Errorf("%s is answered %q, want %q", say, got, want)
			}
			if gone && (len(got) > 0 || !c.ended) {
				t.Errorf("%s is answered %q, and its job has gone; ended: %v", say, got, c.ended)
			}
		}
	}
}

// The same place has told of several jobs, if some were lost before the reply.
func TestTheLastJobsThatACommandGotAreDelivered(t *testing.T) {
	s, record := numberedSim(t, 1)
	c := s.open()
	c.say("put 0 0 9 1", "a", "put 0 0 9 1", "b", "put 0 0 9 1", "c")
	effects := c.lost(record, "reserve-batch 3")
	a, b := effects[0], effects[1]
	for _, x := range []struct {
		say  string
		by   []journal.Effect
		want string
	}{
		{"reserve", []journal.Effect{a, b}, "RESERVED 2 1\r\nb\r\n"},
		{"reserve", []journal.Effect{b, a}, "RESERVED 1 1\r\na\r\n"},
		{"reserve-batch 9", []journal.Effect{a, b, a, b}, "RESERVED_BATCH 2\r\nRESERVED 1 1\r\na\r\nRESERVED 2 1\r\nb\r\n"},
		{"reserve-batch 9", []journal.Effect{a, b, a}, "RESERVED_BATCH 2\r\nRESERVED 2 1\r\nb\r\nRESERVED 1 1\r\na\r\n"},
	} {
		in := lines(x.say)
		for i := range x.by {
			x.by[i].Offset = c.offset + uint64(len(in))
		}
		answers, ok := c.again(in, x.by, 0)
		if got, _ := c.Pending(); !ok || string(got) != x.want || answers[0] != SameAnswer {
			t.Errorf("%s: answered %v with %q, want %q", x.say, answers, got, x.want)
		}
	}
}

// Its delete names the put: it is done anew.
func TestAPutThatWasTakenBackIsDoneAnew(t *testing.T) {
	s, _ := numberedSim(t, 1)
	c := s.open()
	put := journal.Effect{Session: c.session.number(), ID: 7, Kind: journal.EffectPut, State: journal.Ready}
	back := journal.Effect{Session: c.session.number(), ID: 7, Kind: journal.EffectDelete}
	again := put
	again.ID = 8
	for _, x := range []struct {
		by   []journal.Effect
		want string
	}{
		{[]journal.Effect{put, back}, "INSERTED 1\r\n"},
		{[]journal.Effect{back}, "INSERTED 2\r\n"},
		{[]journal.Effect{put, back, again}, "INSERTED 8\r\n"},
		{[]journal.Effect{again, back}, ""},
	} {
		in := lines("put 0 0 9 1\nx")
		for i := range x.by {
			x.by[i].Offset = c.offset + uint64(len(in))
		}
		answers, ok := c.again(in, x.by, 0)
		if got, _ := c.Pending(); ok != (x.want != "") || string(got) != x.want {
			t.Errorf("by %+v: answered %v with %q, want %q", x.by, answers, got, x.want)
		}
	}
}

// A body that was sent again takes no memory when its put was done.
func TestABodyThatIsSentAgainIsDropped(t *testing.T) {
	s, record := numberedSim(t, 1)
	c := s.open()
	in := lines("put 0 0 9 40000 exp:5\n" + strings.Repeat("x", 40_000))
	effects := c.lost(record, strings.TrimSuffix(in, "\r\n"))
	memory := s.engine.memory.Used()
	_, _ = c.Pending()
	if _, ok := c.again(in, effects, 5000); !ok {
		t.Fatal("it is not answered")
	}
	if got, _ := c.Pending(); string(got) != "INSERTED 1\r\n" || c.session.incomingPut() != nil {
		t.Errorf("got %q, and there is a put: %v", got, c.session.incomingPut() != nil)
	}
	if is := s.engine.memory.Used(); is != memory {
		t.Errorf("memory is %d, and was %d", is, memory)
	}
	s.noErrors(t)
}

// Its client may have a part of the reply, behind which only the rest of the same may come.
func TestABatchThatIsDeliveredAgainEndsIfAJobGoesMeanwhile(t *testing.T) {
	for _, info := range []bool{false, true} {
		s, record := numberedSim(t, 1)
		l := slow(t, s)
		c, other := s.open(), s.open()
		for range 12 {
			other.say("put 0 0 9 30000", strings.Repeat("x", 30_000))
		}
		if info {
			c.say("reserve-mode fifo info")
		}
		effects := c.lost(record, "reserve-batch 12")
		l.rounds()
		_, _ = c.Pending()
		l.loop.Refill()
		cmd := codec.Command{Op: codec.OpReserveBatch, CountAs: codec.OpReserveBatch, Bound: 12}
		want := SameAnswer
		if info {
			want = OtherAnswer
		}
		if a, outcome := c.session.Answer(s.now, &cmd, effects, &c.out); a != want || outcome != Wait || len(c.out.Buf) != 0 {
			t.Fatalf("answered %d, and goes on with %d", a, outcome)
		}
		outcomes := map[*simConn]Outcome{c: Wait, other: other.start(t, "delete-tube-jobs default reserved 11")}
		for range 100 {
			l.loop.Refill()
			for x := l.loop.Next(s.now); x != nil; x = l.loop.Next(s.now) {
				outcomes[connOf(x)] = x.Resume(s.now, &connOf(x).out)
			}
		}
		flatten(&c.out)
		if got, _ := c.Pending(); info && (outcomes[c] != Done || !strings.HasPrefix(string(got), "RESERVED_BATCH ") || strings.HasPrefix(string(got), "RESERVED_BATCH 12\r")) {
			t.Errorf("ends with %d, and %.40q", outcomes[c], got)
		} else if !info && (outcomes[c] != Quit || len(got) != 0) {
			t.Errorf("ends with %d, and %.40q, want nothing", outcomes[c], got)
		}
	}
}

// What depends on more than a session's own bytes and tubes is not executed when something behind it was done.
func TestWhatIsHarmless(t *testing.T) {
	s, _ := numberedSim(t, 1)
	c := s.open()
	var list []string
	for op := range codec.OpHTTP + 1 {
		for _, whole := range []bool{false, true} {
			if c.session.Harmless(&codec.Command{Op: op, Terminated: whole}) && whole {
				list = append(list, op.String())
			} else if !whole && (op == codec.OpPut || op == codec.OpPutEnd) && !c.session.Harmless(&codec.Command{Op: op}) {
				t.Errorf("%s without its end is not harmless", op)
			}
		}
	}
	want := "use watch ignore list-tube-used list-tubes-watched quit reserve-mode (put begin) (put chunk) (put too big) (put too big end) (bad format) (unknown) (auth) (HTTP)"
	if got := strings.Join(list, " "); got != want {
		t.Errorf("harmless are %s, want %s", got, want)
	}
}

// sameDeed reports whether two deeds are the same, of one client's.
func sameDeed(a, b Deed) bool {
	x, y := doer(a), doer(b)
	a.from, b.from = nil, nil
	return a == b && x == y
}
