package replica

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entrylog"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// entriesFault has an operation on the files of the entry log run fault first, or fail if
// that is nil.
func (p *peer) entriesFault(op string, fault func()) {
	p.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == op && strings.Contains(c.Name, "entries.") {
			if fault == nil {
				return faultfs.Fault{Err: syscall.EIO}
			}
			fault()
		}
		return faultfs.Fault{}
	})
}

func TestANodeEndsWhenItsDiskFails(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "sync"} {
		for _, leads := range []bool{true, false} {
			t.Run(op, func(t *testing.T) {
				c := newCluster(t, 3, 1).startAll()
				p := c.leader()
				if !leads {
					p = c.others(p)[0]
				}
				p.entriesFault(op, nil)
				c.eventually("the node ends", func() bool {
					c.must(func(q *model) error { _, err := q.put(nil); return err })
					_, down := p.end()
					return down
				})
				if err, _ := p.end(); !errors.Is(err, journal.ErrFailed) || !strings.Contains(err.Error(), "entries.") && op == "write" {
					t.Errorf("%v", err)
				}
				c.restart(p)
				c.settled()
			})
		}
	}
}

// Entries that are not in memory are read from the disk when a follower lacks them.
func TestALeaderThatCannotReadAnOldEntryEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	away := c.others(c.leader())[0]
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	away.kill()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	others := c.others(away)
	for _, p := range others { // so that they have nothing in memory
		c.restart(p)
	}
	c.settled()
	for _, p := range others {
		p.entriesFault("read", nil)
	}
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	var err error
	c.eventually("the leader ends", func() bool {
		for _, p := range others {
			var ended bool
			if err, ended = p.end(); ended {
				return true
			}
		}
		return false
	})
	if !errors.Is(err, journal.ErrFailed) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "entries.0") {
		t.Errorf("%v", err)
	}
}

func TestANodeThatCannotReadWhatItHasToApplyEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	p := c.nodes[0]
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	p.kill()
	var opened atomic.Bool
	p.fs.Hook(func(call faultfs.Call) faultfs.Fault {
		switch {
		case !strings.Contains(call.Name, "entries."):
		case call.Op == "sync": // Open writes what it has read again, and reads nothing after that
			opened.Store(true)
		case call.Op == "read" && opened.Load():
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	if err := c.start(p); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node ends", func() bool { _, ended := p.end(); return ended })
	if err, _ := p.end(); !errors.Is(err, journal.ErrFailed) || !strings.Contains(err.Error(), "entries.0") {
		t.Errorf("%v", err)
	}
}

func TestAFollowerWithAFullDiskWaitsForSpace(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	l := c.leader()
	p := c.others(l)[0]
	p.stuck.Store(true) // nothing but what it has waits for it
	p.fs.SetCapacity(p.fs.Used())
	before := p.running().Status().Last
	for range 100 {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 1000)); return err })
	}
	s := p.running().Status()
	if s.Last >= l.running().Status().Last {
		t.Fatalf("the disk is not full: entry %d, %d before", s.Last, before)
	}
	p.fs.SetCapacity(0)
	p.stuck.Store(false)
	c.settled()
}

func TestAFullDiskIsToldOnceAMinute(t *testing.T) {
	h := newHand(t, 3)
	var log bytes.Buffer
	h.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	tries := 0
	store := func() error {
		if tries++; tries%3 != 0 {
			return entrylog.ErrNoSpace
		}
		return nil
	}
	for _, want := range []int{1, 1, 2} {
		if err := h.writer.retryWhileFull(0, store); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "the disk is full"); got != want {
			t.Errorf("%d lines after %d tries, want %d", got, tries, want)
		}
		if want == 1 {
			h.opts.Clock.(*testClock).mono.Add(int64(fullWarn) * 2 / 3)
		}
	}
}

// awaits has a call of a machine's disk wait until a gate is open.
func (p *peer) awaits(gate <-chan struct{}) {
	p.stuck.Store(true)
	<-gate
	p.stuck.Store(false)
}

// hang stops a machine's disk until it is released.
func (p *peer) hang(t *testing.T) (release func()) {
	gate := make(chan struct{})
	p.entriesFault("sync", func() { p.awaits(gate) })
	release = sync.OnceFunc(func() {
		p.stuck.Store(false)
		close(gate)
	})
	t.Cleanup(release)
	return release
}

func TestALeaderWhoseDiskHangsStepsDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	l := c.leader()
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	release := l.hang(t)
	if _, err := l.queue.put(nil); err == nil {
		t.Error("a put was acknowledged that is not on disk here")
	}
	c.leader(c.others(l)...)
	c.must(func(q *model) error { _, err := q.put(nil); return err })
	release()
	l.fs.Hook(nil)
	c.settled()
}

func TestANodeWhoseDiskHangsForLongEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.hangGrace = time.Second
	}
	c.startAll()
	p := c.others(c.leader())[0]
	release := p.hang(t)
	c.eventually("the node ends", func() bool {
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		_, down := p.end()
		return down
	})
	if err, _ := p.end(); !errors.Is(err, ErrHung) {
		t.Errorf("%v", err)
	}
	release()
}

