//go:build proof

package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"trellis/binlog/journal"
)

// The jobs whose deletes fill the log take no space any more once there is a snapshot.
func TestADiskWhoseJobsWereDeletedHasSpaceAgain(t *testing.T) {
	t.Parallel()
	deletedTakeNoSpace(t, func(c *cluster, l *peer) []uint64 { return c.filled(l) })
}

// The last snapshot may be what is large: the log is short when the jobs of it are deleted.
func TestADiskHasSpaceAgainWhenTheJobsOfItsSnapshotWereDeleted(t *testing.T) {
	t.Parallel()
	deletedTakeNoSpace(t, func(c *cluster, l *peer) (ids []uint64) {
		for range 250 {
			id, err := l.queue.put(make([]byte, 1000))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for _, p := range c.nodes {
			n := p.running()
			if err := n.freshSnapshot(context.Background(), n.applier.applied().Index); err != nil {
				t.Fatal(err)
			}
		}
		c.looks()
		return append(ids, c.filled(l)...)
	})
}

// deletedTakeNoSpace puts jobs until none can be put, and deletes them.
func deletedTakeNoSpace(t *testing.T, fill func(c *cluster, l *peer) []uint64) {
	c, l := clusterWithReserves(t)
	c.shrink(700_000, true)
	c.looks()
	for round := range 2 {
		ids := fill(c, l)
		for _, id := range ids {
			if err := l.queue.delete(id); err != nil {
				t.Fatalf("delete %d of %d: %v", id, len(ids), err)
			}
		}
		c.eventually("all disks have space again", func() bool { // one that lags would have none for the next round's snapshot
			for _, p := range c.nodes {
				p.clock.mono.Add(int64(time.Second)) // towards its next snapshot
			}
			c.looks()
			for _, p := range c.nodes {
				if p.running().space.low.Load() {
					return false
				}
			}
			_, err := l.queue.put(nil)
			if err != nil && !errors.Is(err, journal.ErrNoSpace) {
				t.Fatalf("round %d: %v", round, err)
			}
			return err == nil
		})
	}
	c.settled()
}
