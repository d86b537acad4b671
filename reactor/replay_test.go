package reactor

import (
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
	"trellis/reactor/internal/trunk"
)

// resumer is a client whose gateway has its session go on over one trunk after the other.
type resumer struct {
	*recording
	s       *trunkScript
	n       uint64 // of the session
	channel uint32

	sent     string // by the client
	got      string // by the client
	answered uint64
	partial  int  // bytes of got behind what is answered
	mixed    bool // that is not known
	reset    bool
	jobs     int // that there are in the end

	as      trunk.Resume // what the client has asked for
	changes []trunk.Item // that come to be with the next replies
}

// resumer has the nth session of the gateway begin, of whose replies credit bytes are taken.
func (r *recording) resumer(n uint64, credit int) *resumer {
	c := &resumer{recording: r, n: n, channel: uint32(n)}
	c.as = trunk.Resume{Open: trunk.OpenOf(session(n), testClient), Mode: codec.FIFO, Used: "default", Watched: []string{"default"}}
	c.s = r.gateway(r.loops[0])
	c.s.say(opens(c.channel, n))
	c.limit(credit)
	return c
}

// limit says how many bytes of replies more are taken.
func (c *resumer) limit(credit int) {
	done := make(chan struct{})
	c.s.loop.call(func(*loop) {
		defer close(done)
		if side := c.s.end.Channels()[c.channel]; side != nil {
			h := channelOf(side)
			h.Channel.Init(h.Trunk(), 0)
			h.loop.streams.AddCredit(&h.Stream, credit)
		}
	})
	<-done
}

// sends sends input, of which the gateway passes on what it may.
func (c *resumer) sends(in string) {
	c.t.Helper()
	if c.sent += in; in != "" {
		c.s.say(input(c.channel, in))
	}
}

// settled waits until nothing is left to do for the loops.
func (s *trunkScript) settled() {
	idle := 0
	s.ts.until("nothing is left to do", func() bool {
		var busy atomic.Bool
		s.ts.onLoops(func(l *loop) {
			if l.left(l.server.now()) || !l.commits.idle() {
				busy.Store(true)
			}
		})
		if idle++; busy.Load() {
			idle = 0
		}
		return idle == 3
	})
}

// settle waits until nothing more happens, and takes what has come.
func (c *resumer) settle() {
	c.t.Helper()
	c.s.settled()
	c.s.mu.Lock()
	items := c.s.queue
	c.s.queue, c.s.size = nil, 0
	c.s.mu.Unlock()
	for _, it := range items {
		c.take(it)
	}
}

func (c *resumer) take(it trunk.Item) {
	c.t.Helper()
	switch it.Kind {
	case trunk.KindReplies:
		more := uint64(it.Number - uint32(c.answered))
		if more > uint64(len(c.sent))-c.answered {
			c.t.Fatalf("%d bytes more are answered, of %d", more, uint64(len(c.sent))-c.answered)
		}
		c.got += string(it.Data)
		if c.partial += len(it.Data); more > 0 {
			c.partial, c.answered = 0, c.answered+more
			c.mixed = it.Flags&trunk.More != 0
			for _, ch := range c.changes {
				c.change(ch)
			}
			c.changes = nil
		}
	case trunk.KindState:
		c.changes = append(c.changes, it)
	case trunk.KindEnd:
		c.reset = it.Flags&trunk.Reset != 0
	case trunk.KindCredit:
	default:
		c.t.Fatalf("got %s", show(it))
	}
}

// change notes what the client uses and watches.
func (c *resumer) change(it trunk.Item) {
	name, x := string(it.Data), &c.as
	switch at := slices.Index(x.Watched, name); {
	case it.Flags == trunk.Uses:
		x.Used = name
	case it.Flags == trunk.Watches && at < 0:
		x.Watched = append(x.Watched, name)
	case it.Flags == trunk.Ignores && at >= 0:
		last := len(x.Watched) - 1
		x.Watched[at] = x.Watched[last]
		x.Watched = x.Watched[:last]
	}
}

// goesOn has the session go on over another trunk.
func (c *resumer) goesOn() {
	c.t.Helper()
	c.s.ends()
	c.untilAbsent()
	c.settle() // what has come before the end
	rest := c.sent[c.answered:]
	x := c.as
	x.Watched = slices.Clone(x.Watched)
	x.Answered, x.Partial, x.Unanswered = c.answered, uint32(c.partial), rest != ""
	c.channel++
	resume := trunk.Item{Kind: trunk.KindResume, Channel: c.channel, Data: x.Append(nil)}
	c.s = c.gateway(c.loops[len(c.loops)-1])
	c.s.say(resume)
	if x.Unanswered {
		c.s.say(effectsAre(c.channel, c.journal.effects(session(c.n), c.answered)...))
	}
	c.s.say(attached)
	if rest != "" {
		c.s.say(input(c.channel, rest))
	}
	c.changes = nil
}

