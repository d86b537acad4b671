package reactor

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/reactor/internal/trunk"
)

// second is what leaders say of whom sessions are resumed.
func second(term, fence uint64) trunk.Welcome {
	return trunk.Welcome{Version: trunk.ResumesSince, Extensions: true, MaxJobSize: maxJob, Term: term, Fence: fence}
}

// serveResumed is serveForwarded for a gateway that resumes sessions. Its contact lasts.
func serveResumed(t testing.TB, network string, change func(*Config)) (*testServer, *fakeLeader) {
	t.Helper()
	return serveForwarded(t, network, hooks{trunks: trunk.ResumesSince, boot: func() time.Duration { return 0 }}, change)
}

// expectResumed reads all that is said of sessions that go on, by their ids, and that these were all.
func (k *fakeTrunk) expectResumed() (sessions map[uint64]trunk.Resume, channels map[uint64]uint32) {
	k.t.Helper()
	sessions, channels = make(map[uint64]trunk.Resume), make(map[uint64]uint32)
	for {
		it, err := k.next()
		if err != nil {
			k.t.Fatal(err)
		}
		switch it.Kind {
		case trunk.KindAttached:
			return sessions, channels
		case trunk.KindOpen:
			continue // of one who waits for longer than others
		}
		r, err := trunk.ParseResume(it.Data)
		if it.Kind != trunk.KindResume || err != nil {
			k.t.Fatalf("got %s, %v", show(it), err)
		}
		part := sessions[r.Session]
		r.Watched, r.Weights = append(part.Watched, r.Watched...), append(part.Weights, r.Weights...)
		sessions[r.Session], channels[r.Session] = r, it.Channel
	}
}

// expectEffects reads what has been executed of a session.
func (k *fakeTrunk) expectEffects(channel uint32, session uint64) (list []journal.Effect) {
	k.t.Helper()
	for {
		it := k.expect(trunk.KindEffects, channel)
		var err error
		if list, err = trunk.AppendEffects(list, session, it.Data); err != nil {
			k.t.Fatal(err)
		}
		if it.Flags == trunk.Last {
			return list
		}
	}
}

