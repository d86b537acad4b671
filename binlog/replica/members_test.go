package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/replica/wire/wiretest"
)

// within is a context for what has to happen.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// grow adds a machine with a node that belongs to the cluster and has nothing.
func (c *cluster) grow() (*peer, member.Member) {
	c.t.Helper()
	id := member.ID(len(c.nodes) + 1)
	m := member.Member{ID: id, Incarnation: 1, Name: fmt.Sprintf("n%d", id), Addr: fmt.Sprintf("127.0.0.1:%d", id)}
	if c.wires != nil {
		m.Addr = wiretest.ReservedAddr(c.t)
	}
	p := c.addPeer(m, snapshot.Meta{})
	if err := c.start(p); err != nil {
		c.t.Fatal(err)
	}
	return p, m
}

// lead executes something on the node that serves, again while the leadership changes, and while
// real connections are not there yet.
func (c *cluster) lead(what string, do func(n *Node) error) {
	c.t.Helper()
	var last error
	c.eventually(what, func() bool {
		n := c.leader().running()
		if n == nil {
			return false
		}
		last = do(n)
		if last != nil && !errors.Is(last, ErrNotLeader) && !errors.Is(last, ErrClosed) {
			if c.wires == nil {
				c.t.Fatalf("%s: %v", what, last)
			}
			c.t.Logf("%s: %v", what, last)
		}
		return last == nil
	})
}

// handOver asks who leads to hand over to a member, or, with 0, to any. That may fail.
func (c *cluster) handOver(to member.ID) {
	c.t.Helper()
	if n := c.leader().running(); n != nil {
		ctx, cancel := context.WithTimeout(c.t.Context(), waitTime)
		defer cancel()
		_ = n.Transfer(ctx, to)
	}
}

func TestAClusterOfOneGrowsToThreeAndShrinksAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	ctx := within(t)
	for range 50 {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
	}
	for range 2 {
		_, m := c.grow()
		c.lead("add", func(n *Node) error { return n.Add(ctx, m) })
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
	}
	before := c.settled()
	for _, p := range c.nodes {
		s := p.running().Status()
		if len(s.Members) != 3 || !s.Members[0].Voter || !s.Members[1].Voter || !s.Members[2].Voter {
			t.Errorf("%s: %+v", p.name, s.Members)
		}
	}
	first := c.nodes[0]
	c.lead("remove", func(n *Node) error { return n.Remove(ctx, first.id) })
	c.eventually("the node that was removed ends", func() bool {
		err, ended := first.end()
		return ended && errors.Is(err, ErrRemoved)
	})
	c.net.set(func() { c.nodes = c.nodes[1:] })
	if after := c.settled(); after != before {
		t.Errorf("%v after, %v before", after, before)
	}
}

// The snapshot that a new member gets waits for no entry but those that there are.
func TestANodeIsAddedToAClusterInWhichNothingWasDone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	_, m := c.grow()
	c.lead("add", func(n *Node) error { return n.Add(within(t), m) })
	if d := c.settled(); d.Jobs != 0 {
		t.Errorf("%d jobs", d.Jobs)
	}
}

func TestANodeWithANameOrAddressOfAMembersIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	before := c.settled()
	for what, change := range map[string]func(m *member.Member){
		"the name":                 func(m *member.Member) { m.ID, m.Addr = 9, "127.0.0.1:9" },
		"the address":              func(m *member.Member) { m.ID, m.Name = 9, "n9" },
		"the id":                   func(m *member.Member) { m.Name, m.Addr = "n9", "127.0.0.1:9" },
		"all but the incarnation":  func(m *member.Member) { m.Incarnation++ },
		"the name and the address": func(m *member.Member) { m.ID = 9 },
	} {
		c.lead(what, func(n *Node) error {
			m := n.applier.applied().Members[0]
			change(&m)
			switch err := n.Add(within(t), m); {
			case errors.Is(err, ErrNotLeader), errors.Is(err, ErrClosed):
				return err
			case err == nil || !strings.Contains(err.Error(), "is a member already") || strings.Contains(err.Error(), "\n"):
				t.Errorf("%s of a member's: %v", what, err)
			}
			return nil
		})
	}
	if after := c.settled(); after != before {
		t.Errorf("%v, and before %v", after, before)
	}
	for _, p := range c.nodes {
		if ms := p.running().Status().Members; len(ms) != 3 {
			t.Errorf("%s has the members %+v", p.name, ms)
		}
	}
}

