package reactor

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// trunkScript is a trunk whose gateway is the test.
type trunkScript struct {
	*testTrunk
	t testing.TB
}

// testNumber is that of the gateway's loop.
const testNumber = 7

// session is the id of the nth session of the gateway's loop.
func session(n uint64) uint64 { return testNumber<<(64-journal.NumberBits) + n }

var testClient = netip.MustParseAddrPort("192.0.2.7:4711")

// script lays a trunk to a loop of the server.
func (ts *testServer) script(l *loop) *trunkScript {
	return &trunkScript{testTrunk: ts.newTrunk(l, testNumber), t: ts.t}
}

// tell has the leader's end take items, and returns what the first that is refused is refused with.
func (s *trunkScript) tell(items ...trunk.Item) (err error) {
	done := make(chan struct{})
	s.loop.call(func(l *loop) {
		defer close(done)
		for i := range items {
			if err = s.end.TakeItem(l.server.now(), &items[i]); err != nil {
				s.end.Disconnect(l.server.now(), err)
				return
			}
		}
	})
	<-done
	return err
}

// say is tell for items that are not refused.
func (s *trunkScript) say(items ...trunk.Item) {
	s.t.Helper()
	if err := s.tell(items...); err != nil {
		s.t.Fatal(err)
	}
}

// next waits for the next item.
func (s *trunkScript) next() (it trunk.Item) {
	s.t.Helper()
	s.ts.until("an item comes", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.queue) == 0 {
			return false
		}
		it = s.queue[0]
		s.queue = s.queue[1:]
		s.size -= trunk.ItemHead + len(it.Data)
		return true
	})
	return it
}

// drained waits until nothing is left to do for the loop, and makes sure that no item is there.
func (s *trunkScript) drained() {
	s.t.Helper()
	for range 2 {
		s.ts.onLoops(func(*loop) {})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		s.t.Errorf("%d items are left, the first is %v", len(s.queue), show(s.queue[0]))
	}
}

// show is an item as it is compared.
func show(it trunk.Item) string {
	return fmt.Sprintf("%v %d/%d %d %.60q", it.Kind, it.Channel, it.Flags, it.Number, it.Data)
}

// expect makes sure that these items come next.
func (s *trunkScript) expect(want ...trunk.Item) {
	s.t.Helper()
	for _, w := range want {
		if got := s.next(); show(got) != show(w) || string(got.Data) != string(w.Data) {
			s.t.Fatalf("got %s, want %s", show(got), show(w))
		}
	}
}

// expectReplies reads replies of a channel, whatever items they come in, gives the credit back, and
// returns the last of these.
func (s *trunkScript) expectReplies(channel uint32, want string) (last trunk.Item) {
	s.t.Helper()
	for want != "" {
		it := s.next()
		switch it.Kind {
		case trunk.KindState, trunk.KindCredit:
			continue
		}
		if it.Kind != trunk.KindReplies || it.Channel != channel || !strings.HasPrefix(want, string(it.Data)) {
			s.t.Fatalf("got %s, want %.100q", show(it), want)
		}
		want, last = want[len(it.Data):], it
		s.say(credit(channel, len(it.Data)))
	}
	return last
}

func opens(channel uint32, n uint64) trunk.Item { return opensWith(channel, n, 0) }

func opensWith(channel uint32, n uint64, grant uint32) trunk.Item {
	o := trunk.OpenOf(session(n), testClient)
	return trunk.Item{Kind: trunk.KindOpen, Channel: channel, Number: grant, Data: o.Append(nil)}
}

func input(channel uint32, s string) trunk.Item {
	return trunk.Item{Kind: trunk.KindInput, Channel: channel, Data: []byte(s)}
}

func credit(channel uint32, n int) trunk.Item {
	return trunk.Item{Kind: trunk.KindCredit, Channel: channel, Number: uint32(n)}
}

func bare(kind trunk.Kind, channel uint32) trunk.Item {
	return trunk.Item{Kind: kind, Channel: channel}
}

// endsAhead tells that the client sends no more than what the gateway has of it.
func endsAhead(channel uint32) trunk.Item {
	return trunk.Item{Kind: trunk.KindHalfClose, Channel: channel, Flags: trunk.Ahead}
}

func endOf(channel uint32, executed int) trunk.Item {
	return trunk.Item{Kind: trunk.KindEnd, Channel: channel, Number: uint32(executed)}
}

func replies(channel uint32, answered int, flags uint8, s string) trunk.Item {
	return trunk.Item{Kind: trunk.KindReplies, Channel: channel, Number: uint32(answered), Flags: flags, Data: []byte(s)}
}

func state(channel uint32, flags uint8, tube string) trunk.Item {
	return trunk.Item{Kind: trunk.KindState, Channel: channel, Flags: flags, Data: []byte(tube)}
}

