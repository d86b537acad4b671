package wire

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

// behind starts two nodes: the first knows both as of entry 9, the second only itself, as
// of entry 5.
func behind(t *testing.T, s setup) []*node {
	t.Helper()
	s.timing = patient
	ns := nodesUnacquainted(t, 2, s)
	ns[0].tr.SetPeers(9, []member.Member{ns[0].self, ns[1].self})
	ns[1].tr.SetPeers(5, []member.Member{ns[1].self})
	return ns
}

func TestAMemberThatANodeHasNotHeardOfIsAnswered(t *testing.T) {
	net := newTestNetwork(1)
	t.Cleanup(net.Close)
	ns := behind(t, setup{net: net})
	for range 3 {
		asked, answered := ns[1].count(), ns[0].count()
		eventually(t, "an append arrives", func() bool {
			ns[0].tr.Send(appendOf(ns[0], ns[1], 1, 5))
			return ns[1].count() > asked
		})
		eventually(t, "a response arrives", func() bool {
			ns[1].tr.Send(message(raftpb.MsgAppResp, ns[1], ns[0]))
			return ns[0].count() > answered
		})
		net.Reset("n1", "n2")
	}
}

func TestAMemberThatANodeHasNotHeardOfSendsASnapshot(t *testing.T) {
	taken := make(chan *raftpb.Message, 1)
	ns := behind(t, setup{change: func(_ int, n *node, _ *Config) {
		n.take = func(m *raftpb.Message, r io.Reader) error {
			taken <- m
			_, err := io.Copy(io.Discard, r)
			return err
		}
	}})
	snap := message(raftpb.MsgSnap, ns[0], ns[1])
	snap.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(8)), Term: new(uint64(3))}}
	ns[0].tr.SendSnapshot(snap, func(w io.Writer, _ func() ([]byte, error)) error {
		_, err := w.Write(make([]byte, 100_000))
		return err
	})
	if !<-ns[0].sent {
		t.Fatal(ns[0].log)
	}
	<-taken
	eventually(t, "the response arrives", func() bool {
		ns[1].tr.Send(message(raftpb.MsgAppResp, ns[1], ns[0]))
		return ns[0].count() > 0
	})
}

// A node that catches up hears of older changes first, which do not name the newcomer.
func TestANewcomerStaysUntilTheMembersAreKnownAsOfItsEntry(t *testing.T) {
	ns := behind(t, setup{})
	meet(t, ns...)
	p := ns[1].tr.members.Load().peers[ns[0].self.ID]
	ns[1].tr.SetPeers(8, []member.Member{ns[1].self})
	if ns[1].tr.members.Load().peers[ns[0].self.ID] != p || p.ctx.Err() != nil {
		t.Fatal("an older list ended its connections")
	}
	ns[1].tr.SetPeers(9, []member.Member{ns[0].self, ns[1].self})
	if ns[1].tr.members.Load().peers[ns[0].self.ID] != p || p.ctx.Err() != nil {
		t.Fatal("a list that names it ended its connections")
	}
	ns[1].tr.SetPeers(12, []member.Member{ns[1].self})
	if ns[1].tr.members.Load().peers[ns[0].self.ID] != nil {
		t.Fatal("it is in a list without it")
	}
	eventually(t, "a list without it ends its connections", func() bool { return p.ctx.Err() != nil })
	eventually(t, "it is told", func() bool {
		ns[0].mu.Lock()
		defer ns[0].mu.Unlock()
		return ns[0].notMember[ns[1].self.ID] > 0
	})
}

// A newcomer that was removed meanwhile is told as soon as the node knows.
func TestANewcomerThatAListDoesNotNameIsTold(t *testing.T) {
	ns := behind(t, setup{})
	meet(t, ns...)
	ns[1].tr.SetPeers(9, []member.Member{ns[1].self})
	eventually(t, "it is told", func() bool {
		ns[0].mu.Lock()
		defer ns[0].mu.Unlock()
		return ns[0].notMember[ns[1].self.ID] > 0
	})
}

// A node that was just added dials the others before it and they have heard of it.
func TestANodeThatHasNotHeardOfItselfIsNotToldThatItWasRemoved(t *testing.T) {
	ns := nodesUnacquainted(t, 2, setup{timing: patient})
	ns[1].tr.SetPeers(5, []member.Member{ns[1].self})
	ns[0].tr.SetPeers(0, []member.Member{ns[1].self})
	ns[0].logs("has no member 0000000000000065, as far as n2 knows")
	ns[0].tr.SetPeers(6, []member.Member{ns[0].self, ns[1].self})
	meet(t, ns...)
	if ns[0].notMember[ns[1].self.ID] > 0 {
		t.Error("it was told")
	}
}