// cutCase is what a client sends.
type cutCase struct {
	before  string   // what another client has sent
	in      []string // its commands
	unknown bool     // a cut may end its connection if it sends them without waiting for replies
}

var cutCases = map[string]cutCase{
	"a worker": {
		"put 0 0 900 1\r\na\r\nput 0 0 900 1\r\nb\r\nput 0 0 900 1\r\nc\r\n",
		[]string{"reserve\r\n", "touch 1\r\n", "release 1 5 0\r\n", "reserve\r\n", "reserve-with-timeout 9\r\n", "bury 2 1\r\n", "delete 3\r\n", "delete 2\r\n"},
		true,
	},
	"workers do": {
		"put 0 0 900 1\r\na\r\nput 0 0 900 1\r\nb\r\nput 0 0 900 1\r\nc\r\n",
		[]string{"reserve\r\n", "touch 1\r\n", "reserve\r\n", "reserve\r\n"},
		false,
	},
	"a producer": {
		"", []string{
			"use t\r\n", "put 1 0 9 1\r\na\r\n", "put 1 0 9 5\r\nb\r\n b\r\n", "use u\r\n", "put 1 9 9 0\r\n\r\n", "put x\r\n", "put 1 0 9 1\r\nxx\r\n",
			"put 1 0 9 99\r\nput 1\r\n" + strings.Repeat("x", 92) + "\r\n",
		}, false,
	},
	"tubes": {
		"use t\r\nput 1 0 900 1\r\na\r\n", []string{
			"watch t\r\n", "watch u\r\n", "ignore default\r\n", "list-tubes-watched\r\n", "use t\r\n", "list-tube-used\r\n", "reserve\r\n", "watch v\r\n",
		}, false,
	},
	"a batch": {
		strings.Repeat("put 0 0 900 1\r\nx\r\n", 5), []string{"reserve-batch 3\r\n", "touch 2\r\n", "reserve-batch 9\r\n"}, false,
	},
	"settings": {
		"put 0 0 900 1\r\na\r\n", []string{"set-dlq default d\r\n", "kick-job 1\r\n", "reserve\r\n", "bury 1 1\r\n", "kick-job 1\r\n", "move-job 1 u\r\n"}, true,
	},
	"reads": {
		"put 0 0 900 1\r\na\r\n", []string{"peek 1\r\n", "reserve\r\n", "delete 1\r\n", "peek 1\r\n", "reserve-with-timeout 0\r\n", "put 1 0 9 1\r\nb\r\n"}, true,
	},
	"large": {
		"put 0 0 900 40000\r\n" + strings.Repeat("y", 40000) + "\r\n", []string{"reserve\r\n", "touch 1\r\n"}, false,
	},
	"missing": {"", []string{"delete 7\r\n", "release 7 0 0\r\n", "put 1 0 9 1\r\nb\r\n"}, true},
}

// run has a client do something, of whose replies so much is taken at first.
func (x *cutCase) run(t *testing.T, credit int, f func(c *resumer)) *resumer {
	t.Helper()
	r := serveRecording(t, 1, hooks{})
	other := r.script(r.loops[0])
	other.end.Leader = relay.NewLeader(other.end, other, testNumber+1)
	o := trunk.OpenOf(session(1)+1<<(64-journal.NumberBits), testClient)
	other.say(trunk.Item{Kind: trunk.KindOpen, Channel: 1, Data: o.Append(nil)})
	for in := x.before; in != ""; {
		n := min(len(in), trunk.FirstCredit/2)
		other.say(input(1, in[:n]))
		in = in[n:]
		other.settled()
	}
	c := r.resumer(1, credit)
	f(c)
	c.limit(allReplies)
	c.settle()
	n := c.testServer.engine.Snapshot(0)
	c.jobs = n.Ready + n.Reserved + n.Delayed + n.Buried
	r.onLoops(func(*loop) {
		if n := c.s.end.ResumeBytes(); n != 0 {
			t.Errorf("%d bytes of effects are kept", n)
		}
	})
	c.s.ends()
	if sum := r.sum(); sum.Panics+sum.Misfits > 0 {
		t.Fatalf("%d panics, %d misfits", sum.Panics, sum.Misfits)
	}
	_ = r.Shutdown(t.Context())
	return c
}

// allReplies is credit for all that a client gets.
const allReplies = 1 << 20

// anyID are replies in which it does not matter which ids jobs have: a put that comes in parts, and is cut, uses one up.
func anyID(replies string) string { return insertedID.ReplaceAllString(replies, "INSERTED #") }

var insertedID = regexp.MustCompile(`INSERTED \d+`)

