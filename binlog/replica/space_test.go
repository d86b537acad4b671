package replica

import (
	"errors"
	"testing"

	"trellis/binlog/journal"
)

// clusterWithReserves returns a cluster whose nodes have their reserves, and its leader.
func clusterWithReserves(t *testing.T) (*cluster, *peer) {
	t.Helper()
	c := newCluster(t, 3, 1)
	c.timeout = 400
	for _, p := range c.nodes {
		p.reserve = 2_000_000
	}
	c.startAll()
	l := c.leader()
	c.reserved()
	return c, l
}

// shrink leaves so many bytes on the disks of all machines. Each knows how many are free, or
// believes that there are plenty.
func (c *cluster) shrink(free int64, knows bool) {
	for _, p := range c.nodes {
		p.fs.SetCapacity(p.fs.Used() + free)
		p.plenty.Store(!knows)
		p.full.Store(true)
	}
}

// looks makes all nodes look at their disks.
func (c *cluster) looks() {
	for _, p := range c.nodes {
		p.running().space.look()
	}
}

// reserved waits until all nodes have their reserves.
func (c *cluster) reserved() {
	c.t.Helper()
	c.eventually("all have allocated their reserves", func() bool {
		for _, p := range c.nodes {
			if p.fs.Used() < p.reserve {
				return false
			}
		}
		return true
	})
}

// filled puts jobs until one is refused for want of space, and returns the ids.
func (c *cluster) filled(l *peer) (ids []uint64) {
	c.t.Helper()
	for {
		switch id, err := l.queue.put(make([]byte, 1000)); {
		case errors.Is(err, journal.ErrNoSpace):
			return ids
		case err != nil:
			c.t.Fatalf("behind %d jobs: %v", len(ids), err)
		default:
			ids = append(ids, id)
		}
	}
}

// The log grows also when puts are refused, until a snapshot has made it shorter.
func TestADiskIsLowWhereTheLogUpToTheNextSnapshotDoesNotFit(t *testing.T) {
	h := newHand(t, 1)
	l := h.lead()
	free := int64(1 << 40)
	h.opts.Free = func() (int64, error) { return free, nil }
	h.opts.Reserve = 400_000
	s := h.space
	s.snapshotWantedAt = 1 // a moment ago, so that no snapshot is taken meanwhile
	s.look()               // which allocates the reserve
	low := func() bool { s.look(); return s.low.Load() }
	next := h.store.current().Bytes // of the snapshot
	free = next + s.longLog() - h.log.Size()
	if low() {
		t.Errorf("%d bytes are free, and it is low", free)
	}
	free--
	if !low() {
		t.Errorf("%d bytes are free, and it is not low: the log may become longer", free)
	}
	for id := uint64(1); h.log.Size() < s.longLog(); id++ {
		put(t, l, id, 10_000)
		h.run()
	}
	free = next
	if low() {
		t.Error("the log will not become longer, and it is low")
	}
}

// A fast disk is full before anybody has looked at it again.
func TestJobsCanBeDeletedOnDisksThatHaveRunFull(t *testing.T) {
	t.Parallel()
	c, l := clusterWithReserves(t)
	c.shrink(100_000, false)
	ids := c.filled(l)
	if len(ids) < 10 {
		t.Fatalf("%d jobs were put", len(ids))
	}
	for _, id := range ids {
		if err := l.queue.delete(id); err != nil {
			t.Fatalf("delete %d of %d: %v", id, len(ids), err)
		}
	}
	c.shrink(8<<20, true)
	c.looks()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	c.reserved()
	c.settled()
}
