package replica

import "testing"

func TestNodesOverRealConnections(t *testing.T) {
	t.Parallel()
	c := newWiredCluster(t, 3)
	for _, p := range c.nodes {
		p.bytes = 20_000
	}
	c.startAll()
	l := c.leader()
	c.untilSnapshot(l)
	away := c.others(l)[0]
	away.kill()
	last := away.lastIndex()
	c.untilSnapshot(c.leader())
	c.untilSnapshot(c.leader())
	l = c.leader()
	c.eventually("the leader's log begins behind what the follower has", func() bool {
		first, err := l.running().log.FirstIndex()
		return err == nil && first > last+1
	})
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.settled()
	l = c.leader()
	ctx := within(t)
	c.lead("transfer", func(n *Node) error {
		if n.opts.Self != l.id {
			return nil
		}
		return n.Transfer(ctx, 0)
	})
	l = c.leader(c.others(l)...)
	c.restart(l, func() {
		c.leader(c.others(l)...)
		c.must(func(q *model) error { _, err := q.put(nil); return err })
	})
	c.settled()
}

// A node knows those who were members when it went away, and a leader that was added
// since has to be heard all the same.
func TestANodeThatWasAwayWhileTheLeaderWasAddedCatchesUp(t *testing.T) {
	t.Parallel()
	c := newWiredCluster(t, 3)
	c.startAll()
	ctx := within(t)
	away := c.others(c.leader())[0]
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	away.kill()
	p, m := c.grow()
	c.lead("add", func(n *Node) error { return n.Add(ctx, m) })
	c.lead("transfer", func(n *Node) error {
		if n.opts.Self == p.id {
			return nil
		}
		return n.Transfer(ctx, p.id)
	})
	c.leader(p)
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.settled()
}