func TestSessionsGoOnAtTheNextLeader(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, leader := serveResumed(t, network, func(*Config) {})
		k := leader.welcomeAs(second(1, 0))
		_, _ = k.expectResumed()
		const all = 6
		clients := make([]*client, all+1)
		for i := range all {
			clients[i+1] = ts.dial()
			k.expectOpen(uint32(i + 1))
		}
		idle, waits, puts, gets, half, batch := clients[1], clients[2], clients[3], clients[4], clients[5], clients[6]
		say := func(c *client, channel uint32, s string) {
			c.send(s)
			k.expectInput(channel, s)
		}
		// One is answered, and has asked for tubes.
		const asks = "use u\r\nwatch w\r\nignore default\r\nwatch v 3\r\nreserve-mode weighted info\r\n"
		say(idle, 1, asks)
		k.send(state(1, trunk.Uses, "u"), state(1, trunk.Watches, "w"), state(1, trunk.Ignores, "default"),
			trunk.Item{Kind: trunk.KindState, Channel: 1, Flags: trunk.Watches, Number: 3, Data: []byte("v")},
			trunk.Item{Kind: trunk.KindState, Channel: 1, Flags: trunk.Chooses, Number: trunk.Choice(codec.Weighted, true, false)},
			replies(1, len(asks), 0, "USING u\r\nand so on\r\n"))
		idle.expect("USING u\r\nand so on\r\n")
		say(waits, 2, "reserve\r\n")
		say(puts, 3, "use a\r\nput 0 0 1 100\r\nabc")
		k.send(replies(3, 7, 0, "USING a\r\n"))
		puts.expect("USING a\r\n")
		say(gets, 4, "reserve\r\n")
		k.send(replies(4, 0, trunk.More, "RESERVED 7 9\r\nabc"))
		gets.expect("RESERVED 7 9\r\nabc")
		say(half, 5, "delete 4\r\n")
		half.closeWrite()
		k.expect(trunk.KindHalfClose, 5)
		say(batch, 6, "release 1 0 0\r\nbury 2 0\r\nreserve-batch 600\r\n")
		k.Close()

		// What is sent meanwhile comes behind.
		ts.until("the trunk has ended", func() bool { n, _ := ts.Forwarding(); return n == 0 })
		puts.send("defg")
		ts.until("it is read", func() bool { return ts.sum().PendingInput >= 7 })
		k = leader.welcomeAs(second(2, 50))
		sessions, channels := k.expectResumed()
		if len(sessions) != all {
			t.Fatalf("%d sessions go on", len(sessions))
		}
		for i, want := range map[uint64]trunk.Resume{
			1: {Answered: uint64(len(asks)), Used: "u", Watched: []string{"w", "v"}, Weights: []uint16{1, 3}, Mode: codec.Weighted, Info: true},
			2: {Unanswered: true},
			3: {Unanswered: true, Answered: 7},
			4: {Unanswered: true, Partial: 17},
			5: {Unanswered: true},
			6: {Unanswered: true},
		} {
			got := sessions[session(i)]
			if network != "unix" && got.Client.String() != clients[i].LocalAddr().String() || got.Age > 0 && !want.Unanswered {
				t.Errorf("client %d is %+v", i, got)
			}
			if want.Used == "" {
				want.Used, want.Watched, want.Mode = "default", []string{"default"}, codec.FIFO
			}
			want.Open, want.Age = got.Open, got.Age
			if !reflect.DeepEqual(got, want) {
				t.Errorf("session %d goes on as %+v, want %+v", i, got, want)
			}
		}
		// Until this member has applied what was executed, nothing more is said of what has no answer.
		var list []journal.Effect
		for i := range uint64(600) {
			list = append(list, journal.Effect{Session: session(6), Offset: 44, ID: 100 + i, Kind: journal.EffectHold})
		}
		ts.Applied(48, []journal.Effect{
			{Session: session(3), Offset: 7, ID: 1, Kind: journal.EffectDelete}, // was answered
			{Session: session(6), Offset: 15, ID: 1, Kind: journal.EffectUpdate, State: journal.Ready},
			{Session: 1<<40 + 6, Offset: 15, ID: 1, Kind: journal.EffectTouch}, // another loop's
			{Session: session(6), Offset: 25, ID: 2, Kind: journal.EffectUpdate, State: journal.Buried},
			{Session: session(9), Offset: 15, ID: 1, Kind: journal.EffectTouch}, // nobody's
		})
		ts.Applied(49, list)
		idle.send("stats\r\n")
		k.expectInput(channels[session(1)], "stats\r\n")
		ts.Applied(50, []journal.Effect{{Session: session(4), Offset: 9, ID: 7, Kind: journal.EffectHold}})
		effects, inputs := make(map[uint32][]journal.Effect), make(map[uint32]string)
		last, halves := 0, 0
		for last < all-1 || len(inputs[channels[session(3)]]) < len("put 0 0 1 100\r\nabcdefg") || halves == 0 || len(inputs) < all-1 {
			it, err := k.next()
			switch {
			case err != nil:
				t.Fatal(err)
			case it.Kind == trunk.KindEffects:
				if effects[it.Channel], err = trunk.AppendEffects(effects[it.Channel], 1, it.Data); err != nil || inputs[it.Channel] != "" {
					t.Fatalf("effects behind %q: %v", inputs[it.Channel], err)
				}
				last += int(it.Flags)
			case it.Kind == trunk.KindInput:
				inputs[it.Channel] += string(it.Data)
			case it.Kind == trunk.KindHalfClose && it.Channel == channels[session(5)] && inputs[it.Channel] == "delete 4\r\n":
				halves++
			default:
				t.Fatalf("got %s", show(it))
			}
		}
		for i, want := range map[uint64]struct {
			effects int
			input   string
		}{
			2: {0, "reserve\r\n"},
			3: {0, "put 0 0 1 100\r\nabcdefg"},
			4: {1, "reserve\r\n"},
			5: {0, "delete 4\r\n"},
			6: {602, "release 1 0 0\r\nbury 2 0\r\nreserve-batch 600\r\n"},
		} {
			n := channels[session(i)]
			if len(effects[n]) != want.effects || inputs[n] != want.input {
				t.Errorf("session %d has %d effects and sends %q", i, len(effects[n]), inputs[n])
			}
		}
		// The next replies are those of the answers, wherever they come from.
		k.send(replies(channels[session(2)], 9, 0, "RESERVED 1 0\r\n\r\n"), replies(channels[session(4)], 9, 0, "defghi\r\n"),
			replies(channels[session(5)], 10, 0, "DELETED\r\n"), endOf(channels[session(5)], 10))
		waits.expect("RESERVED 1 0\r\n\r\n")
		gets.expect("defghi\r\n")
		half.expect("DELETED\r\n")
		half.expectEOF()
		k.expect(trunk.KindClose, channels[session(5)])
		next := ts.dial()
		if o := k.expectOpen(channels[session(5)]); o.Session != session(all+1) {
			t.Errorf("session %d comes next", o.Session)
		}
		next.Close()
	})
}

