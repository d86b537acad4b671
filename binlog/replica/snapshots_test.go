package replica

import (
	"strings"
	"sync/atomic"
	"testing"

	"trellis/binlog/vfs/faultfs"
)

// puts puts jobs until the leader has taken another snapshot.
func (c *cluster) untilSnapshot(l *peer) {
	c.t.Helper()
	taken := l.running().Status().Snapshot
	c.eventually("a snapshot", func() bool {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
		return l.running().Status().Snapshot > taken
	})
}

func TestAFollowerThatWasAwayForLongCatchesUpBySnapshot(t *testing.T) {
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.bytes = 10_000
	}
	c.startAll()
	l := c.leader()
	away := c.others(l)[0]
	away.kill()
	last := away.lastIndex()
	for range 3 {
		c.untilSnapshot(l)
	}
	c.eventually("the leader's log begins behind what the follower has", func() bool {
		n := l.running()
		first, err := n.log.FirstIndex()
		return err == nil && first > last+1
	})
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.settled()
	if s := away.running().Status(); s.Snapshot <= last {
		t.Errorf("the follower that ended with entry %d has not got the leader's snapshot: %+v", last, s)
	}
}

// A snapshot is of a running queue: what was executed and not committed when its jobs
// were written is in it only with the entries that follow.
func TestASnapshotThatIsTakenDuringWritesIsTheQueueAtItsEntry(t *testing.T) {
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll()
	for range 4 {
		l := c.leader()
		c.untilSnapshot(l)
		c.must(func(q *model) error { return q.delete(uint64(1 + c.rng.IntN(50))) })
		for _, p := range c.nodes {
			p.kill()
			if err := c.start(p); err != nil {
				t.Fatal(err)
			}
		}
		c.settled()
	}
}

// A crash at any call of the file system while a snapshot is received and installed
// leaves a node that catches up when it is started again.
func TestACrashWhileASnapshotIsInstalledLeavesANodeThatCatchesUp(t *testing.T) {
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll()
	for range 8 {
		l := c.leader()
		away := c.others(l)[0]
		away.kill()
		last := away.lastIndex()
		c.eventually("the leader's log begins behind what the follower has", func() bool {
			c.must(func(q *model) error {
				id, err := q.put(make([]byte, 200))
				if err == nil && id > 20 { // few live jobs, so that snapshots come often
					_ = q.delete(id - 10)
				}
				return err
			})
			n := c.leader().running()
			if n == nil {
				return false
			}
			first, err := n.log.FirstIndex()
			return err == nil && first > last+1
		})
		var calls atomic.Int64
		at := 10 + c.rng.Int64N(25) // the first calls are Open's
		away.fs.Hook(func(call faultfs.Call) faultfs.Fault {
			if strings.Contains(call.Name, snapshotsDir) && calls.Add(1) == at {
				return faultfs.Fault{Off: true}
			}
			return faultfs.Fault{}
		})
		err := c.start(away)
		c.eventually("the node crashes or catches up", func() bool {
			n := away.running()
			return n == nil || calls.Load() >= at || n.Status().Snapshot > last && n.Status().Applied >= n.Status().Snapshot
		})
		if err == nil {
			away.kill()
		}
		away.fs = away.fs.PowerCut(c.rng)
		if err := c.start(away); err != nil {
			t.Fatal(err)
		}
		c.settled()
	}
}