func TestRepliesTellWhatTheyAnswer(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveConfig(t, "unix", hooks{}, j, func(c *Config) { c.Extensions = true })
	s := ts.script(ts.loops[0])
	const put = "put 0 0 9 1\r\nx\r\n"
	at := 0
	in := func(p string) trunk.Item {
		at += len(p)
		return input(1, p)
	}
	s.say(opens(1, 1), in("list-tube-used\r\nlist-t"))
	s.expect(replies(1, len("list-tube-used\r\n"), 0, "USING default\r\n"))
	s.say(in("ube-used\r\n" + put[:5]))
	s.expect(replies(1, at-5, 0, "USING default\r\n"))
	s.say(in(put[5:]))
	s.drained() // it waits for the commit
	j.untilRecorded(ts, 1)
	j.commit(ts, 1)
	s.expect(replies(1, at, 0, "INSERTED 1\r\n"))

	// A body that has come in part is no part of what is answered.
	s.say(in("bogus\r\nput 0 0 9 20000\r\n" + strings.Repeat("x", 10000)))
	s.expect(replies(1, at-10000-len("put 0 0 9 20000\r\n"), 0, "UNKNOWN_COMMAND\r\n"), credit(1, at))
	s.say(in(strings.Repeat("x", 10000) + "\r\n"))
	s.expect(credit(1, 10002))
	j.untilRecorded(ts, 2)
	j.commit(ts, 2)
	s.expect(replies(1, at, 0, "INSERTED 2\r\n"))

	// A reserve that waits is answered when it has a job.
	s.say(in("watch a\r\nignore default\r\nreserve\r\nuse b\r\n"))
	s.expect(state(1, trunk.Watches, "a"), state(1, trunk.Ignores, "default"),
		replies(1, at-len("reserve\r\nuse b\r\n"), 0, "WATCHING 2\r\nWATCHING 1\r\n"))
	p := ts.dial()
	p.send("use a\r\n" + put)
	j.untilRecorded(ts, 3)
	j.commit(ts, 3)
	s.expect(state(1, 0, "b"), replies(1, at, 0, "RESERVED 3 1\r\nx\r\nUSING b\r\n"))
	s.say(bare(trunk.KindClose, 1))
	s.expect(endOf(1, at))
	s.drained()
}

// What a client uses is told with the reply to that, and not before what it has sent earlier was answered.
func TestAStateIsToldWithItsReply(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveConfig(t, "unix", hooks{}, j, func(c *Config) { c.Extensions = true })
	s := ts.script(ts.loops[0])
	name := strings.Repeat("n", 201)
	in := "put 0 0 9 1\r\nx\r\nuse b\r\nwatch c\r\nignore c\r\nignore default\r\nuse " + name + "\r\nuse d\r\n"
	s.say(opens(3, 1), input(3, in))
	s.drained()
	j.untilRecorded(ts, 1)
	j.commit(ts, 1)
	s.expect(state(3, 0, "b"), state(3, trunk.Watches, "c"), state(3, trunk.Ignores, "c"), state(3, 0, "d"),
		replies(3, len(in), 0, "INSERTED 1\r\nUSING b\r\nWATCHING 2\r\nWATCHING 1\r\nNOT_IGNORED\r\nBAD_FORMAT\r\nUSING d\r\n"))
}

// A reply for which the credit does not suffice goes on when there is more, in items of which all but
// the last say so. The body is not copied.
func TestALargeReplyIsSentAsCreditComes(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	body := strings.Repeat("0123456789", 4000)
	id := ts.dial().put(body)
	whole := fmt.Sprintf("FOUND %d %d\r\n%s\r\n", id, len(body), body)
	const in = "use a\r\n"
	peek := fmt.Sprintf("peek %d\r\n", id)
	s.say(opens(1, 1), input(1, in))
	s.expect(state(1, 0, "a"), replies(1, len(in), 0, "USING a\r\n"))
	s.say(input(1, peek+"use b\r\n"))
	first := trunk.FirstCredit - len("USING a\r\n")
	s.expect(replies(1, len(in), trunk.More, whole[:first]))
	s.drained()
	if n := ts.sum(); n.Stalled != 1 || n.PendingOutput != int64(len(whole)+len("USING b\r\n")-first) {
		t.Errorf("%+v", n)
	}
	s.say(credit(1, 100))
	s.expect(replies(1, len(in), trunk.More, whole[first:first+100]))
	first += 100
	s.say(credit(1, 100_000))
	end := first + trunk.MaxData
	s.expect(replies(1, len(in), trunk.More, whole[first:end]))
	s.expect(state(1, 0, "b"), replies(1, len(in+peek+"use b\r\n"), 0, whole[end:]+"USING b\r\n"))
	s.drained()
}

// A list is made in parts. Until it is whole, it is not answered.
func TestAListInPartsIsAnsweredWhenItIsWhole(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	name := strings.Repeat("t", 190)
	for i := range 3000 {
		n := fmt.Sprint(i) + name
		s.say(opens(uint32(i+2), uint64(i+1)), input(uint32(i+2), "watch "+n+"\r\n"))
		s.expect(state(uint32(i+2), trunk.Watches, n), replies(uint32(i+2), len("watch \r\n")+len(n), 0, "WATCHING 2\r\n"))
	}
	s.say(opens(1, 5000), input(1, "use a\r\nlist-tubes\r\n"))
	var got []byte
	for n := uint32(0); n != uint32(len("use a\r\nlist-tubes\r\n")); {
		it := s.next()
		if it.Kind == trunk.KindState {
			continue
		}
		got = append(got, it.Data...)
		if n = it.Number; it.Flags != trunk.More && n <= 7 {
			t.Fatalf("%d bytes: %s", len(got), show(it))
		}
		s.say(credit(1, len(it.Data)))
	}
	if !strings.HasPrefix(string(got), "USING a\r\nOK ") || strings.Count(string(got), name) != 3000 || !strings.HasSuffix(string(got), "\r\n") {
		t.Errorf("%d bytes came", len(got))
	}
	s.drained()
}