// What has no answer is sent again as often as it takes, with what is known of it.
func TestSessionsGoOnAgainAndAgain(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "tcp", func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	c := ts.dial()
	k.expectOpen(1)
	const all = "delete 1\r\ndelete 2\r\ndelete 3\r\n"
	c.send(all)
	k.expectInput(1, all)
	deleted := func(i uint64) journal.Effect {
		return journal.Effect{Session: session(1), Offset: 10 * i, ID: i, Kind: journal.EffectDelete}
	}
	ts.Applied(1, []journal.Effect{deleted(1)})
	for i := range uint64(4) {
		k.Close()
		k = leader.welcomeAs(second(2+i, 2+i))
		if sessions, _ := k.expectResumed(); len(sessions) != 1 || !sessions[session(1)].Unanswered {
			t.Fatalf("%+v go on", sessions)
		}
		if i == 2 {
			continue // it ends before this member has applied the fence
		}
		if i == 1 {
			ts.Applied(2+i, []journal.Effect{deleted(2)})
		} else {
			ts.Applied(2+i, nil)
		}
		if list, want := k.expectEffects(1, session(1)), min(int(i)+1, 2); len(list) != want || list[0] != deleted(1) || list[want-1] != deleted(uint64(want)) {
			t.Errorf("the effects are %+v", list)
		}
		k.expectInput(1, all)
	}
	k.send(replies(1, 20, 0, "DELETED\r\nDELETED\r\n"))
	c.expect("DELETED\r\nDELETED\r\n")
	k.Close()
	k = leader.welcomeAs(second(9, 9))
	if sessions, _ := k.expectResumed(); sessions[session(1)].Answered != 20 {
		t.Errorf("%+v go on", sessions)
	}
	ts.Applied(9, nil)
	if list := k.expectEffects(1, session(1)); len(list) != 0 {
		t.Errorf("the effects are %+v", list)
	}
	k.expectInput(1, "delete 3\r\n")
	k.send(replies(1, 30, 0, "NOT_FOUND\r\n"))
	c.expect("NOT_FOUND\r\n")
}