// hangSnapshots stops a machine's disk from an operation on a file of
// a snapshot on, until it is released. It tells when that has come.
func (p *peer) hangSnapshots(t *testing.T, op string) (hung *atomic.Bool, release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() {
		p.stuck.Store(false)
		close(gate)
	})
	t.Cleanup(release)
	hung = new(atomic.Bool)
	p.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == op && strings.Contains(c.Name, "unfinished.") {
			hung.Store(true)
			p.awaits(gate)
		}
		return faultfs.Fault{}
	})
	return hung, release
}

func TestANodeWhoseDiskHangsDuringASnapshotEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	p := c.nodes[0]
	p.bytes, p.hangGrace = 5000, time.Second
	c.startAll()
	hung, _ := p.hangSnapshots(t, "sync")
	c.eventually("a snapshot hangs", func() bool {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
		return hung.Load()
	})
	c.eventually("the node ends", func() bool {
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		_, down := p.end()
		return down
	})
	if err, _ := p.end(); !errors.Is(err, ErrHung) {
		t.Errorf("%v", err)
	}
}

func TestALeaderThatIsDeposedDoesNotWaitForItsSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	c.timeout = 200
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll()
	l := c.leader()
	hung, _ := l.hangSnapshots(t, "sync")
	c.eventually("a snapshot hangs", func() bool {
		c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
		return hung.Load()
	})
	c.leader(c.others(l)...)
	c.eventually("the queue is retired", func() bool { return !l.queue.serves() })
}

// A queue is not retired before the walk over its jobs has ended, and the walk does not wait
// for the disk.
func TestADiskThatHangsUnderASnapshotKeepsNobodyLeading(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.onRetire = func() { p.frozen.Store(true) } // or it would end because of its disk
	}
	c.startAll()
	const jobs, size = 200, 2 * vfs.WriteBuffer / 200
	var putting sync.WaitGroup
	for range 10 {
		putting.Go(func() {
			for range jobs / 10 {
				c.must(func(q *model) error { _, err := q.put(make([]byte, size)); return err })
			}
		})
	}
	putting.Wait()
	before := c.settled()
	l := c.leader()
	n := l.running()
	var visited atomic.Int64
	l.queue.mu.Lock()
	l.queue.onVisit = func(uint64) { visited.Add(1) }
	l.queue.mu.Unlock()
	hung, release := l.hangSnapshots(t, "write")
	n.applier.post(func() error {
		n.applier.snapshotWanted = true
		n.applier.considerSnapshot()
		return nil
	})
	c.eventually("the disk hangs", hung.Load)
	if v := visited.Load(); v == 0 || v >= jobs {
		t.Fatalf("the disk hangs after %d of %d jobs were visited, not in their midst", v, jobs)
	}
	seen := visited.Load()
	left := make(chan error, 1)
	go func() {
		_, err := l.queue.put(nil)
		left <- err
	}()
	c.eventually("the client is let go", func() bool { return len(left) > 0 })
	if <-left == nil {
		t.Error("a put was acknowledged that is not on disk here")
	}
	c.eventually("the queue is retired", func() bool { return !l.queue.serves() })
	c.leader(c.others(l)...)

	release()
	l.frozen.Store(false)
	if after := c.settled(); after.Jobs < before.Jobs || after.Jobs > before.Jobs+1 {
		t.Errorf("%v, and before the disk hung %v", after, before)
	}
	c.eventually("the snapshot is given up", func() bool {
		if !n.applier.walkLock.TryLock() {
			return false
		}
		n.applier.walkLock.Unlock()
		return true
	})
	if v := visited.Load(); v != seen {
		t.Errorf("%d jobs were visited for a snapshot that was void", v-seen)
	}
	if s := n.Status().Snapshot; s != 1 {
		t.Errorf("the snapshot is that of entry %d", s)
	}
	es, err := l.fs.List(filepath.Join(clusterDir, snapshotsDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if strings.HasPrefix(e.Name, "unfinished.") {
			t.Errorf("%s is there", e.Name)
		}
	}
}

// What was acknowledged is on the disk, and what was not is for nobody to wait for.
func TestANodeEndsAlthoughItsDiskHangs(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		c := newCluster(t, 1, 1)
		p := c.nodes[0]
		p.hangGrace = time.Second / 2
		c.startAll()
		c.must(func(q *model) error { _, err := q.put(nil); return err })
		var hung atomic.Bool
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(release)
		p.entriesFault("sync", func() {
			hung.Store(true)
			p.awaits(gate)
		})
		go func() { _, _ = p.queue.put(nil) }()
		c.eventually("the disk hangs", hung.Load)
		if failed {
			p.running().fail(ErrDiverged)
		} else {
			p.stop()
		}
		c.eventually("the node ends", func() bool { _, down := p.end(); return down })
		if err, _ := p.end(); !errors.Is(err, ErrHung) || !strings.Contains(err.Error(), clusterDir) || failed != errors.Is(err, ErrDiverged) {
			t.Errorf("%v", err)
		}
		release()
	}
}