func TestCreditForInputComesBackWhenHalfIsUsed(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	line := strings.Repeat("x", 98) + "\r\n" // which is a bad command
	half := trunk.FirstCredit/2/len(line) + 1
	s.say(opens(1, 1))
	for range half {
		s.drained()
		s.say(input(1, line))
		s.expectReplies(1, "UNKNOWN_COMMAND\r\n")
	}
	s.expect(credit(1, half*len(line)))
	// One that uses it whole may send more, once that is executed.
	s.say(input(1, "reserve\r\n"+strings.Repeat("x", trunk.FirstCredit-len("reserve\r\n"+"\r\n"))+"\r\n"))
	s.drained()
	ts.dial().put("x")
	s.expect(credit(1, 2*trunk.FirstCredit))
	s.expectReplies(1, reserved(1, "x")+"BAD_FORMAT\r\n")
	s.drained()
}

// A reserve does not wait for a client of which no more is to come than what there is no room for yet.
func TestAClientThatSendsNoMoreIsAnsweredBeforeAllHasCome(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		ts := serve(t, "unix", 1, hooks{})
		s := ts.script(ts.loops[0])
		if held {
			ts.Hold(true)
		}
		line := strings.Repeat("x", 98) + "\r\n" // which is a bad command
		const n = (trunk.FirstCredit - len("reserve\r\n")) / 100
		s.say(opens(1, 1), input(1, "reserve\r\n"+strings.Repeat(line, n)), endsAhead(1))
		if held {
			s.drained()
			ts.Hold(false)
		}
		s.expectReplies(1, "TIMED_OUT\r\n"+strings.Repeat("UNKNOWN_COMMAND\r\n", n))
		s.drained()
		s.say(input(1, "reserve\r\nlist-tube-used\r\n"))
		s.expectReplies(1, "TIMED_OUT\r\nUSING default\r\n")
		s.drained()
		s.say(bare(trunk.KindHalfClose, 1))
		s.expect(endOf(1, n*len(line)+len("reserve\r\nreserve\r\nlist-tube-used\r\n")))
		s.say(bare(trunk.KindClose, 1))
	}
}

// A client may send more the more it has used whole, as long as all have not been given too much, and what one had another gets.
func TestInputOfGatewaysClientsIsBoundedTogether(t *testing.T) {
	t.Parallel()
	const most = 3 * trunk.FirstCredit
	ts := serveConfig(t, "unix", hooks{}, nil, func(c *Config) { c.GatewayMemory, c.Loops = most, 1 })
	s := ts.script(ts.loops[0])
	other := ts.dial()
	// use has a client use whole what it may send, and says what it may send then.
	use := func(channel uint32, window, next int) (reserves uint64) {
		t.Helper()
		left := window - len("reserve\r\n")
		s.say(input(channel, "reserve\r\n"))
		for ; left > 0; left -= min(left, trunk.MaxData) {
			p := []byte(strings.Repeat("x", min(left, trunk.MaxData)))
			if left <= trunk.MaxData {
				copy(p[len(p)-2:], "\r\n")
			}
			s.say(input(channel, string(p)))
		}
		s.drained()
		id := other.put("x")
		s.expect(credit(channel, next))
		s.expectReplies(channel, reserved(id, "x")+"BAD_FORMAT\r\n")
		s.drained()
		return id
	}
	s.say(opens(1, 1), opens(2, 2))
	one := use(1, trunk.FirstCredit, 2*trunk.FirstCredit)
	two := use(1, 2*trunk.FirstCredit, 4*trunk.FirstCredit) // which is all that there is
	use(2, trunk.FirstCredit, trunk.FirstCredit)
	s.say(bare(trunk.KindClose, 1))
	s.expect(endOf(1, 3*trunk.FirstCredit))
	ts.until("the first has gone", func() bool { return ts.gatewayMemory.Load() == 0 })
	for _, id := range []uint64{one, two} { // which it has given back
		other.do(fmt.Sprintf("delete %d\r\n", id), "DELETED\r\n")
	}
	use(2, trunk.FirstCredit, 2*trunk.FirstCredit)
}