// Who has a part of an answer that nobody can go on with, or has sent what was not kept, or of what the log cannot tell, is reset.
func TestWhatCannotBeRepeatedIsReset(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", trunk.FirstCredit)
	unrepeated := func(n LoopStats) uint64 { return n.Unrepeated }
	lost := func(n LoopStats) uint64 { return n.TrunkLost }
	for _, x := range []struct {
		name   string
		memory int64
		first  func(*testServer, *fakeTrunk, *client) // before the change of leader
		next   trunk.Welcome
		then   func(*testServer) // behind it
		silent bool              // the other client goes on
		count  func(LoopStats) uint64
	}{
		{
			name: "an answer behind another", count: unrepeated, next: second(2, 2), silent: true,
			first: func(_ *testServer, k *fakeTrunk, c *client) {
				c.send("use a\r\nlist-tubes\r\n")
				k.expectInput(1, "use a\r\nlist-tubes\r\n")
				k.send(replies(1, 7, trunk.More, "USING a\r\nOK 20\r\n"))
				c.expect("USING a\r\nOK 20\r\n")
			},
		},
		{
			name: "a long body", count: unrepeated, memory: 1, next: second(2, 2), silent: true,
			first: func(_ *testServer, k *fakeTrunk, c *client) {
				c.send(big)
				k.expectInput(1, big)
				k.send(credit(1, 100))
				c.send("more")
				k.expectInput(1, "more")
			},
		},
		{
			name: "another size of jobs", count: lost, silent: true,
			next:  trunk.Welcome{Version: trunk.ResumesSince, Extensions: true, MaxJobSize: maxJob - 1, Term: 2, Fence: 2},
			first: func(_ *testServer, k *fakeTrunk, c *client) { c.send("put"); k.expectInput(1, "put") },
		},
		{
			name: "other commands", count: lost, silent: true,
			next:  trunk.Welcome{Version: trunk.ResumesSince, MaxJobSize: maxJob, Term: 2, Fence: 2},
			first: func(_ *testServer, k *fakeTrunk, c *client) { c.send("put"); k.expectInput(1, "put") },
		},
		{
			name: "an older leader", count: lost, silent: true,
			next:  trunk.Welcome{Version: 1, Extensions: true, MaxJobSize: maxJob, Term: 2},
			first: func(_ *testServer, k *fakeTrunk, c *client) { c.send("put"); k.expectInput(1, "put") },
		},
		{
			name: "a snapshot before", count: unrepeated, next: second(2, 2), silent: true,
			first: func(ts *testServer, k *fakeTrunk, c *client) {
				c.send("put")
				k.expectInput(1, "put")
				ts.EffectsLost()
			},
			then: func(ts *testServer) { ts.Applied(2, nil) },
		},
		{
			name: "a snapshot at last", count: unrepeated, next: second(2, 2), silent: true,
			first: func(_ *testServer, k *fakeTrunk, c *client) { c.send("put"); k.expectInput(1, "put") },
			then:  func(ts *testServer) { ts.EffectsLost(); ts.Applied(2, nil) },
		},
		{
			name: "more effects than anybody looks at", count: unrepeated, next: second(2, 2), silent: true,
			first: func(ts *testServer, k *fakeTrunk, c *client) {
				c.send("put")
				k.expectInput(1, "put")
				ts.loops[0].effects.post(ts.loops[0], make([]journal.Effect, maxEffects+1))
			},
			then: func(ts *testServer) { ts.Applied(2, nil) },
		},
		{
			name: "an effect of what was not sent", count: unrepeated, next: second(2, 2), silent: true,
			first: func(_ *testServer, k *fakeTrunk, c *client) { c.send("put"); k.expectInput(1, "put") },
			then: func(ts *testServer) {
				ts.Applied(2, []journal.Effect{{Session: session(1), Offset: 4, ID: 1, Kind: journal.EffectDelete}})
			},
		},
		{
			name: "a number that is gone", count: func(n LoopStats) uint64 { return n.NoContact }, next: second(2, 2), silent: true,
			first: func(ts *testServer, k *fakeTrunk, c *client) {
				c.send("put")
				k.expectInput(1, "put")
				ts.NumberGone(testNumber)
				k.expectEnd()
			},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			ts, leader := serveResumed(t, "tcp", func(c *Config) { c.GatewayMemory = x.memory })
			k := leader.welcomeAs(second(1, 0))
			_, _ = k.expectResumed()
			c := ts.dial()
			k.expectOpen(1)
			other := ts.dial()
			k.expectOpen(2)
			x.first(ts, k, c)
			k.Close()
			k = leader.welcomeAs(x.next)
			if x.then != nil {
				x.then(ts)
			}
			c.expectReset("who cannot go on")
			other.send("stats\r\n")
			for {
				it, err := k.next()
				if err != nil {
					t.Fatal(err)
				}
				if it.Kind == trunk.KindInput {
					if string(it.Data) != "stats\r\n" {
						t.Errorf("%q was sent again", it.Data)
					}
					break
				}
			}
			ts.until("it is counted", func() bool { return x.count(ts.sum()) == 1 })
		})
	}
}

// A client that was refused does not go on, also if it had sent a command: the next leader would take the refusal for a
// part of the reply to that.
func TestWhoWasRefusedDoesNotGoOn(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "tcp", func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	var clients [3]*client
	for i := range clients {
		clients[i] = ts.dial()
		k.expectOpen(uint32(i + 1))
	}
	silent, asks, other := clients[0], clients[1], clients[2]
	asks.send("list-tube-used\r\n")
	k.expectInput(2, "list-tube-used\r\n")
	k.send(replies(1, 0, 0, "OUT_OF_MEMORY\r\n"), replies(2, 0, 0, "OUT_OF_MEMORY\r\n"))
	silent.expect("OUT_OF_MEMORY\r\n")
	asks.expect("OUT_OF_MEMORY\r\n")
	k.Close()
	k = leader.welcomeAs(second(2, 0))
	if sessions, _ := k.expectResumed(); len(sessions) != 1 {
		t.Errorf("%+v go on", sessions)
	}
	silent.expectReset("who was refused")
	asks.expectReset("who was refused")
	other.send("quit\r\n")
	k.expect(trunk.KindInput, 1)
}

