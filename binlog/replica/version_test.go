package replica

import (
	"errors"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entry"
)

// replace gives a machine another program.
func (c *cluster) replace(p *peer, newest uint32) {
	c.t.Helper()
	p.kill()
	p.newest = newest
	if err := c.start(p); err != nil {
		c.t.Fatal(err)
	}
}

func TestAVersionOfEntriesIsAllowedOnceAllMembersReadIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.bytes, p.newest = 10_000, entry.Newest-1
	}
	c.startAll()
	for i, p := range c.nodes {
		c.replace(p, entry.Newest)
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		c.settled()
		for range 5 {
			c.must(func(q *model) error { _, err := q.put(nil); return err })
		}
		if v := c.leader().running().Status().Version; i < 2 && v >= entry.Newest {
			t.Fatalf("version %d is allowed, and only %d of 3 members read it", v, i+1)
		}
	}
	c.eventually("all have applied it", func() bool {
		for _, p := range c.nodes {
			if p.running().Status().Version != entry.Newest {
				return false
			}
		}
		return true
	})
	// It holds for the next leader, and behind a snapshot.
	c.untilSnapshot(c.leader())
	l := c.leader()
	l.kill()
	c.leader(c.others(l)...)
	if err := c.start(l); err != nil {
		t.Fatal(err)
	}
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	c.settled()
	for _, p := range c.nodes {
		if v := p.running().Status().Version; v != entry.Newest {
			t.Errorf("%s: version %d", p.name, v)
		}
	}
	// An older program is none for this cluster any more, whether it finds that in the log
	// or in a snapshot.
	for _, p := range c.others(c.leader()) {
		p.kill()
		p.newest = entry.Newest - 1
		if err := c.start(p); err != nil {
			t.Fatal(err)
		}
		c.eventually("the older program ends", func() bool { _, down := p.end(); return down })
		if err, _ := p.end(); !errors.Is(err, entry.ErrUnknown) {
			t.Errorf("%s: %v", p.name, err)
		}
		p.newest = entry.Newest
		if err := c.start(p); err != nil {
			t.Fatal(err)
		}
		c.settled()
	}
}

// Entries say the version of the records that they may have: members read what it allows.
func TestMembersReadTheRecordsOfTheNewestVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	c.eventually("the newest version is allowed", func() bool {
		n := c.leader().running()
		return n != nil && n.Status().Version == entry.Newest
	})
	setting := journal.Setting{Tube: "t", Policy: journal.DefaultPolicy}
	setting.Rate, setting.Paused = 10, true
	c.must(func(q *model) error { return q.set(setting) })
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	c.settled()
	for _, p := range c.nodes {
		if err, down := p.end(); down {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}