// A gateway that says what no gateway says loses its trunk.
func TestAGatewayThatBreaksTheRulesLosesItsTrunk(t *testing.T) {
	t.Parallel()
	other := trunk.OpenOf(session(1)+1<<(64-journal.NumberBits), testClient)
	full := input(1, "reserve\r\n"+strings.Repeat("x", trunk.FirstCredit-len("reserve\r\n")))
	for what, items := range map[string][]trunk.Item{
		"input without open":      {input(1, "x")},
		"input far away":          {input(trunk.MaxChannel, "x")},
		"close without open":      {bare(trunk.KindClose, 1)},
		"two of a number":         {opens(1, 1), opens(1, 2)},
		"a number that has ended": {opens(1, 1), input(1, "quit\r\n"), opens(1, 2)},
		"two of a session":        {opens(1, 1), opens(2, 1)},
		"an older session":        {opens(1, 2), opens(2, 1)},
		"another loop's session":  {{Kind: trunk.KindOpen, Channel: 1, Data: other.Append(nil)}},
		"no such grant":           {opensWith(1, 1, 9)},
		"too much input":          {opens(1, 1), full, input(1, "x")},
		"too much at once":        {opens(1, 1), full, credit(1, 1), input(1, strings.Repeat("x", trunk.MaxData))},
		"too much credit":         {opens(1, 1), credit(1, trunk.MaxCredit)},
		"input behind its end":    {opens(1, 1), input(1, strings.Repeat("stats\r\n", 100)), bare(trunk.KindHalfClose, 1), input(1, "x")},
		"a second half-close":     {opens(1, 1), input(1, strings.Repeat("stats\r\n", 100)), bare(trunk.KindHalfClose, 1), bare(trunk.KindHalfClose, 1)},
		"a third half-close":      {opens(1, 1), input(1, strings.Repeat("stats\r\n", 100)), endsAhead(1), bare(trunk.KindHalfClose, 1), bare(trunk.KindHalfClose, 1)},
		"more input ahead, twice": {opens(1, 1), input(1, "x"), endsAhead(1), endsAhead(1)},
		"a second close":          {opens(1, 1), bare(trunk.KindClose, 1), bare(trunk.KindClose, 1)},
		"what leaders say":        {opens(1, 1), replies(1, 0, 0, "x")},
		"an open that is none":    {{Kind: trunk.KindOpen, Channel: 1, Data: []byte("x")}},
		"a grant that is none":    {{Kind: trunk.KindGrant, Number: 1, Data: []byte{1, 9}}},
		"credit behind its close": {opens(1, 1), bare(trunk.KindClose, 1), credit(1, 1)},
	} {
		ts := serve(t, "unix", 2, hooks{})
		s := ts.script(ts.loops[0])
		p := ts.dial()
		p.send("put 0 0 9 1\r\nx\r\n")
		p.line()
		err := s.tell(append([]trunk.Item{opens(5, 1), input(5, "reserve\r\n")}, shift(items)...)...)
		if err == nil {
			t.Errorf("%s is not refused", what)
		} else if !strings.Contains(err.Error(), "channel") && !strings.Contains(err.Error(), trunk.ErrFormat.Error()) {
			t.Errorf("%s: %v", what, err)
		}
		ts.until("the clients have gone", func() bool { return ts.sum().Connections == 1 })
		p.send("reserve\r\n")
		if got := p.line(); !strings.HasPrefix(got, "RESERVED") {
			t.Errorf("%s: got %q", what, got)
		}
	}
}

// shift makes the sessions of items come behind one more.
func shift(items []trunk.Item) []trunk.Item {
	for i := range items {
		if o, err := trunk.ParseOpen(items[i].Data); items[i].Kind == trunk.KindOpen && err == nil {
			o.Session += 10
			items[i].Data = o.Append(nil)
		}
	}
	return items
}

// When a trunk has ended, nothing is executed any more for its clients, what they held is ready, and
// nothing is sent.
func TestTheEndOfATrunkEndsItsClients(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(s *trunkScript){
		"end":   func(s *trunkScript) { s.loop.call(func(l *loop) { s.end.Disconnect(0, io.EOF) }) },
		"leave": func(s *trunkScript) { s.say(bare(trunk.KindLeave, 0)) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			j := new(fakeJournal)
			j.atOnce.Store(true)
			h, executed := counting()
			ts := serveConfig(t, "unix", h, j, func(c *Config) { c.Loops = 2 })
			s := ts.script(ts.loops[0])
			w := ts.dialOn(1)
			others := ts.sum().Connections
			const n = 200
			for i := range uint32(n) {
				w.put("x")
				s.say(opens(i+1, uint64(i+1)), input(i+1, "reserve\r\nuse held\r\n"))
				s.expectReplies(i+1, reserved(uint64(i+1), "x")+"USING held\r\n")
				s.say(input(i+1, "watch held\r\nignore default\r\nreserve\r\nput 0 0 9 5\r\n"))
				s.expectReplies(i+1, "WATCHING 2\r\nWATCHING 1\r\n")
			}
			s.drained()
			if c := ts.sum().Connections; c != n+others {
				t.Errorf("there are %d connections", c)
			}
			end(s)
			before := executed.Load()
			for range n {
				w.send("reserve\r\n")
				if got := w.line(); !strings.HasPrefix(got, "RESERVED") {
					t.Fatalf("got %q", got)
				}
				w.line()
			}
			ts.until("they have gone", func() bool { return ts.sum().Connections == others })
			if more := executed.Load() - before; more != n {
				t.Errorf("%d commands were executed, want %d", more, n)
			}
			if how == "leave" {
				for range n {
					if it := s.next(); it.Kind != trunk.KindEnd {
						t.Errorf("got %s", show(it))
					}
				}
			}
			s.drained()
		})
	}
}

// A gateway that ends has all executed that has come of its clients. A reserve that waits is not answered.
func TestAGatewayThatLeavesHasWhatHasComeAnswered(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	leaves := trunk.Item{Kind: trunk.KindHalfClose, Channel: 1, Flags: trunk.Leaves}
	for n, x := range []struct {
		in, answer string
		executed   int
	}{
		{"", "", 0},
		{"list-tube-used\r\nuse", "USING default\r\n", len("list-tube-used\r\n")},
		{"reserve\r\nlist-tube-used\r\n", "", len("reserve\r\n")},
		{strings.Repeat("bogus\r\n", 2000), strings.Repeat("UNKNOWN_COMMAND\r\n", 2000), 2000 * len("bogus\r\n")},
		{strings.Repeat("bogus\r\n", 2000) + "reserve\r\n", strings.Repeat("UNKNOWN_COMMAND\r\n", 2000), 2000*len("bogus\r\n") + len("reserve\r\n")},
	} {
		s.say(opens(1, uint64(n+1)))
		if x.in != "" {
			s.say(input(1, x.in))
		}
		s.say(leaves)
		s.expectReplies(1, x.answer)
		for it := s.next(); ; it = s.next() {
			if it.Kind == trunk.KindCredit {
				continue
			}
			if want := endOf(1, x.executed); show(it) != show(want) {
				t.Fatalf("got %s, want %s", show(it), show(want))
			}
			break
		}
		s.say(bare(trunk.KindClose, 1))
		s.drained()
	}
	s.say(trunk.Item{Kind: trunk.KindPing, Number: 4})
	s.expect(trunk.Item{Kind: trunk.KindPong, Number: 4})
}

