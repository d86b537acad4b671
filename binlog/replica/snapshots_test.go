package replica

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
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
	t.Parallel()
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
	t.Parallel()
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
			c.restart(p)
		}
		c.settled()
	}
}

// A crash at any call of the file system while a snapshot is received and installed
// leaves a node that catches up when it is started again.
func TestACrashWhileASnapshotIsInstalledLeavesANodeThatCatchesUp(t *testing.T) {
	t.Parallel()
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

// Until the pointer to a snapshot is durable, the log has to hold what is behind the one
// before.
func TestTheLogKeepsWhatNoDurableSnapshotHas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1)
	p := c.nodes[0]
	p.bytes = 5000
	c.startAll()
	var failed atomic.Int32
	p.fs.Hook(func(f faultfs.Call) faultfs.Fault {
		if f.Op == "rename" && strings.Contains(f.Name, "current") {
			failed.Add(1)
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	c.eventually("snapshots fail", func() bool {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
		return failed.Load() > 2
	})
	c.wait(20)
	if first, err := p.running().log.FirstIndex(); first != 2 || err != nil {
		t.Errorf("the log begins with entry %d, %v", first, err)
	}
	before := c.settled()
	p.kill()
	p.fs.Hook(nil)
	if err := c.start(p); err != nil {
		t.Fatal(err)
	}
	if after := c.settled(); after != before {
		t.Errorf("%v after a restart, %v before", after, before)
	}
}

// failSnapshots has every snapshot fail that is taken on a file system.
func failSnapshots(fs *faultfs.FS) {
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" && strings.Contains(c.Name, "unfinished.") {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
}

func TestASnapshotThatFailsIsNotTriedAgainAtOnce(t *testing.T) {
	h := newHand(t, 1)
	h.lead()
	failSnapshots(h.opts.FS.(*faultfs.FS))
	a := h.applier
	fails := func(number uint64) {
		t.Helper()
		for a.failedSince(number-1) == nil {
			a.requestSnapshot() // the walk before may not have ended yet
			h.apply()
			time.Sleep(time.Millisecond)
		}
	}
	fails(1)
	for range 10 {
		a.requestSnapshot()
		h.apply()
	}
	if a.begun() != 1 || a.snapshotWanted {
		t.Fatalf("%d snapshots were begun", a.begun())
	}
	h.opts.Clock.(*testClock).mono.Add(failedPause)
	fails(2)
}

func TestThoseWhoWaitForASnapshotHearThatItFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	l := c.nodes[0]
	_, m := c.grow()
	failSnapshots(l.fs)
	n := l.running()
	_, err := n.Backup(within(t), 0, io.Discard)
	for what, err := range map[string]error{"a backup": err, "a new member": n.Add(within(t), m)} {
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no snapshot could be taken") {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.fs.Hook(nil)
	if err := n.Add(within(t), m); err != nil {
		t.Error(err)
	}
	c.settled()
}

// What a walk has seen may never be committed: its snapshot ends with an entry behind all
// that.
func TestASnapshotWaitsForTheCommitOfWhatItHasSeen(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	change := func(buries uint32) journal.Record {
		return journal.Record{ID: 1, State: journal.Ready, TTR: 1, Tube: "default", Buries: buries}
	}
	put(t, l, 1, 0)
	h.queue.jobs[1] = change(0)
	h.answer()
	r := change(1)
	h.queue.jobs[1] = r
	pos, err := l.Update(&r)
	if err != nil {
		t.Fatal(err)
	}
	h.applier.snapshotWanted = true
	h.applier.considerSnapshot()
	w := h.applier.walk
	for w.endPos == 0 && h.applier.walk == w && len(w.end) == 0 && h.store.current().Index == 1 {
		h.apply()
		time.Sleep(time.Millisecond)
	}
	if w.endPos == 0 || l.Committed() >= pos {
		t.Fatalf("a snapshot ends, up to entry %d, before what it has seen is committed", h.store.current().Index)
	}
	h.answer()
	for h.applier.walk == w {
		h.apply()
		time.Sleep(time.Millisecond)
	}
	if last, _ := h.log.LastIndex(); h.store.current().Index != last {
		t.Errorf("the snapshot is of entry %d of %d", h.store.current().Index, last)
	}
}

// A leader that does not know yet how far a follower is may send a snapshot in vain.
func TestASnapshotThatIsNotWantedIsRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	c.nodes[0].bytes = 10_000
	c.startAll()
	c.untilSnapshot(c.nodes[0])
	c.settled()
	l, from := c.leader(), c.nodes[0].running()
	to := c.others(l)[0]
	if to == c.nodes[0] {
		to = c.others(l)[1]
	}
	meta := from.store.current()
	c.eventually("the follower has what the snapshot has", func() bool { return to.running().Status().Applied >= meta.Index })
	m := &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(uint64(l.id)), To: new(uint64(to.id)),
		Term: new(from.Status().Term), Snapshot: raftSnapshot(&meta),
	}
	var b bytes.Buffer
	held, path := from.store.hold()
	defer from.store.release(path)
	if err := cmp.Or(isCurrent(&held, m.GetSnapshot().GetMetadata()), from.sendFrom(path, &held, nil, &b)); err != nil {
		t.Fatal(err)
	}
	if err := to.running().Snapshot(m, &b, nil); err != nil {
		t.Fatal(err)
	}
	if got := to.running().Status().Snapshot; got == meta.Index {
		t.Fatal("the snapshot was installed")
	}
	es, err := to.fs.List(filepath.Join(clusterDir, snapshotsDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if e.Dir && strings.HasPrefix(e.Name, fmt.Sprint(meta.Index, "-")) {
			t.Errorf("%s is there", e.Name)
		}
	}
	c.settled()
}

// The walk leaves jobs out that come into being meanwhile. Their entries bring them into the
// snapshot.
func TestASnapshotHasTheJobsThatComeIntoBeingDuringItsWalk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	l := c.leader()
	const before, meanwhile = 2 * jobsAtATime, 10
	var putting sync.WaitGroup
	for range 16 {
		putting.Go(func() {
			for range before / 16 {
				if _, err := l.queue.put(nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	putting.Wait()
	c.settled()
	visited := 0 // the walk's until the snapshot is there
	l.queue.mu.Lock()
	l.queue.onVisit = func(uint64) {
		if visited++; visited != 1 {
			return
		}
		for range meanwhile {
			if _, err := l.queue.put(nil); err != nil {
				t.Error(err)
			}
		}
	}
	l.queue.mu.Unlock()
	n := l.running()
	n.applier.post(func() error {
		n.applier.snapshotWanted = true
		n.applier.considerSnapshot()
		return nil
	})
	c.eventually("a snapshot", func() bool { return n.Status().Snapshot > 1 })
	d := c.settled()
	if visited != before || d.Jobs != before+meanwhile {
		t.Errorf("%d of %d jobs were visited, want %d", visited, d.Jobs, before)
	}
	c.restart(l)
	if after := c.settled(); after != d {
		t.Errorf("%v after a restart, %v before", after, d)
	}
}