// What a leader has said before it is parted with is true, and clients get it, although the loop has not read it by then.
func TestClientsGetWhatHasComeOnATrunkThatEnds(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*loop, *fakeTrunk, func()){
		"another leads":     func(_ *loop, _ *fakeTrunk, another func()) { another() },
		"this server leads": func(l *loop, _ *fakeTrunk, _ func()) { l.endTrunks(l.server.now(), errLeads) },
		"the leader has ended": func(l *loop, k *fakeTrunk, _ func()) {
			k.Close()
			l.links.All()[0].Pulse()
		},
	} {
		ts, leader := serveResumed(t, "tcp", func(*Config) {})
		until, another := context.WithCancel(t.Context())
		leader.until = until
		k := leader.welcomeAs(second(1, 0))
		_, _ = k.expectResumed()
		c := ts.dial()
		k.expectOpen(1)
		const in = "peek 1\r\nput 0 0 9 1\r\nx\r\n"
		c.send(in)
		k.expectInput(1, in)
		ts.onLoops(func(l *loop) {
			k.send(replies(1, 8, 0, "NOT_FOUND\r\n"), replies(1, len(in), 0, "INSERTED 7\r\n"), bare(trunk.KindRetire, 0))
			end(l, k, another)
			for posted := what != "another leads"; !posted; {
				l.calls.Take()
				posted = !l.calls.Empty()
			}
		})
		c.expect("NOT_FOUND\r\nINSERTED 7\r\n")
		leader.until = nil
		k = leader.welcomeAs(second(2, 0))
		if sessions, _ := k.expectResumed(); len(sessions) != 1 || sessions[session(1)].Unanswered {
			t.Errorf("%s: %+v go on", what, sessions)
		}
	}
}

// What is sent behind a snapshot goes on, however long it takes until there is another leader.
func TestASnapshotEndsNobodyWhoSendsLater(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "tcp", func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	before, behind := ts.dial(), ts.dial()
	k.expectOpen(1)
	k.expectOpen(2)
	before.send("reserve\r\n")
	k.expectInput(1, "reserve\r\n")
	ts.EffectsLost()
	ts.Applied(1, nil)
	ts.onLoops(func(*loop) {})
	ts.onLoops(func(*loop) {})
	behind.send("reserve\r\n")
	k.expectInput(2, "reserve\r\n")
	k.Close()
	k = leader.welcomeAs(second(2, 2))
	ts.Applied(2, nil)
	before.expectReset("who has sent it before")
	sessions, channels := k.expectResumed()
	if _, ok := sessions[session(2)]; !ok {
		t.Errorf("%+v go on", sessions)
	}
	n := channels[session(2)]
	if list := k.expectEffects(n, session(2)); len(list) != 0 {
		t.Errorf("the effects are %+v", list)
	}
	k.expectInput(n, "reserve\r\n")
	k.send(replies(n, 9, 0, "RESERVED 1 0\r\n\r\n"))
	behind.expect("RESERVED 1 0\r\n\r\n")
}

// A loop whose number is another one has no sessions any more.
func TestSessionsEndWithTheirNumber(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "tcp", func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	c := ts.dial()
	k.expectOpen(1)
	c.send("use a\r\n")
	k.expectInput(1, "use a\r\n")
	k.send(replies(1, 7, 0, "USING a\r\n"))
	c.expect("USING a\r\n")
	leader.number.Store(testNumber + 1)
	k.Close()
	k = leader.welcomeAs(second(2, 0))
	c.expectReset("who had the old number")
	if sessions, _ := k.expectResumed(); len(sessions) != 0 {
		t.Errorf("%+v go on", sessions)
	}
	ts.dial()
	if o := k.expectOpen(1); o.Session != (testNumber+1)<<40+2 {
		t.Errorf("session %x comes next", o.Session)
	}
}