// Channels that find no room in the trunk go on in turn, each with one item at a time.
func TestChannelsTakeTurnsInATrunkThatIsFull(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	body := strings.Repeat("x", 60_000)
	id := ts.dial().put(body)
	whole := fmt.Sprintf("FOUND %d %d\r\n%s\r\n", id, len(body), body)
	peek := fmt.Sprintf("peek %d\r\n", id)
	const n = 40 // with 16 times the room
	for i := range uint32(n) {
		s.say(opens(i+1, uint64(i+1)), credit(i+1, 4*trunk.MaxData), input(i+1, peek+peek+peek))
	}
	got := make([]int, n+1)
	for done := 0; done < n; {
		it := s.next()
		if it.Kind != trunk.KindReplies {
			t.Fatalf("got %s", show(it))
		}
		if want := strings.Repeat(whole, 3)[got[it.Channel]:][:len(it.Data)]; string(it.Data) != want {
			t.Fatalf("channel %d got something else", it.Channel)
		}
		if got[it.Channel] += len(it.Data); got[it.Channel] == 3*len(whole) {
			done++
		}
		s.mu.Lock()
		relieved := s.full && s.size < relay.FewOutput
		s.full = s.full && !relieved
		s.mu.Unlock()
		if relieved {
			s.loop.call(func(l *loop) { s.end.HasRoom(l.server.now()) })
		}
		s.say(credit(it.Channel, len(it.Data)))
	}
	s.drained()
	if peak := ts.loops[0].streams.Counts.PeakOutput.Load(); peak > int64(3*len(whole)) {
		t.Errorf("%d bytes were kept for one of them", peak)
	}
}

// narrow is a trunk with little room for what is large, whose items are counted.
type narrow struct {
	left  int
	items []string
}

func (n *narrow) Room() int { return relay.MaxOutput - relay.FewOutput + n.left }

func (n *narrow) Send(it *trunk.Item) {
	n.left -= len(it.Data)
	n.items = append(n.items, fmt.Sprint(it.Kind, it.Channel, len(it.Data)))
}

