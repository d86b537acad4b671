package reactor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/reactor/internal/trunk"
)

// resumesAs has the nth session of the gateway's loop go on, as change says.
func resumesAs(channel uint32, n uint64, change func(*trunk.Resume)) trunk.Item {
	r := trunk.Resume{
		Open: trunk.OpenOf(session(n), testClient), Mode: codec.FIFO, Used: "default", Watched: []string{"default"},
	}
	if change != nil {
		change(&r)
	}
	return trunk.Item{Kind: trunk.KindResume, Channel: channel, Data: r.Append(nil)}
}

// effectsAre the last effects of a channel.
func effectsAre(channel uint32, list ...journal.Effect) trunk.Item {
	it := trunk.Item{Kind: trunk.KindEffects, Channel: channel, Flags: trunk.Last}
	for i := range list {
		it.Data = trunk.AppendEffect(it.Data, &list[i])
	}
	return it
}

var attached = trunk.Item{Kind: trunk.KindAttached}

func resetOf(channel uint32, executed int) trunk.Item {
	it := endOf(channel, executed)
	it.Flags = trunk.Reset
	return it
}

// A session goes on where it was, on another loop: with its jobs, its tubes, and the place in its input.
func TestASessionGoesOnOverAnotherTrunk(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 2, hooks{})
	s := r.gateway(r.loops[0])
	p := r.dial()
	p.do("use b\r\nput 0 0 900 1\r\nx\r\nput 0 0 900 1\r\ny\r\n", "USING b\r\nINSERTED 1\r\nINSERTED 2\r\n")
	const in = "watch b\r\nignore default\r\nreserve\r\nuse c\r\n"
	s.say(opens(1, 1), input(1, in))
	s.expectReplies(1, "WATCHING 2\r\nWATCHING 1\r\n"+reserved(1, "x")+"USING c\r\n")
	s.ends()
	r.untilAbsent()
	p.do("watch b\r\nreserve\r\nreserve-with-timeout 0\r\n", "WATCHING 2\r\n"+reserved(2, "y")+"TIMED_OUT\r\n")

	s = r.gateway(r.loops[1])
	s.say(resumesAs(9, 1, func(x *trunk.Resume) {
		x.Answered, x.Used, x.Watched = 1<<40, "c", []string{"b"}
	}), input(9, "list-tube-used\r\nlist-tubes-watched\r\ndelete 1\r\nreserve\r\n"), attached)
	s.expectReplies(9, "USING c\r\nOK 8\r\n---\n- b\n\r\nDELETED\r\n")
	p.do("release 2 0 0\r\n", "RELEASED\r\n")
	last := s.expectReplies(9, reserved(2, "y"))
	if want := 1<<40 + len("list-tube-used\r\nlist-tubes-watched\r\ndelete 1\r\nreserve\r\n"); last.Number != uint32(want) {
		t.Errorf("%d is answered, want %d", last.Number, uint32(want))
	}
	if got := r.journal.effects(session(1), 1<<40); len(got) != 2 || got[1].Offset != 1<<40+uint64(len("list-tube-used\r\nlist-tubes-watched\r\ndelete 1\r\nreserve\r\n")) {
		t.Errorf("got %+v", got)
	}
	if got := r.ended(); len(got) > 0 {
		t.Errorf("%v have ended", got)
	}
	p.send(fmt.Sprintf("stats-conn %d\r\n", session(1)))
	if got := field(t, p.data(), "addr"); got != testClient.String() {
		t.Errorf("its address is %s", got)
	}
}

// Sessions that are not named when all are have ended: their clients have gone. Those of other loops go on.
func TestSessionsThatAreNotNamedEnd(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 2, hooks{})
	s := r.gateway(r.loops[0])
	other := &trunkScript{testTrunk: r.newTrunk(r.loops[1], testNumber+1), t: t}
	other.end.Speak(trunk.ResumesSince)
	p := r.dial()
	for n := range uint64(3) {
		p.put("x")
		s.say(opens(uint32(n+1), n+1), input(uint32(n+1), "reserve\r\n"))
		s.expectReplies(uint32(n+1), reserved(n+1, "x"))
	}
	p.put("x")
	o := trunk.OpenOf(session(1)+1<<(64-journal.NumberBits), testClient)
	other.say(trunk.Item{Kind: trunk.KindOpen, Channel: 1, Data: o.Append(nil)}, input(1, "reserve\r\n"))
	other.expectReplies(1, reserved(4, "x"))
	s.ends()
	other.ends()
	r.untilAbsent()
	r.until("the other's are absent", func() bool { return !r.testServer.engine.NumberPresent(testNumber + 1) })

	s = r.gateway(r.loops[1])
	s.say(resumesAs(1, 3, nil), resumesAs(2, 1, nil), bare(trunk.KindPing, 0))
	s.expect(bare(trunk.KindPong, 0))
	r.onLoops(func(*loop) {})
	p.do("reserve-with-timeout 0\r\n", "TIMED_OUT\r\n")
	r.Hold(true)
	s.say(attached)
	s.drained()
	if got := r.ended(); len(got) > 0 {
		t.Errorf("%v have ended while nothing was executed", got)
	}
	r.Hold(false)
	p.do("reserve\r\nreserve-with-timeout 0\r\n", reserved(2, "x")+"TIMED_OUT\r\n")
	if got := r.ended(); !slices.Equal(got, []uint64{session(2)}) {
		t.Errorf("%v have ended", got)
	}
	s.say(input(1, "delete 3\r\n"))
	s.expectReplies(1, "DELETED\r\n")
	s.say(input(2, "delete 1\r\n"))
	s.expectReplies(2, "DELETED\r\n")
	s.say(opens(3, 9), input(3, "use a\r\n"))
	s.expectReplies(3, "USING a\r\n")
}