// A leader that was deposed is left alone.
func TestALeaderOfAnEarlierTermIsLeftAlone(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "tcp", func(*Config) {})
	k := leader.welcomeAs(second(5, 0))
	_, _ = k.expectResumed()
	c := ts.dial()
	k.expectOpen(1)
	k.Close()
	k = leader.welcomeAs(second(4, 0))
	k.expectEnd()
	k = leader.welcomeAs(second(5, 0))
	if sessions, _ := k.expectResumed(); len(sessions) != 1 {
		t.Errorf("%+v go on", sessions)
	}
	c.send("quit\r\n")
	k.expectInput(1, "quit\r\n")
}

// What a client that has gone meanwhile had is not named, nor is one that comes too late to be resumed.
func TestClientsMayLeaveWhileThereIsNoLeader(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "tcp", func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	gone, half, stays := ts.dial(), ts.dial(), ts.dial()
	for i := range 3 {
		k.expectOpen(uint32(i + 1))
	}
	k.Close()
	ts.until("the trunk has ended", func() bool { n, _ := ts.Forwarding(); return n == 0 })
	gone.reset()
	half.closeWrite()
	half.allowRead()
	if _, err := io.Copy(io.Discard, half.r); err != nil {
		t.Error(err)
	}
	ts.until("they have gone", func() bool { return ts.sum().Connections == 1 })
	ts.dial()
	ts.until("another one has come", func() bool { return ts.sum().Connections == 2 })
	k = leader.welcomeAs(second(2, 0))
	sessions, channels := k.expectResumed()
	if len(sessions) != 1 {
		t.Errorf("%+v go on", sessions)
	}
	stays.send("quit\r\n")
	k.expectInput(channels[session(3)], "quit\r\n")
}

// Many tubes are told of in parts.
func TestASessionWithManyTubesGoesOn(t *testing.T) {
	t.Parallel()
	ts, leader := serveResumed(t, "unix", func(*Config) {})
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	c := ts.dial()
	k.expectOpen(1)
	c.send("x")
	k.expectInput(1, "x")
	for i := range 300 {
		k.send(state(1, trunk.Watches, fmt.Sprintf("%d%s", i, strings.Repeat("t", 150))))
	}
	k.send(replies(1, 1, 0, "x"), bare(trunk.KindRetire, 0))
	k.expectEnd()
	k = leader.welcomeAs(second(2, 0))
	if sessions, _ := k.expectResumed(); len(sessions[session(1)].Watched) != 301 {
		t.Errorf("it watches %d tubes", len(sessions[session(1)].Watched))
	}
}

// Who has waited longest is named first, with how long it has waited: since it has asked, or since its last reply.
func TestSessionsAreNamedByHowLongTheyHaveWaited(t *testing.T) {
	t.Parallel()
	ts, put := serveStopped(t, "tcp", hooks{trunks: trunk.ResumesSince, boot: func() time.Duration { return 0 }}, nil, func(c *Config) { c.Engine = nil })
	leader := forwardTo(ts)
	k := leader.welcomeAs(second(1, 0))
	_, _ = k.expectResumed()
	const n = 8
	var clients [n]*client
	for i := range clients {
		clients[i] = ts.dial()
		k.expectOpen(uint32(i + 1))
	}
	const in = "use a\r\nreserve\r\n"
	for i := n - 1; i >= 0; i-- { // the last comes first
		clients[i].send(in)
		k.expectInput(uint32(i+1), in)
		put(time.Second)
	}
	k.send(replies(n, 7, 0, "USING a\r\n")) // it waits anew
	clients[n-1].expect("USING a\r\n")
	put(time.Second)
	k.Close()
	k = leader.welcomeAs(second(2, 0))
	for i := range n {
		it, err := k.next()
		if err != nil {
			t.Fatal(err)
		}
		r, err := trunk.ParseResume(it.Data)
		want, age := session(uint64(n-1-i)), time.Duration(n-i)*time.Second
		if i == n-1 {
			want, age = session(n), time.Second
		}
		if err != nil || r.Session != want || r.Age != age {
			t.Errorf("session %d is named with %v, want %d with %v: %v", r.Session, r.Age, want, age, err)
		}
	}
}