// Who waits for room gets one item's at a time, in turn.
func TestRoomInATrunkIsGivenInTurn(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	ts.dial().put(strings.Repeat("x", 60_000))
	out := new(narrow)
	var e *leaderEnd
	ts.onLoops(func(l *loop) {
		e = newLeaderEnd(l, out, "gateway", testNumber)
		for n := range uint32(3) {
			for _, it := range []trunk.Item{opens(n+1, uint64(n+1)), credit(n+1, 1<<19), input(n+1, "peek 1\r\n")} {
				if err := e.TakeItem(l.server.now(), &it); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 2 {
		ts.onLoops(func(l *loop) {
			if len(out.items) > 0 {
				t.Errorf("got %v without room", out.items)
			}
		})
	}
	ts.onLoops(func(l *loop) {
		out.left = 7 * trunk.MaxData
		e.HasRoom(l.server.now())
	})
	var want []string
	for _, n := range []int{1, 2, 3, 1, 2, 3, 1} {
		want = append(want, fmt.Sprint(trunk.KindReplies, n, trunk.MaxData))
	}
	ts.until("the room is used", func() (used bool) {
		ts.onLoops(func(*loop) { used = len(out.items) >= len(want) })
		return used
	})
	ts.onLoops(func(l *loop) {
		if !slices.Equal(out.items, want) {
			t.Errorf("got %v, want %v", out.items, want)
		}
		e.Disconnect(l.server.now(), io.EOF)
	})
}

func TestAGatewaysClientIsShownWithItsAddress(t *testing.T) {
	t.Parallel()
	ts := extended(t, "unix", func(*Config) {})
	s := ts.script(ts.loops[1])
	s.say(opens(1, 4))
	c := ts.dial()
	id := fmt.Sprint(session(4))
	c.send("stats-conn " + id + "\r\n")
	own := c.data()
	for key, want := range map[string]string{"id": id, "addr": testClient.String(), "via": "gateway"} {
		if got := field(t, own, key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	c.send("list-connections\r\n")
	if list := c.data(); strings.Count(list, "via: \"gateway\"") != 1 || strings.Count(list, "- id") != 2 {
		t.Errorf("got %q", list)
	}
	c.send("stats\r\n")
	if got := c.data(); !strings.Contains(got, "\ncurrent-connections: 2\n") {
		t.Errorf("got %q", got)
	}
	job := c.put("x")
	s.say(input(1, "reserve\r\n"))
	s.expectReplies(1, reserved(job, "x"))
	c.do("kick-connection "+id+"\r\nreserve\r\n", "KICKED\r\n"+reserved(job, "x"))
	s.expect(endOf(1, len("reserve\r\n")))
	s.say(input(1, "use a\r\n"), credit(1, 1), bare(trunk.KindHalfClose, 1), bare(trunk.KindClose, 1), opens(1, 5))
	s.drained()
}

func denied(channel uint32, d trunk.Denied) trunk.Item {
	return trunk.Item{Kind: trunk.KindDenied, Channel: channel, Data: d.Append(nil)}
}

func TestAGatewaysClientMayDoWhatItsGrantSays(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	g := trunk.Grant{Name: "some", Rights: uint8(engine.RightPut)}
	for i := range 3000 {
		g.Tubes = append(g.Tubes, fmt.Sprintf("tube-%d", i))
	}
	for len(g.Tubes) > 0 {
		data, rest := g.Append(nil)
		it := trunk.Item{Kind: trunk.KindGrant, Number: 3, Data: data}
		if g.Tubes = rest; len(rest) > 0 {
			it.Flags = trunk.More
		}
		s.say(it)
	}
	s.say(opensWith(1, 1, 3), input(1, "use tube-2999\r\nput 0 0 9 1\r\nx\r\nlist-tubes\r\n"))
	s.expect(denied(1, trunk.Denied{Command: "list-tubes", Result: "UNKNOWN_COMMAND"}))
	s.expectReplies(1, "USING tube-2999\r\nINSERTED 1\r\nUNKNOWN_COMMAND\r\n")
	s.say(opensWith(2, 2, 3), input(2, "use other\r\n"))
	s.expect(denied(2, trunk.Denied{Command: "use", Tube: "other", Result: "UNKNOWN_COMMAND"}))
	s.expectReplies(2, "UNKNOWN_COMMAND\r\n")
	s.expect(endOf(2, len("use other\r\n")))
}

// What a gateway's clients reserve is on record, with where their commands end; so is their end.
func TestWhatAGatewaysClientsReserveIsOnRecord(t *testing.T) {
	t.Parallel()
	j := &holdingJournal{fakeJournal: new(fakeJournal)}
	j.atOnce.Store(true)
	e, now := newJournaledEngine(t, j)
	ts := serveConfig(t, "unix", hooks{}, nil, func(c *Config) { c.Engine, c.Now, c.Journal = e, now, j })
	s := ts.script(ts.loops[0])
	p := ts.dial()
	p.put("a")
	const first, second = "list-tube-used\r\nreserve\r\n", "reserve\r\nuse b\r\n"
	s.say(opens(1, 3), input(1, first+second))
	s.expectReplies(1, "USING default\r\n"+reserved(1, "a"))
	p.put("b") // for the one that waits
	s.expectReplies(1, reserved(2, "b")+"USING b\r\n")
	s.say(bare(trunk.KindClose, 1))
	p.do("reserve\r\nreserve\r\n", reserved(1, "a")+reserved(2, "b"))
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, want := range []journal.Hold{
		{ID: 1, Session: session(3), Offset: uint64(len(first)), Reserves: 1},
		{ID: 2, Session: session(3), Offset: uint64(len(first + "reserve\r\n")), Reserves: 1},
	} {
		if len(j.holds) != 2 {
			t.Fatalf("got %+v", j.holds)
		}
		got := j.holds[i]
		got.End = 0
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if len(j.closed) != 1 || j.closed[0] != session(3) {
		t.Errorf("the sessions %v have ended", j.closed)
	}
}

// Sessions that are on record end with their engine: their clients have to know.
func TestAGatewaysClientsAreResetWithTheEngine(t *testing.T) {
	t.Parallel()
	ts, _ := serveChanging(t, "trunk", hooks{}, func(*Config) {})
	s := ts.script(ts.loops[0])
	s.say(opens(1, 1), opens(2, 2), input(2, "reserve\r\n"), opens(3, 3), input(3, "put 0 0 9 9\r\n"), opens(4, 4))
	s.say(input(4, "list-tube-used\r\n"))
	s.expect(replies(4, len("list-tube-used\r\n"), 0, "USING default\r\n"))
	ts.Hold(true)
	s.say(opens(5, 5)) // which has no session yet
	if !ts.Detach() {
		t.Fatal("a held server does not go on without its engine")
	}
	got := make(map[uint32]trunk.Item)
	for range 4 {
		it := s.next()
		got[it.Channel] = it
	}
	for n, executed := range map[uint32]int{1: 0, 2: len("reserve\r\n"), 3: 0, 4: len("list-tube-used\r\n")} {
		want := endOf(n, executed)
		want.Flags = trunk.Reset
		if show(got[n]) != show(want) {
			t.Errorf("got %s, want %s", show(got[n]), show(want))
		}
	}
	s.drained()
	ts.engine.Discard()
}

// A client that comes while nothing is executed is served afterwards, or by the next engine.
func TestAGatewaysClientThatComesDuringAHoldIsServedLater(t *testing.T) {
	t.Parallel()
	for _, detach := range []bool{false, true} {
		ts, j := serveChanging(t, "unix", hooks{}, func(*Config) {})
		s := ts.script(ts.loops[0])
		ts.Hold(true)
		s.say(opens(1, 1), input(1, "use a\r\n"), input(1, "use b\r\n"))
		s.say(opens(2, 2), input(2, "reserve\r\n"), bare(trunk.KindHalfClose, 2))
		s.say(opens(3, 3), bare(trunk.KindClose, 3), opens(4, 4), bare(trunk.KindHalfClose, 4), opens(5, 5))
		if detach {
			e, now := ts.detach(j)
			ts.attach(e, now, j)
		} else {
			ts.Hold(false)
		}
		want := map[uint32]string{1: "USING a\r\nUSING b\r\n", 2: "TIMED_OUT\r\n", 5: "USING c\r\n"}
		s.say(input(5, "use c\r\n"))
		got := map[uint32]string{}
		ended := map[uint32]bool{}
		for len(ended) < 3 || got[1] != want[1] || got[2] != want[2] || got[5] != want[5] {
			it := s.next()
			switch it.Kind {
			case trunk.KindReplies:
				if got[it.Channel] += string(it.Data); !strings.HasPrefix(want[it.Channel], got[it.Channel]) {
					t.Fatalf("got %s", show(it))
				}
			case trunk.KindEnd:
				if ended[it.Channel] || it.Flags != 0 || it.Channel == 1 || it.Channel == 5 {
					t.Fatalf("got %s", show(it))
				}
				ended[it.Channel] = true
			}
		}
		s.drained()
	}
}

// The smallest that a channel takes is what an idle client costs the leader.
func TestAnIdleChannelIsSmall(t *testing.T) {
	if !alone(t) {
		return
	}
	const n = 5000
	ts := serve(t, "unix", 1, hooks{})
	s := ts.script(ts.loops[0])
	s.say(opens(n+1, 1), input(n+1, "use a\r\n"))
	s.expectReplies(n+1, "USING a\r\n")
	items := make([]trunk.Item, n)
	for i := range items {
		items[i] = opens(uint32(i+1), uint64(i+2))
	}
	before := liveBytes()
	s.say(items...)
	if each := (liveBytes() - before) / n; each > 500 || each < 100 { // below that, the heap was not measured
		t.Errorf("an idle channel takes %d bytes", each)
	}
	runtime.KeepAlive(items)
}

// alone runs a test once more in a process of its own, where no test that ended before it still gives
// memory back, and says whether this is that process.
func alone(t *testing.T) bool {
	t.Helper()
	const env = "REACTOR_TEST_ALONE"
	if os.Getenv(env) == t.Name() {
		return true
	}
	c := exec.Command(os.Args[0], "-test.v", "-test.count=1", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), env+"="+t.Name())
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// Whatever a gateway says, it loses its trunk at worst, and nobody else notices.
func TestALeaderTakesWhateverAGatewaySays(t *testing.T) {
	t.Parallel()
	r := serveRecording(t, 3, hooks{})
	ts := r.testServer
	c := ts.dial()
	commands := []string{
		"use a\r\n", "reserve\r\n", "reserve-with-timeout 0\r\n", "put 0 0 9 3\r\nab", "c\r\n", "put 0 0 9 20000\r\n",
		strings.Repeat("y", 9000), "quit\r\n", "list-connections\r\n", "peek 1\r\n", "watch b\r\nignore b\r\n", "kick-connection " + fmt.Sprint(session(1)) + "\r\n", "delete 1\r\n", "list-tu",
	}
	for range some(200) {
		s := r.gateway(ts.loops[rand.IntN(len(ts.loops))])
		s.end.Speak(trunk.Version - uint16(rand.IntN(2)))
		last := uint64(0)
		held := false
		var err error
		for i := 0; i < 300 && err == nil; i++ {
			it := trunk.Item{Channel: 1 + rand.Uint32N(6)}
			switch rand.IntN(16) {
			case 12:
				last += rand.Uint64N(2)
				it = resumesAs(it.Channel, last-rand.Uint64N(min(3, last+1)), func(x *trunk.Resume) {
					x.Answered, x.Unanswered = rand.Uint64N(1<<rand.IntN(60)), rand.IntN(2) > 0
					x.Age = time.Duration(rand.IntN(3)) * time.Second
					if x.Unanswered {
						x.Partial = rand.Uint32N(20)
					}
				})
				if rand.IntN(5) == 0 {
					it.Flags = trunk.More
				}
			case 13:
				x := journal.Effect{Session: session(1), Offset: 1 + rand.Uint64N(1<<rand.IntN(60)), ID: 1 + rand.Uint64N(3), Kind: journal.EffectKind(3 + rand.IntN(3))}
				it = effectsAre(it.Channel, x)
				it.Flags = uint8(rand.IntN(2))
			case 14:
				it = bare([]trunk.Kind{trunk.KindPing, trunk.KindAttached, trunk.KindLeave}[min(2, rand.IntN(30)/14)], 0)
			case 15:
				if held = !held; rand.IntN(5) == 0 {
					ts.Hold(held)
				} else {
					held = !held
				}
				continue
			case 0, 1:
				last += 1 + rand.Uint64N(2)
				it = opens(it.Channel, last)
				if rand.IntN(3) > 0 && s.channelIsOpen(it.Channel) {
					continue
				}
			case 2:
				it.Kind, it.Number = trunk.KindCredit, 1+rand.Uint32N(20000)
			case 3:
				it.Kind, it.Flags = trunk.KindHalfClose, uint8(rand.IntN(4))
			case 4, 5:
				it.Kind = trunk.KindClose
			default:
				it = input(it.Channel, commands[rand.IntN(len(commands))])
			}
			if it.Kind != trunk.KindOpen && it.Kind != trunk.KindResume && it.Channel > 0 && !s.channelIsOpen(it.Channel) && rand.IntN(20) > 0 {
				continue
			}
			err = s.tell(it)
			if i%50 == 0 && !held {
				c.do("use c\r\n", "USING c\r\n")
			}
		}
		if held {
			ts.Hold(false)
		}
		if err == nil {
			s.loop.call(func(l *loop) { s.end.Disconnect(0, io.EOF) })
		}
		r.untilAbsent()
		ts.engine.CloseAbsent(testNumber)
		r.untilAbsent()
	}
	ts.until("all have gone", func() bool { return ts.sum().Connections == 1 })
	if n := ts.sum().Panics; n != 0 {
		t.Errorf("%d commands have panicked", n)
	}
}

// channelIsOpen reports whether the gateway has not closed a channel.
func (s *trunkScript) channelIsOpen(n uint32) (is bool) {
	done := make(chan struct{})
	s.loop.call(func(*loop) {
		all := s.end.Channels()
		is = n < uint32(len(all)) && all[n] != nil
		close(done)
	})
	<-done
	return is
}

// A command over a channel allocates nothing.
func BenchmarkChannel(b *testing.B) {
	for _, pipelined := range []int{1, 32} {
		b.Run(fmt.Sprint(pipelined), func(b *testing.B) {
			c, _ := lone(b)
			l := c.loop
			out := new(sink)
			e := newLeaderEnd(l, out, "gateway", testNumber)
			now := l.server.now
			it := opens(1, 1)
			if err := e.TakeItem(now(), &it); err != nil {
				b.Fatal(err)
			}
			in := input(1, strings.Repeat("list-tube-used\r\n", pipelined))
			more := credit(1, len("USING default\r\n")*pipelined)
			b.ReportAllocs()
			for b.Loop() {
				t := now()
				l.Round(false)
				if err := e.TakeItem(t, &in); err != nil {
					b.Fatal(err)
				}
				if err := e.TakeItem(t, &more); err != nil {
					b.Fatal(err)
				}
				l.serve(t)
			}
			e.Disconnect(now(), io.EOF)
			l.Round(false)
			l.serve(now())
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pipelined), "ns/command")
		})
	}
}

// sink is a trunk that takes everything.
type sink struct{ bytes int }

func (s *sink) Send(it *trunk.Item) { s.bytes += len(it.Data) }
func (s *sink) Room() int           { return 1 << 20 }

// acceptTest has the server accept a trunk, and returns the gateway's side of it.
func (ts *testServer) acceptTest(change func(*TrunkConn)) *trunkPeer {
	ts.t.Helper()
	there, here := tcpPair(ts.t)
	c := TrunkConn{Conn: here, Peer: "b", Number: testNumber}
	change(&c)
	if err := ts.AcceptTrunk(c); err != nil {
		ts.t.Fatal(err)
	}
	return &trunkPeer{Conn: there, t: ts.t, reader: trunk.NewReader(trunk.Leader)}
}

// A trunk is what the leader's end needs of one, from its welcome to its end.
func TestAGatewayIsServedOverAConnection(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(ts *testServer, p *trunkPeer){
		"it closes": func(_ *testServer, p *trunkPeer) { p.Close() },
		"misuse":    func(_ *testServer, p *trunkPeer) { p.send(p.frames(bare(trunk.KindClose, 9))) },
		"shutdown":  func(ts *testServer, _ *trunkPeer) { _ = ts.Shutdown(ts.t.Context()) },
		"abort":     func(ts *testServer, _ *trunkPeer) { ts.Abort() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ts := serveConfig(t, "unix", hooks{}, nil, func(c *Config) { c.Loops, c.Extensions = 2, true })
			p := ts.acceptTest(func(*TrunkConn) {})
			it, err := p.read()
			if err != nil {
				t.Fatal(err)
			}
			w, err := trunk.ParseWelcome(it.Data)
			if it.Kind != trunk.KindWelcome || err != nil || w != (trunk.Welcome{Version: 1, Extensions: true, MaxJobSize: maxJob}) {
				t.Fatalf("got %s (%v)", show(it), err)
			}
			body := strings.Repeat("b", 50_000)
			id := ts.dial().put(body)
			p.send(p.frames(opens(1, 1), credit(1, 100_000), input(1, "reserve\r\nuse a\r\n")))
			want := reserved(id, body) + "USING a\r\n"
			for got := ""; got != want; {
				if it, err = p.read(); it.Kind == trunk.KindReplies {
					got += string(it.Data)
				}
				if err != nil || !strings.HasPrefix(want, got) {
					t.Fatalf("got %s (%v)", show(it), err)
				}
			}
			end(ts, p)
			if how != "it closes" {
				_, _ = io.Copy(io.Discard, p) // until it ends, too
			}
			if how == "it closes" || how == "misuse" {
				ts.dial().do("reserve\r\n", reserved(id, body))
			}
		})
	}
}

func TestAServerWithoutAnEngineTakesNoTrunk(t *testing.T) {
	t.Parallel()
	ts, j := serveChanging(t, "unix", hooks{}, func(*Config) {})
	ts.Hold(true)
	e, now := ts.detach(j)
	here, there := net.Pipe()
	defer there.Close()
	var told error
	c := TrunkConn{Conn: here, Peer: "b", Number: testNumber, Ended: func(err error) { told = err }}
	if err := ts.AcceptTrunk(c); err != errNoEngine || told != err {
		t.Errorf("got %v, and was told %v", err, told)
	}
	if _, err := here.Write([]byte("x")); err != io.ErrClosedPipe {
		t.Errorf("the connection is open: %v", err)
	}
	ts.attach(e, now, j)
}