func TestNewcomersAreRefused(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, _ *node, cfg *Config) {
		if i == 0 {
			cfg.Dial = nowhere
		}
	}})
	stranger := hello{
		speaks: spoken(), purpose: purposeRest, cluster: testCluster, index: 2, to: stationOf(ns[1].self),
		from: member.Member{ID: 7, Incarnation: 8, Name: "n7", Addr: "127.0.0.1:1"},
	}
	for _, c := range []struct {
		name   string
		change func(h *hello)
		want   string
		s      status
	}{
		{"another cluster", func(h *hello) { h.cluster[0]++ }, "not to 02020300000000000000000000000000", refused},
		{"to another member", func(h *hello) { h.to.id++ }, "not 0000000000000067 in", refused},
		{"to another directory", func(h *hello) { h.to.incarnation++ }, "in incarnation 00000000000003eb", refused},
		{"a wiped member", func(h *hello) { h.from, h.from.Incarnation = ns[0].self, 5 }, "not 0000000000000005: was its directory replaced?", refused},
		{"the node itself", func(h *hello) { h.from = ns[1].self }, "has no member 0000000000000066", notMember},
		{"no later entry", func(h *hello) { h.index = 1 }, "has no member 0000000000000007", notMember},
		{"no entry", func(h *hello) { h.index, h.from.ID = 0, 9 }, "has no member 0000000000000009", refused},
		{"no id", func(h *hello) { h.from.ID = 0 }, "without an id", refused},
		{"no incarnation", func(h *hello) { h.from.ID, h.from.Incarnation = 10, 0 }, "without an incarnation", refused},
		{"no name", func(h *hello) { h.from.Name = "" }, `"" is not a node's name`, refused},
		{"no address", func(h *hello) { h.from.Addr = "here" }, `"here" is not an address`, refused},
	} {
		for _, p := range []purpose{purposeAppends, purposeRest, purposeSnapshot} {
			h := stranger
			h.purpose = p
			c.change(&h)
			conn, err := dialAs(t, ns[1], h)
			if r := (*refusal)(nil); !errors.As(err, &r) || !strings.Contains(r.reason, c.want) || r.status != c.s {
				t.Errorf("%s, %s: %v, want %q", c.name, p, err, c.want)
			}
			ended(t, conn)
		}
	}
	if n := len(ns[1].tr.members.Load().peers); n != 1 {
		t.Errorf("%d peers", n)
	}
	// One that is taken is held to what it has said.
	if _, err := dialAs(t, ns[1], stranger); err != nil {
		t.Fatal(err)
	}
	wiped := stranger
	wiped.from.Incarnation++
	wiped.index++
	if _, err := dialAs(t, ns[1], wiped); err == nil || !strings.Contains(err.Error(), "was its directory replaced?") {
		t.Errorf("in another incarnation: %v", err)
	}
	c, err := dialAs(t, ns[1], stranger)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(encodeFrame(kindMessage, encodeMessage(t, message(raftpb.MsgVote, ns[0], ns[1])))); err != nil {
		t.Fatal(err)
	}
	ended(t, c)
	ns[1].logs("on a connection from 0000000000000007")
}

func TestNewcomersAreBounded(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient})
	come := func(i int) error {
		_, err := dialAs(t, ns[1], hello{
			speaks: spoken(), purpose: purposeRest, cluster: testCluster, index: uint64(i + 2), to: stationOf(ns[1].self),
			from: member.Member{ID: member.ID(1000 + i), Incarnation: 1, Name: "n7", Addr: "127.0.0.1:1"},
		})
		return err
	}
	for i := range maxNewcomers + 5 {
		if err := come(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := come(4); err == nil || !strings.Contains(err.Error(), "are all that it takes") {
		t.Errorf("one that knows less than all others: %v", err)
	}
	peers := ns[1].tr.members.Load().peers
	if len(peers) != maxNewcomers+1 || peers[1004] != nil || peers[1005] == nil || peers[ns[0].self.ID] == nil {
		t.Errorf("%d peers", len(peers))
	}
}