// A trunk that ends before its last resume ends no session.
func TestATrunkThatEndsWhileItIsAttachedEndsNobody(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 1, hooks{})
	s := r.gateway(r.loops[0])
	p := r.dial()
	const n = 300
	for i := range uint32(n) {
		p.put("x")
		s.say(opens(i+1, uint64(i+1)), input(i+1, "reserve\r\n"))
		s.expectReplies(i+1, reserved(uint64(i+1), "x"))
	}
	s.ends()
	r.untilAbsent()
	items := []trunk.Item{}
	for i := range uint32(n) {
		items = append(items, resumesAs(i+1, uint64(i+1), nil))
	}
	s = r.gateway(r.loops[0])
	r.Hold(true)
	s.say(append(slices.Clone(items), attached)...)
	s.ends()
	r.Hold(false)
	r.untilAbsent()
	s = r.gateway(r.loops[0])
	s.say(items...)
	s.say(bare(trunk.KindClose, 5), input(7, "delete 7\r\n"))
	s.ends()
	r.untilAbsent()
	for _, id := range r.ended() {
		if id != session(5) {
			t.Fatalf("session %d has ended", id-session(0))
		}
	}
	s = r.gateway(r.loops[0])
	s.say(append(slices.DeleteFunc(items, func(it trunk.Item) bool { return it.Channel == 5 }), attached)...)
	for i := range uint32(n) {
		if i+1 != 5 && i+1 != 7 {
			s.say(input(i+1, fmt.Sprintf("delete %d\r\n", i+1)))
			s.expectReplies(i+1, "DELETED\r\n")
		}
	}
	p.do("reserve\r\n", reserved(5, "x"))
}

// What comes for a session before it goes on waits for that.
func TestWhatComesForASessionWaitsUntilItGoesOn(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 1, hooks{})
	r.Hold(true)
	s := r.gateway(r.loops[0])
	asks := func(x *trunk.Resume) { x.Unanswered = true }
	s.say(resumesAs(1, 1, nil), input(1, "use a\r\n"), input(1, "use b\r\n"))
	s.say(resumesAs(2, 2, nil), input(2, "reserve\r\n"), bare(trunk.KindHalfClose, 2))
	s.say(resumesAs(3, 3, nil), bare(trunk.KindClose, 3))
	s.say(resumesAs(4, 4, nil), bare(trunk.KindHalfClose, 4))
	s.say(resumesAs(5, 5, asks), effectsAre(5), input(5, "use c\r\n"))
	s.say(resumesAs(6, 6, nil), input(6, "use d\r\nreserve\r\n"), trunk.Item{Kind: trunk.KindHalfClose, Channel: 6, Flags: trunk.Leaves})
	s.say(resumesAs(7, 7, asks), attached)
	s.settled()
	if r.testServer.engine.NumberPresent(testNumber) {
		t.Error("sessions go on while nothing is to be executed")
	}
	r.Hold(false)
	want := map[uint32]string{1: "USING a\r\nUSING b\r\n", 2: "TIMED_OUT\r\nend", 3: "end", 4: "end", 5: "USING c\r\n", 6: "USING d\r\nend"}
	got := make(map[uint32]string)
	for i := 0; i < 9; {
		it := s.next()
		switch it.Kind {
		case trunk.KindReplies:
			got[it.Channel] += string(it.Data)
			i += strings.Count(string(it.Data), "\r\n")
		case trunk.KindEnd:
			got[it.Channel] += "end"
			i++
		}
	}
	for n, w := range want {
		if got[n] != w {
			t.Errorf("channel %d has got %q, want %q", n, got[n], w)
		}
	}
	s.say(effectsAre(7), input(7, "use e\r\n"))
	s.expectReplies(7, "USING e\r\n")
}