// However a trunk is cut, the client has the replies of a run without cuts, or is reset.
func TestACutTrunkIsNotNoticed(t *testing.T) {
	t.Parallel()
	for name, x := range cutCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := strings.Join(x.in, "")
			whole := x.run(t, allReplies, func(c *resumer) { c.sends(in) })
			want, jobs := anyID(whole.got), whole.jobs
			check := func(c *resumer, mayEnd bool, how string, at int) {
				t.Helper()
				got := anyID(c.got)
				if (got != want || c.jobs != jobs) && !(c.reset && mayEnd && strings.HasPrefix(want, got)) {
					t.Fatalf("%s at %d: got %.300q (reset %v, %d jobs), want %.300q (%d jobs)", how, at, c.got, c.reset, c.jobs, want, jobs)
				}
			}
			each := 1
			if few {
				each = 1 + len(in)/10
			}
			for at := 0; at <= len(in); at += each {
				begun := 0 // the commands before at
				for i := 0; begun+len(x.in[i]) < at; i++ {
					begun += len(x.in[i])
				}
				check(x.run(t, allReplies, func(c *resumer) {
					c.sends(in[:begun])
					c.settle()
					c.limit(0)
					c.sends(in[begun:at])
					c.goesOn()
					c.sends(in[at:])
				}), false, "a reply was not taken", at)
				check(x.run(t, 0, func(c *resumer) {
					c.sends(in[:at])
					c.goesOn()
					c.sends(in[at:])
				}), x.unknown, "nothing was taken", at)
				check(x.run(t, 0, func(c *resumer) {
					c.sends(in[:at])
					c.goesOn()
					c.limit(0)
					c.settle()
					c.sends(in[at:])
					c.goesOn()
				}), x.unknown, "nothing was taken twice", at)
			}
			for at := 0; at < len(want); at += max(each, len(want)/100) {
				check(x.run(t, at, func(c *resumer) {
					c.sends(in)
					c.settle()
					c.goesOn()
				}), true, "replies were taken", at)
			}
		})
	}
}

// What the log tells that is not of a command, or after which nobody knows what a client was told, resets it. It is not
// told anything that may be false.
func TestWhatIsNotKnownResetsTheClient(t *testing.T) {
	t.Parallel()
	effect := func(offset int, id uint64, kind journal.EffectKind) journal.Effect {
		x := journal.Effect{Session: session(1), Offset: uint64(offset), ID: id, Kind: kind}
		if kind <= journal.EffectUpdate {
			x.State = journal.Ready
		}
		return x
	}
	const put, large = "put 0 0 9 1\r\nx\r\n", "put 0 0 9 20000\r\n"
	for what, x := range map[string]struct {
		in      []string
		partial uint32
		effects []journal.Effect
		misfit  bool
		told    string
	}{
		"within a line":         {[]string{"delete 1\r\n"}, 0, []journal.Effect{effect(4, 1, journal.EffectDelete)}, true, ""},
		"at the end of a part":  {[]string{"dele", "te 1\r\n"}, 0, []journal.Effect{effect(4, 1, journal.EffectDelete)}, true, ""},
		"behind a put's line":   {[]string{put}, 0, []journal.Effect{effect(13, 1, journal.EffectPut)}, true, ""},
		"within a body":         {[]string{large, strings.Repeat("x", 9000), strings.Repeat("x", 11000) + "\r\n"}, 0, []journal.Effect{effect(len(large)+9000, 1, journal.EffectPut)}, true, ""},
		"a body too large":      {[]string{"put 0 0 9 2000000\r\n", "xx"}, 0, []journal.Effect{effect(len("put 0 0 9 2000000\r\n"), 1, journal.EffectPut)}, true, ""},
		"behind the input":      {[]string{"use a\r\n", "bogus\r\n"}, 0, []journal.Effect{effect(9, 1, journal.EffectDelete)}, true, "USING a\r\n"},
		"of another command":    {[]string{"use a\r\n"}, 0, []journal.Effect{effect(7, 1, journal.EffectDelete)}, false, ""},
		"of another job":        {[]string{"delete 2\r\n"}, 0, []journal.Effect{effect(10, 1, journal.EffectDelete)}, false, ""},
		"a read before":         {[]string{"peek 1\r\ndelete 1\r\n"}, 0, []journal.Effect{effect(18, 1, journal.EffectDelete)}, false, ""},
		"a put before":          {[]string{put + "delete 1\r\n"}, 0, []journal.Effect{effect(len(put)+10, 1, journal.EffectDelete)}, false, ""},
		"a quit before":         {[]string{"quit\r\ndelete 1\r\n"}, 0, []journal.Effect{effect(16, 1, journal.EffectDelete)}, false, ""},
		"touch-all before":      {[]string{"touch-all\r\nput 0 0 9 1\r\nx\r\n"}, 0, []journal.Effect{effect(11, 1, journal.EffectTouch), effect(27, 1, journal.EffectPut)}, false, ""},
		"another reserve":       {[]string{"reserve\r\n"}, 3, []journal.Effect{effect(9, 1, journal.EffectHold)}, false, ""},
		"a reserve, then a put": {[]string{"reserve\r\n" + put}, 0, []journal.Effect{effect(9, 1, journal.EffectHold), effect(9+len(put), 2, journal.EffectPut)}, false, ""},
		"half a time-out":       {[]string{"reserve-with-timeout 0\r\n"}, 3, nil, false, ""},
		"half a read":           {[]string{"use b\r\npeek 1\r\n"}, 12, nil, false, ""},
	} {
		r := serveRecording(t, 1, hooks{})
		p := r.dial()
		p.put("a")
		c := r.resumer(1, allReplies)
		c.s.ends()
		r.untilAbsent()
		c.s = r.gateway(r.loops[0])
		c.s.say(resumesAs(1, 1, func(y *trunk.Resume) { y.Unanswered, y.Partial = true, x.partial }), effectsAre(1, x.effects...))
		if what == "behind the input" {
			c.s.say(input(1, x.in[0]))
			c.sent += x.in[0]
			c.settle()
			x.in = x.in[1:]
		}
		for _, in := range x.in {
			if !c.reset {
				c.sends(in)
				c.settle()
			}
		}
		misfits, unknown := uint64(0), uint64(1)
		if x.misfit {
			misfits, unknown = 1, 0
		}
		replays := 0
		r.onLoops(func(l *loop) { replays += len(l.replays) })
		if sum := r.sum(); !c.reset || c.got != x.told || sum.Misfits != misfits || sum.Unknown != unknown || replays > 0 {
			t.Errorf("%s: got %q, reset %v, %d misfits, %d unknown", what, c.got, c.reset, sum.Misfits, sum.Unknown)
		}
		id := p.put("b")
		p.do("reserve\r\nreserve\r\nreserve-with-timeout 0\r\n", reserved(1, "a")+reserved(id, "b")+"TIMED_OUT\r\n")
	}
}

