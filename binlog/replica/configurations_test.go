package replica

import (
	"slices"
	"testing"

	"trellis/binlog/replica/member"
)

// reopened is what a node that was killed tells of the members before it runs again.
func (p *peer) reopened(t *testing.T) (lists [][]member.Member) {
	t.Helper()
	n, err := Open(Options{Dir: clusterDir, Self: p.id, Queue: newModel(), FS: p.fs, SegmentSize: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if lists, err = n.Configurations(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return lists
}

func namesOf(ms []member.Member) (names []string) {
	for _, m := range ms {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// A node knows the members before it has applied anything: those of its snapshot, and the
// changes in its log, also where nothing on disk says that they are committed.
func TestTheMembersAreKnownBeforeANodeRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	ctx := within(t)
	last := func(p *peer) []string {
		lists := p.reopened(t)
		return namesOf(lists[len(lists)-1])
	}
	_, m := c.grow()
	c.lead("add", func(n *Node) error { return n.Add(ctx, m) })
	gone := c.others(c.leader())[0]
	c.lead("remove", func(n *Node) error { return n.Remove(ctx, gone.id) })
	c.eventually("the node that was removed ends", func() bool { _, ended := gone.end(); return ended })
	c.net.set(func() { c.nodes = slices.DeleteFunc(c.nodes, func(p *peer) bool { return p == gone }) })
	c.settled()
	var want []string
	for _, p := range c.nodes {
		want = append(want, p.name)
	}
	slices.Sort(want)
	for _, p := range c.nodes {
		p.kill()
		if got := last(p); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", p.name, got, want)
		}
	}
	// The same from snapshots, the first of which may be of an entry between two configurations.
	for _, p := range c.nodes {
		p.bytes = 1
		if err := c.start(p); err != nil {
			t.Fatal(err)
		}
	}
	l := c.leader()
	began := l.running().Status().Last
	c.eventually("a snapshot of all this is taken", func() bool {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 1000)); return err })
		n := l.running()
		return n != nil && n.Status().Snapshot > began
	})
	for _, p := range c.nodes {
		p.kill()
		if got := last(p); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", p.name, got, want)
		}
	}
	if lists := l.reopened(t); len(lists) != 1 {
		t.Errorf("from a snapshot: %v", lists)
	}
}