// Tubes may come in many items.
func TestASessionGoesOnWithManyTubes(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 1, hooks{})
	s := r.gateway(r.loops[0])
	x := trunk.Resume{Open: trunk.OpenOf(session(1), testClient), Mode: codec.Weighted, Info: true, Used: "default"}
	for i := range 1000 {
		x.Watched = append(x.Watched, fmt.Sprintf("%d%s", i, strings.Repeat("t", 100)))
		x.Weights = append(x.Weights, uint16(i+1))
	}
	items := 0
	for ; len(x.Watched) > 0; items++ {
		it := trunk.Item{Kind: trunk.KindResume, Channel: 1, Data: x.Append(nil)}
		if len(x.Watched) > 0 {
			it.Flags = trunk.More
		}
		s.say(it)
	}
	if items < 2 {
		t.Fatalf("they came in %d items", items)
	}
	s.say(attached, input(1, "ignore x\r\nreserve-mode weighted info\r\n"))
	s.expectReplies(1, "WATCHING 1000\r\nUSING weighted info\r\n")
	if n := s.end.ResumeBytes(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}

// A gateway that resumes what it may not loses its trunk.
func TestAGatewayThatResumesWhatItMayNotLosesItsTrunk(t *testing.T) {
	t.Parallel()
	asks := func(x *trunk.Resume) { x.Unanswered = true }
	more := func(n uint64) trunk.Item {
		it := resumesAs(1, n, nil)
		it.Flags = trunk.More
		return it
	}
	effect := func(offset uint64) journal.Effect {
		return journal.Effect{Session: session(1), Offset: offset, ID: 1, Kind: journal.EffectDelete}
	}
	for what, items := range map[string][]trunk.Item{
		"another loop's":       {resumesAs(1, 1<<(64-journal.NumberBits), nil)},
		"an open channel":      {opens(1, 9), resumesAs(1, 1, nil)},
		"behind attached":      {attached, resumesAs(1, 1, nil)},
		"behind leave":         {bare(trunk.KindLeave, 0), resumesAs(1, 1, nil)},
		"attached twice":       {attached, attached},
		"attached too early":   {more(1), attached},
		"two in one":           {more(1), resumesAs(1, 2, nil)},
		"input in between":     {more(1), input(1, "x")},
		"no grant":             {{Kind: trunk.KindResume, Channel: 1, Number: 3, Data: resumesAs(1, 1, nil).Data}},
		"partly answered":      {resumesAs(1, 1, func(x *trunk.Resume) { x.Partial = 1 })},
		"an offset far away":   {resumesAs(1, 1, func(x *trunk.Resume) { x.Answered = journal.MaxOffset/2 + 1 })},
		"a tube twice":         {resumesAs(1, 1, func(x *trunk.Resume) { x.Watched = []string{"a", "a"} })},
		"no weights":           {resumesAs(1, 1, func(x *trunk.Resume) { x.Mode = codec.Weighted })},
		"input too early":      {resumesAs(1, 1, asks), input(1, "x")},
		"effects unasked":      {resumesAs(1, 1, nil), effectsAre(1, effect(1))},
		"effects twice":        {resumesAs(1, 1, asks), effectsAre(1, effect(1)), effectsAre(1, effect(1))},
		"effects out of order": {resumesAs(1, 1, asks), effectsAre(1, effect(2), effect(1))},
		"effects of an open":   {opens(1, 9), effectsAre(1)},
		"an older open":        {resumesAs(1, 5, nil), opens(2, 5)},
	} {
		r := serveRecording(t, 1, hooks{})
		s := r.gateway(r.loops[0])
		if err := s.tell(items...); err == nil {
			t.Errorf("%s is not refused", what)
		} else if !strings.Contains(err.Error(), "channel") {
			t.Errorf("%s: %v", what, err)
		}
		r.until("all have gone", func() bool { return r.sum().Connections == 0 })
	}
}

// A session that a loop has does not go on on another trunk as well: its client is reset, and nothing else ends.
func TestASessionThatIsThereDoesNotGoOnTwice(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 2, hooks{})
	s, other := r.gateway(r.loops[0]), r.gateway(r.loops[1])
	r.dial().put("x")
	s.say(opens(1, 1), input(1, "reserve\r\n"))
	s.expectReplies(1, reserved(1, "x"))
	other.say(resumesAs(1, 1, nil), resumesAs(2, 2, nil), input(2, "use a\r\n"))
	other.expect(resetOf(1, 0))
	other.expectReplies(2, "USING a\r\n")
	s.say(input(1, "delete 1\r\n"))
	s.expectReplies(1, "DELETED\r\n")
	if n := r.sum().Unknown; n != 1 {
		t.Errorf("%d clients were reset", n)
	}
}
