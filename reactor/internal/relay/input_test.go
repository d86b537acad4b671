package relay

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"trellis/reactor/internal/trunk"
)

// What is kept is what was sent and is not answered.
func TestAGatewayKeepsWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.connect(welcome(1, 0))
	c := g.client("c")
	f := c.client
	r := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 4<<20)
	for i := range sent {
		sent[i] = byte(r.Uint32())
	}
	crossed := 0 // answers to the first of several chunks, but not to all of them
	for answered, n := 0, 0; n < len(sent); {
		more := min(1+r.IntN(1<<r.IntN(15)), len(sent)-n)
		f.quota, f.credit = trunk.FirstCredit, trunk.FirstCredit
		c.send(string(sent[n : n+more]))
		g.run()
		n += more
		if slow := n/(256<<10)%2 > 0; !slow && r.IntN(3) > 0 || slow && r.IntN(50) == 0 {
			answered += r.IntN(n - answered + 1)
			if r.IntN(2) > 0 {
				answered = n
			}
			before := 0
			if f.input != nil {
				before = len(f.input.chunks)
			}
			if g.tell(replies(1, answered, 0, "x")); f.input != nil && len(f.input.chunks) < before {
				crossed++
			}
		}
		switch k := f.input; {
		case f.sent != uint64(n) || f.answered != uint64(answered):
			t.Fatalf("%d bytes were sent and %d answered, want %d and %d", f.sent, f.answered, n, answered)
		case k == nil && n > answered || k != nil && !bytes.Equal(k.bytes(), sent[answered:n]):
			t.Fatalf("something else is kept of the bytes from %d to %d", answered, n)
		case g.taken != countedInput(n-answered):
			t.Fatalf("%d bytes are counted of %d", g.taken, n-answered)
		}
	}
	if crossed == 0 {
		t.Error("no answer went beyond a chunk")
	}
	g.tell(replies(1, len(sent), 0, "x"))
	if unused := g.memory.inputs; f.input != nil || len(unused) != 1 || len(unused[0].chunks) > 0 || g.taken != 0 {
		t.Errorf("an idle client keeps %+v", f.input)
	}
	for i, list := range g.memory.chunks {
		if len(list) > maxUnusedChunks/chunkSizes[i] {
			t.Errorf("%d chunks of %d bytes are kept", len(list), chunkSizes[i])
		}
	}
}

// Where there is no room for what a client has sent, it is not kept, until all of that is answered.
func TestAGatewayForgetsWhatItHasNoRoomFor(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.most = 100
	g.connect(welcome(1, 0))
	one, two := g.client("a"), g.client("b")
	a, b := one.client, two.client
	big := strings.Repeat("x", freeInput)
	send := func(f *Client, p string) {
		f.quota = int32(len(p))
		g.send(f, []byte(p))
	}
	send(a, big+strings.Repeat("y", 100))
	send(b, big)
	if a.input == nil || b.input == nil || g.taken != 100 {
		t.Errorf("%d bytes are counted", g.taken)
	}
	send(b, "z")
	if b.input != nil || b.unresumable != freeInput+1 || a.unresumable != 0 {
		t.Errorf("bytes of %d and %d are lost", a.unresumable, b.unresumable)
	}
	send(b, "more")
	if string(b.input.bytes()) != "more" {
		t.Errorf("%q is kept", b.input.bytes())
	}
	g.tell(replies(2, freeInput, 0, "x"))
	if string(b.input.bytes()) != "more" || b.answered >= b.unresumable {
		t.Errorf("%q is kept, and %d bytes of %d are answered", b.input.bytes(), b.answered, b.unresumable)
	}
	g.tell(replies(2, freeInput+3, 0, "x"))
	if string(b.input.bytes()) != "re" || b.answered < b.unresumable {
		t.Errorf("%q is kept, and %d bytes of %d are answered", b.input.bytes(), b.answered, b.unresumable)
	}
	one.leave()
	if g.taken != 0 {
		t.Errorf("%d bytes are counted", g.taken)
	}
}

// How much the client has of the answer to what is not answered is known, unless it follows another one in an item.
func TestAGatewayKnowsHowMuchOfAnAnswerHasCome(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.connect(welcome(1, 0))
	f := g.client("c").client
	g.send(f, []byte(strings.Repeat("c", 100)))
	for _, x := range []struct {
		item    trunk.Item
		partial uint32
	}{
		{replies(1, 10, 0, "whole"), 0},
		{replies(1, 10, trunk.More, "parted"), 6},
		{replies(1, 10, trunk.More, "again"), 11},
		{replies(1, 20, 0, "end"), 0},
		{replies(1, 20, trunk.More, "one of several"), 14},
		{replies(1, 30, trunk.More, "end, and more"), unknownPartial},
		{replies(1, 30, trunk.More, "more"), unknownPartial},
		{replies(1, 40, 0, "end"), 0},
	} {
		g.tell(x.item)
		if f.partial != x.partial {
			t.Errorf("behind %s, %d bytes have come", show(x.item), f.partial)
		}
	}
}

// What a client has no answer to comes before what it has sent since, when its trunk has ended.
func TestWhatAGatewayHasKeptIsSentAgainInOrder(t *testing.T) {
	t.Parallel()
	for _, answered := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2*chunkSize + 1, 3*chunkSize - 1} {
		g := newRig(t)
		g.connect(welcome(1, 0))
		c := g.client("c")
		f := c.client
		sent := make([]byte, 3*chunkSize)
		for i := range sent {
			sent[i] = byte(i*i>>8 + i)
		}
		for at := 0; at < len(sent); at += 1 << 10 {
			f.quota = 1 << 10
			g.send(f, sent[at:at+1<<10])
		}
		if len(f.input.chunks) < 3 {
			t.Fatalf("%d bytes lie in %d chunks", len(sent), len(f.input.chunks))
		}
		if answered > 0 {
			g.tell(replies(1, answered, 0, "x"))
		}
		c.input = []byte("since")
		if !g.rewind(f) || f.input != nil || f.sent != uint64(answered) || f.unanswered() != len(sent)-answered {
			t.Fatalf("%d bytes were sent, and %d are not answered", f.sent, f.unanswered())
		}
		if !bytes.Equal(c.input, append(sent[answered:], "since"...)) {
			t.Errorf("something else is sent again behind %d bytes", answered)
		}
		if g.taken != 0 {
			t.Errorf("%d bytes are counted as kept", g.taken)
		}
	}
}