// What a client has got of replies is not sent again, whatever pieces they lie in.
func TestRepliesAreSkipped(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	p := ts.dial()
	a, b := strings.Repeat("a", 40_000), strings.Repeat("b", 50_000)
	p.put(a)
	p.put(b)
	c := ts.dial()
	whole := "FOUND 1 40000\r\n" + a + "\r\nFOUND 2 50000\r\n" + b + "\r\n"
	for _, n := range []int{0, 1, 14, 15, 16, 40_014, 40_015, 40_016, 40_017, 40_018, 40_032, 40_033, 90_000, 90_031, 90_032, len(whole) - 1, len(whole), len(whole) + 1} {
		ts.onLoops(func(l *loop) {
			l.executing = l.conns[0]
			for _, id := range []uint64{1, 2} {
				l.conns[0].session.Execute(l.time(l.server.now()), &codec.Command{Op: codec.OpPeek, ID: id}, &l.out)
			}
			l.executing = nil
			if len(l.out.Bodies) != 2 {
				t.Errorf("%d bodies are pinned", len(l.out.Bodies))
			}
			skipped := stream.Skip(&l.out, n)
			got, at := "", 0
			for _, b := range l.out.Bodies {
				got += string(l.out.Buf[at:b.At]) + string(b.Bytes)
				at = b.At
			}
			got += string(l.out.Buf[at:])
			if want := min(n, len(whole)); skipped != want || got != whole[want:] {
				t.Errorf("of %d bytes %d are skipped, and %d are left", n, skipped, len(got))
			}
			stream.Empty(&l.out)
		})
	}
	p.do("delete 1\r\ndelete 2\r\n", "DELETED\r\nDELETED\r\n")
	c.do("use a\r\n", "USING a\r\n")
}

// What a client of the server itself has sent to another leader may be decided, too.
func TestTheInputOfAnOwnClientMayBeDecided(t *testing.T) {
	t.Parallel()
	plainNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c := ts.dial()
		c.do("use a\r\n", "USING a\r\n")
		const in = "use a\r\nput 0 0 9 1\r\nx\r\n"
		ts.onLoops(func(l *loop) {
			x := journal.Effect{Session: session(1), Offset: 100 + uint64(len(in)), ID: 77, Kind: journal.EffectPut, State: journal.Ready}
			l.replay(l.conns[0], relay.NewReplay(100, []journal.Effect{x}, uint32(len("USING a\r\nIN"))))
		})
		c.send(in[:20])
		c.send(in[20:])
		c.do("list-tube-used\r\n", "SERTED 77\r\nUSING a\r\n")
		if n := ts.sum().Repeated; n != 1 {
			t.Errorf("%d commands were answered by what the log told", n)
		}
	})
}
