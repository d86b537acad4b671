package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// sleeper is a loop that nobody has to wake.
type sleeper struct{}

func (sleeper) Wake()             {}
func (sleeper) Alarm(engine.Time) {}

// wanting is a client of a gateway, and its session at the leader.
type wanting struct {
	*testConn
	session engine.Session
}

// What a gateway knows of its clients' tubes is what the leader's engine has.
func TestAGatewayKnowsWhatItsClientsHaveAskedFor(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.connect(welcome(1, 0))
	e := engine.New(engine.Config{MaxJobSize: maxJob, Limits: engine.Limits{Watched: 5}})
	l := e.NewLoop(sleeper{})
	clients := make([]wanting, 3)
	for i := range clients {
		w := &clients[i]
		w.testConn = g.client(fmt.Sprint(i))
		l.Open(&w.session, 1)
	}
	r := rand.New(rand.NewPCG(3, 4))
	said := 0
	for i := range 5000 {
		w := &clients[r.IntN(3)]
		cmd := codec.Command{Op: codec.OpUse, Tube: fmt.Append(nil, "t", r.IntN(8))}
		it := trunk.Item{Kind: trunk.KindState, Channel: w.client.channel, Flags: trunk.Uses, Data: cmd.Tube}
		switch r.IntN(8) {
		case 0:
		case 1, 2, 3:
			cmd.Op, it.Flags = codec.OpWatch, trunk.Watches
			if cmd.Weight = uint32(1 + r.IntN(3)); cmd.Weight > 1 {
				it.Number = cmd.Weight
			}
		case 4, 5, 6:
			cmd.Op, it.Flags = codec.OpIgnore, trunk.Ignores
		case 7:
			cmd = codec.Command{Op: codec.OpReserveMode, Mode: codec.FIFO + codec.Mode(r.IntN(4)), Info: r.IntN(2) > 0, Abort: r.IntN(2) > 0}
			it.Flags, it.Number, it.Data = trunk.Chooses, trunk.Choice(cmd.Mode, cmd.Info, cmd.Abort), nil
		}
		var out engine.Output
		w.session.Execute(1, &cmd, &out)
		if bytes.HasPrefix(out.Buf, []byte("USING ")) || bytes.HasPrefix(out.Buf, []byte("WATCHING ")) {
			g.tell(it)
			said++
		}
		if i%5 == 0 { // several clients may have states that wait
			for i := range clients {
				g.tell(replies(clients[i].client.channel, 0, 0, "x"))
				clients[i].client.credit = trunk.FirstCredit
			}
			for i := range clients {
				want, got := clients[i].session.Interests(), clients[i].client.interests()
				if got.Mode == codec.Default {
					got.Mode = codec.FIFO
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("client %d has asked for %+v, want %+v", i, got, want)
				}
			}
		}
	}
	if said < 2500 || len(g.names.all) > 9 {
		t.Errorf("%d commands were done, and there are %d names", said, len(g.names.all))
	}
	x, f := clients[0].client.interests(), clients[1].client
	g.dropWants(f)
	g.setInterests(f, x)
	if got := f.interests(); !reflect.DeepEqual(got, x) {
		t.Errorf("%+v became %+v", x, got)
	}
	for _, c := range g.conns {
		c.leave()
	}
	g.dropStates()
	if g.names.unused != len(g.names.all) {
		t.Errorf("%d names of %d are not used", g.names.unused, len(g.names.all))
	}
}

// What is said before replies that do not come does not count.
func TestStatesCountWithTheRepliesBehindThem(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.connect(welcome(1, 0))
	f := g.client("a").client
	g.client("b")
	g.tell(says(1, trunk.Uses, "a"), replies(2, 0, 0, "x"))
	if got := f.interests().Used; got != "default" || len(g.link.states) != 1 {
		t.Errorf("it uses %s, and %d states wait", got, len(g.link.states))
	}
	g.tell(replies(1, 0, 0, "x"))
	if got := f.interests().Used; got != "a" || len(g.link.states) != 0 {
		t.Errorf("it uses %s, and %d states wait", got, len(g.link.states))
	}
	g.tell(says(1, trunk.Uses, "b"))
	g.dropStates()
	g.tell(replies(1, 0, 0, "x"))
	if got := f.interests().Used; got != "a" || g.names.unused != 1 {
		t.Errorf("it uses %s, and %d names are not used", got, g.names.unused)
	}
	it := says(1, trunk.Uses, "c")
	for range maxStates {
		g.tell(it)
	}
	if _, err := g.Item(0, &it); err != errStates {
		t.Errorf("one more: %v", err)
	}
}

// What is said of clients that have gone, before it was known here or there, is not kept until the trunk ends.
func TestStatesOfClientsThatHaveGoneAreForgotten(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		g := newRig(t)
		g.connect(welcome(1, 0))
		for i := range 3 {
			c := g.client("c")
			c.send("use a\r\n")
			uses := says(1, trunk.Uses, fmt.Sprintf("a%d", i))
			if before {
				g.tell(uses)
			}
			c.leave()
			if !before {
				g.tell(uses)
			}
			g.tell(replies(1, 7, 0, "USING a\r\n"), trunk.Item{Kind: trunk.KindEnd, Channel: 1, Number: 7})
			if len(g.link.free) != 1 {
				t.Fatalf("%d channels are free", len(g.link.free))
			}
		}
		if n := len(g.link.states); n != 0 || g.names.unused != len(g.names.all) {
			t.Errorf("%d states are kept, and %d of %d names are not used", n, g.names.unused, len(g.names.all))
		}
	}
}

// Names that nobody uses any more are forgotten in time.
func TestNamesOfTubesAreForgotten(t *testing.T) {
	t.Parallel()
	var names tubeNames
	kept := names.get([]byte("kept"))
	for i := range 10 * maxUnused {
		names.drop(names.get(fmt.Append(nil, i)))
	}
	if n := len(names.all); n > maxUnused+1 || names.all["kept"] != kept || names.get([]byte("kept")) != kept {
		t.Errorf("%d names are kept", n)
	}
}
