package replica

import (
	"errors"
	"testing"
)

// A node that is away knows those who were members then. These tests have the members
// change meanwhile.

// addLeader adds a node, and makes it the leader.
func (c *cluster) addLeader() *peer {
	c.t.Helper()
	ctx := within(c.t)
	p, m := c.grow()
	c.lead("add", func(n *Node) error { return n.Add(ctx, m) })
	c.lead("transfer", func(n *Node) error {
		if n.opts.Self == p.id {
			return nil
		}
		return n.Transfer(ctx, p.id)
	})
	c.leader(p)
	return p
}

// remove removes a node, and ends it.
func (c *cluster) remove(p *peer) {
	c.t.Helper()
	ctx := within(c.t)
	c.lead("remove", func(n *Node) error { return n.Remove(ctx, p.id) })
	p.kill()
}

func TestANodeThatWasAwayCatchesUpWithALeaderThatWasAdded(t *testing.T) {
	t.Parallel()
	c := newWiredCluster(t, 3).startAll()
	old := c.leader()
	away, other := c.others(old)[0], c.others(old)[1]
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	away.kill()
	c.addLeader()
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.settled()
	other.kill() // so that nothing is committed without the one that was away
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	c.settled()
}

func TestANodeCatchesUpThatKnowsNoneOfTheMembers(t *testing.T) {
	t.Parallel()
	c := newWiredCluster(t, 3).startAll()
	old := c.leader()
	away, other := c.others(old)[0], c.others(old)[1]
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	away.kill()
	c.addLeader()
	last := c.addLeader()
	c.remove(other)
	c.remove(old)
	last.kill() // two of three are left, and one of them knows only those who are gone
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	if err := c.start(last); err != nil {
		t.Fatal(err)
	}
	c.settled()
}

func TestANodeThatWasRemovedWhileItWasAwayEnds(t *testing.T) {
	t.Parallel()
	c := newWiredCluster(t, 3).startAll()
	old := c.leader()
	away, other := c.others(old)[0], c.others(old)[1]
	away.kill()
	c.addLeader()
	c.remove(away)
	c.remove(other) // one is left that it knows, and that is not most of them
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.eventually("it ends", func() bool {
		err, ended := away.end()
		return ended && errors.Is(err, ErrRemoved)
	})
	c.must(func(q *model) error { _, err := q.put(nil); return err })
}
