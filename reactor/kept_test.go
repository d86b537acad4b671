package reactor

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"trellis/reactor/internal/trunk"
)

// tell has the gateway take what the leader says.
func (g *loneGateway) tell(items ...trunk.Item) {
	g.t.Helper()
	for i := range items {
		if err := g.take(g.loop.server.now(), &items[i]); err != nil {
			g.t.Fatal(err)
		}
	}
}

// What is kept is what was sent and is not answered.
func TestAGatewayKeepsWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	g := newLoneGateway(t, 1)
	l, c, f, now := g.loop, g.conns[0], g.channels[1], g.loop.server.now()
	r := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 4<<20)
	for i := range sent {
		sent[i] = byte(r.Uint32())
	}
	buf := make([]byte, 64<<10)
	crossed := 0 // answers to the first of several chunks, but not to all of them
	for answered, n := 0, 0; n < len(sent); {
		more := min(1+r.IntN(1<<r.IntN(15)), len(sent)-n)
		l.Round(false)
		f.room, f.credit = trunk.FirstCredit, trunk.FirstCredit
		c.traffic(now, sent[n:n+more])
		l.serve(now)
		l.EndRound()
		drain(g.leader, buf)
		n += more
		if slow := n/(256<<10)%2 > 0; !slow && r.IntN(3) > 0 || slow && r.IntN(50) == 0 {
			answered += r.IntN(n - answered + 1)
			if r.IntN(2) > 0 {
				answered = n
			}
			before := 0
			if f.kept != nil {
				before = len(f.kept.chunks)
			}
			if g.tell(replies(1, answered, 0, "x")); f.kept != nil && len(f.kept.chunks) < before {
				crossed++
			}
		}
		drain(g.clients[0], buf)
		switch k := f.kept; {
		case f.sent != uint64(n) || f.answered != uint64(answered):
			t.Fatalf("%d bytes were sent and %d answered, want %d and %d", f.sent, f.answered, n, answered)
		case k == nil && n > answered || k != nil && !bytes.Equal(k.bytes(), sent[answered:n]):
			t.Fatalf("something else is kept of the bytes from %d to %d", answered, n)
		case l.server.widened.Load() != beyond(n-answered):
			t.Fatalf("%d bytes are counted of %d", l.server.widened.Load(), n-answered)
		}
	}
	if crossed == 0 {
		t.Error("no answer went beyond a chunk")
	}
	g.tell(replies(1, len(sent), 0, "x"))
	if f.kept != nil || len(g.unkept) != 1 || len(g.unkept[0].chunks) > 0 || l.server.widened.Load() != 0 {
		t.Errorf("an idle client keeps %+v", f.kept)
	}
}

// Where there is no room for what a client has sent, it is not kept, until all of that is answered.
func TestAGatewayForgetsWhatItHasNoRoomFor(t *testing.T) {
	t.Parallel()
	g := newLoneGateway(t, 2)
	s := g.loop.server
	s.cfg.GatewayMemory = 100
	a, b := g.channels[1], g.channels[2]
	big := strings.Repeat("x", freeKept)
	send := func(f *forward, p string) {
		f.room = len(p)
		f.send([]byte(p))
	}
	send(a, big+strings.Repeat("y", 100))
	send(b, big)
	if a.kept == nil || b.kept == nil || s.widened.Load() != 100 {
		t.Errorf("%d bytes are counted", s.widened.Load())
	}
	send(b, "z")
	if b.kept != nil || b.lost != freeKept+1 || a.lost != 0 {
		t.Errorf("bytes of %d and %d are lost", a.lost, b.lost)
	}
	send(b, "more")
	if string(b.kept.bytes()) != "more" {
		t.Errorf("%q is kept", b.kept.bytes())
	}
	g.tell(replies(2, freeKept, 0, "x"))
	if string(b.kept.bytes()) != "more" || b.answered >= b.lost {
		t.Errorf("%q is kept, and %d bytes of %d are answered", b.kept.bytes(), b.answered, b.lost)
	}
	g.tell(replies(2, freeKept+3, 0, "x"))
	if string(b.kept.bytes()) != "re" || b.answered < b.lost {
		t.Errorf("%q is kept, and %d bytes of %d are answered", b.kept.bytes(), b.answered, b.lost)
	}
	a.conn.end(s.now())
	if n := s.widened.Load(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
}

// How much the client has of the answer to what is not answered is known, unless it follows another one in an item.
func TestAGatewayKnowsHowMuchOfAnAnswerHasCome(t *testing.T) {
	t.Parallel()
	g := newLoneGateway(t, 1)
	f := g.channels[1]
	f.room = 100
	f.send([]byte(strings.Repeat("c", 100)))
	for _, x := range []struct {
		item    trunk.Item
		partial uint32
		mixed   bool
	}{
		{replies(1, 10, 0, "whole"), 0, false},
		{replies(1, 10, trunk.More, "parted"), 6, false},
		{replies(1, 10, trunk.More, "again"), 11, false},
		{replies(1, 20, 0, "end"), 0, false},
		{replies(1, 20, trunk.More, "one of several"), 14, false},
		{replies(1, 30, trunk.More, "end, and more"), 0, true},
		{replies(1, 30, trunk.More, "more"), 4, true},
		{replies(1, 40, 0, "end"), 0, false},
	} {
		g.tell(x.item)
		if f.partial != x.partial || f.mixed != x.mixed {
			t.Errorf("behind %s, %d bytes have come, mixed %v", show(x.item), f.partial, f.mixed)
		}
	}
}

// What a client has no answer to comes before what it has sent since, when its trunk has ended.
func TestWhatAGatewayHasKeptIsSentAgainInOrder(t *testing.T) {
	t.Parallel()
	for _, answered := range []int{0, 1, keptChunk - 1, keptChunk, keptChunk + 1, 2*keptChunk + 1, 3*keptChunk - 1} {
		g := newLoneGateway(t, 1)
		f, n := g.channels[1], &g.loop.counts
		sent := make([]byte, 3*keptChunk)
		for i := range sent {
			sent[i] = byte(i*i>>8 + i)
		}
		for at := 0; at < len(sent); at += 1 << 10 {
			f.room = 1 << 10
			f.send(sent[at : at+1<<10])
		}
		if len(f.kept.chunks) < 3 {
			t.Fatalf("%d bytes lie in %d chunks", len(sent), len(f.kept.chunks))
		}
		if answered > 0 {
			g.tell(replies(1, answered, 0, "x"))
		}
		x := f.conn.backlog()
		x.in.add([]byte("since"), n)
		if !f.pause() || f.kept != nil || f.sent != uint64(answered) || f.unanswered != len(sent)-answered {
			t.Fatalf("%d bytes were sent, and %d are not answered", f.sent, f.unanswered)
		}
		if !bytes.Equal(x.in.bytes(), append(sent[answered:], "since"...)) {
			t.Errorf("something else is sent again behind %d bytes", answered)
		}
		if got := g.loop.server.widened.Load(); got != 0 {
			t.Errorf("%d bytes are counted as kept", got)
		}
	}
}