// A snapshot that was taken before the member was removed has it as one, and is not for it.
func TestAMemberThatWasRemovedUnheardIsAddedAgainUnderItsID(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	ctx := within(t)
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	l := c.leader().running()
	p, m := c.grow()
	c.net.isolate(p, true)
	if err := l.Add(ctx, m); err == nil || !strings.Contains(err.Error(), "it does not answer") {
		t.Fatalf("a node that nobody reaches was added: %v", err)
	}
	if _, err := l.Backup(ctx, l.Status().Applied, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !isMember(l.store.current().ConfState, uint64(p.id)) {
		t.Fatal("the snapshot lacks the member")
	}
	if err := l.Remove(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	c.net.isolate(p, false)
	if err := l.Add(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err, ended := p.end(); ended {
		t.Errorf("it has ended: %v", err)
	}
	c.settled()
}

func TestAChangeWithoutALiveMajorityIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	ctx := within(t)
	l := c.leader()
	down, up := c.others(l)[0], c.others(l)[1]
	down.kill()
	if err := l.running().Remove(ctx, up.id); err == nil || errors.Is(err, ErrNotLeader) {
		t.Errorf("one of two members that are left does not answer: %v", err)
	}
	c.lead("remove", func(n *Node) error { return n.Remove(ctx, down.id) })
	c.must(func(q *model) error { _, err := q.put(nil); return err })
}

func TestATransferLosesNothingAndLeavesNoOutcomeUnknown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	ctx := within(t)
	for range 5 {
		l := c.leader()
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		to := c.others(l)[0]
		if err := l.running().Transfer(ctx, to.id); err != nil {
			t.Fatal(err)
		}
		c.leader(to)
	}
	if d := c.settled(); d.Jobs != 5 {
		t.Errorf("%d jobs", d.Jobs)
	}
}

// The first word to the member that is to take over may be lost, or come too early for it.
func TestALeaderThatIsRemovedHandsOverAtTheSecondTry(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	l := c.leader()
	var tries atomic.Int32
	l.queue.mu.Lock()
	l.queue.onHold = func(on bool) {
		if on {
			tries.Add(1)
		}
	}
	l.queue.mu.Unlock()
	c.net.set(func() {
		c.net.filter = func(m *raftpb.Message) bool { return m.GetType() != raftpb.MsgTimeoutNow || tries.Load() > 1 }
	})
	if err := l.running().Remove(within(t), l.id); !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
	c.leader(c.others(l)...)
	if tries.Load() != 2 {
		t.Errorf("%d tries", tries.Load())
	}
}

// A leader that is told to stop does not have to wait for the end of a long snapshot.
func TestTheLeadershipIsHandedOverWhileAMemberCatchesUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	ctx := within(t)
	l := c.leader()
	n, to := l.running(), c.others(l)[0]
	_, m := c.grow()
	c.net.set(func() {
		c.net.filter = func(msg *raftpb.Message) bool { // it answers, and does not catch up
			return msg.GetTo() != uint64(m.ID) || msg.GetType() == raftpb.MsgHeartbeat
		}
	})
	added := make(chan error, 1)
	go func() { added <- n.Add(ctx, m) }()
	c.eventually("it learns", func() bool { return len(n.Status().Members) == 4 })
	c.eventually("leadership is handed over", func() bool { // Add may just have seen that it learns
		err := n.Transfer(ctx, to.id)
		if err != nil && !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
	c.leader(to)
	if err := <-added; !errors.Is(err, ErrNotLeader) {
		t.Errorf("the node was added by a leader of before: %v", err)
	}
	c.net.set(func() { c.net.filter = nil })
	c.lead("add", func(n *Node) error { return n.Add(ctx, m) })
	c.settled()
}

func TestAMemberThatWasRemovedWhileItCaughtUpGetsNoVote(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	ctx := within(t)
	n := c.leader().running()
	_, m := c.grow()
	if err := n.addLearner(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(ctx, m.ID); err != nil {
		t.Fatal(err)
	}
	if err := n.promote(ctx, uint64(m.ID)); !errors.Is(err, errRemoved) {
		t.Errorf("%v", err)
	}
	if cs := n.applier.applied().ConfState; len(cs.GetVoters()) != 1 || len(cs.GetLearners()) != 0 {
		t.Errorf("%v", cs)
	}
}

// It may have caught up for an hour, and whoever changes the members is soon done.
func TestAMemberThatHasCaughtUpWaitsForAChangeThatIsUnderWay(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	n := c.leader().running()
	_, m := c.grow()
	ctx, cancel := context.WithCancel(within(t))
	n.changing.Lock()
	cancel()
	if err := n.promote(ctx, uint64(m.ID)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	promoted := make(chan error, 1)
	go func() { promoted <- n.promote(within(t), uint64(m.ID)) }()
	n.changing.Unlock()
	if err := <-promoted; !errors.Is(err, errRemoved) { // it was never added
		t.Errorf("%v", err)
	}
}

func TestALeaderGoesOnAfterATransferThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	l := c.leader()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	to := c.others(l)[0]
	c.net.set(func() {
		c.net.filter = func(m *raftpb.Message) bool { return m.GetType() != raftpb.MsgTimeoutNow }
	})
	before := l.running().Status()
	if err := l.running().Transfer(within(t), to.id); !errors.Is(err, errTransfer) {
		t.Fatalf("%v", err)
	}
	if after := l.running().Status(); !after.Serves || after.Term != before.Term {
		t.Errorf("%+v before the transfer, %+v after it", before, after)
	}
	if _, err := l.queue.put(nil); err != nil {
		t.Errorf("the queue does not go on: %v", err)
	}
}

// Who is told that a member votes may have another one go: most of those who voted before need not be there any more.
func TestAMemberVotesWhenTheChangeThatMakesItAVoterHasEnded(t *testing.T) {
	for _, x := range []struct {
		voters, outgoing []uint64
		votes            string
	}{
		{[]uint64{1, 2}, nil, "1 2"},
		{[]uint64{1, 2, 3}, []uint64{1, 2}, "1 2"}, // 3 is about to
		{[]uint64{1, 2, 3}, nil, "1 2 3"},
		{[]uint64{1, 3}, []uint64{1, 2, 3}, "1 3"}, // 2 is leaving
	} {
		var s []string
		for id := uint64(1); id <= 4; id++ {
			if votes(&raftpb.ConfState{Voters: x.voters, VotersOutgoing: x.outgoing}, id) {
				s = append(s, fmt.Sprint(id))
			}
		}
		if got := strings.Join(s, " "); got != x.votes {
			t.Errorf("of %v, before %v, %s vote, want %s", x.voters, x.outgoing, got, x.votes)
		}
	}
}
