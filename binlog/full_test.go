package binlog

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// eventually waits for a condition that the log's goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func TestAFullDiskRefusesJobsButNeverDeletes(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Options{Sync: policy, SegmentSize: 16 << 10})
			c.fs.SetCapacity(200 << 10)
			for {
				c.nextID++
				pos, err := c.put(testRecord(c.nextID, 100+int(c.nextID%50)))
				if errors.Is(err, ErrNoSpace) {
					break
				}
				c.done(pos, err)
			}
			jobs := c.snapshot()
			if len(jobs) < 500 || !c.log.Stats().Full {
				t.Fatalf("only %d jobs, full: %v", len(jobs), c.log.Stats().Full)
			}
			r := c.jobs[5].Record
			r.State = Buried
			if _, err := c.update(&r); !errors.Is(err, ErrNoSpace) && err != nil {
				t.Fatal(err)
			}
			// Nothing that was refused has left a trace.
			fs := c.fs
			c.log.Flush()
			for id := range jobs {
				if id%2 == 0 && id != 5 {
					c.end(id)
				}
			}
			for id := range jobs {
				if id%2 == 1 && id != 5 {
					c.end(id)
				}
			}
			// Without a restart, and without help, there is room again.
			eventually(t, "puts to be accepted", func() bool {
				c.nextID++
				_, err := c.put(testRecord(c.nextID, 100))
				if err != nil && !errors.Is(err, ErrNoSpace) {
					t.Fatal(err)
				}
				return err == nil
			})
			want := c.snapshot()
			if err := c.log.Close(); err != nil {
				t.Fatal(err)
			}
			o := newOwner()
			if err := o.open(testDir, Options{FS: fs.Killed(), SegmentSize: 16 << 10}); err != nil {
				t.Fatal(err)
			}
			defer o.log.Close()
			if d := diff(o.snapshot(), want); d != "" {
				t.Error(d)
			}
		})
	}
}

// Room comes back by whole segments: those that are small beside the disk let puts go on when few jobs have ended.
func TestAFullDiskHasRoomAgainWhenTheJobsOfTwoSegmentsHaveEnded(t *testing.T) {
	t.Parallel()
	const disk = 1 << 20
	c := newClient(t, Options{Sync: SyncEvery(time.Millisecond), SegmentSize: disk / 32, Indexes: true})
	c.fs.SetCapacity(disk)
	put := func() error {
		c.nextID++
		pos, err := c.put(testRecord(c.nextID, 100))
		if err == nil {
			c.done(pos, nil)
		}
		return err
	}
	for oldest := uint64(1); oldest < 4000; { // the disk is full again and again
		for err := error(nil); !errors.Is(err, ErrNoSpace); err = put() {
			if err != nil {
				t.Fatal(err)
			}
		}
		c.log.makeDurable()
		for end := oldest + 2*disk/32/160; oldest < end; oldest++ {
			c.end(oldest)
		}
		c.log.makeDurable()
		eventually(t, "puts to be accepted", func() bool { return put() == nil })
	}
	if n := len(c.jobs); n < disk/400 {
		t.Errorf("there are %d jobs on a full disk", n)
	}
}

func TestServiceReturnsWhenTheDiskGetsRoom(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: 16 << 10})
	c.fs.SetCapacity(100 << 10)
	full := func() error {
		for {
			c.nextID++
			if pos, err := c.put(testRecord(c.nextID, 100)); err != nil {
				return err
			} else {
				c.done(pos, nil)
			}
		}
	}
	if err := full(); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	before := len(c.jobs)
	c.fs.SetCapacity(300 << 10)
	eventually(t, "puts to be accepted", func() bool {
		if err := full(); !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
		return len(c.jobs) > 2*before
	})
}

// A job for which only a further segment has room is taken as soon as there can
// be one, although smaller jobs never met the full disk.
func TestALargeJobIsTakenOnceTheDiskHasRoom(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: 16 << 10})
	c.newJob(10)
	c.fs.SetCapacity(c.fs.Used())
	large := testRecord(2, 20<<10)
	if _, err := c.put(large); !errors.Is(err, ErrNoSpace) || c.log.Stats().SpaceErrors == 0 {
		t.Fatalf("put on a full disk: %v", err)
	}
	c.fs.SetCapacity(0)
	eventually(t, "the disk to count as free", func() bool { return !c.log.Stats().Full })
	eventually(t, "the large job to be accepted", func() bool {
		_, err := c.put(large)
		if err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// noSpace has all calls fail that want more of the disk.
func noSpace(c faultfs.Call) faultfs.Fault {
	if c.Op == "create" || c.Op == "allocate" {
		return faultfs.Fault{Err: syscall.ENOSPC}
	}
	return faultfs.Fault{}
}

// A server that was killed on a full disk can be started on it, and its consumers
// can go on, also when commits and compaction have used what is kept for them.
func TestAFullDiskIsNoObstacleToAStart(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: 16 << 10})
	c.fs.SetCapacity(100 << 10)
	for {
		c.nextID++
		pos, err := c.put(testRecord(c.nextID, 100))
		if errors.Is(err, ErrNoSpace) {
			break
		}
		c.done(pos, err)
	}
	c.fs.Hook(noSpace)
	for id := uint64(1); ; id++ {
		c.mu.Lock()
		place, body := c.jobs[id].place, c.jobs[id].Body
		c.mu.Unlock()
		if err := c.inRoom(func() error { return c.migrate(id, place, body) }); errors.Is(err, ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	c.log.Flush()
	eventually(t, "the commit", func() bool { return c.log.Stats().PendingBytes == 0 && c.log.Stats().UnsyncedBytes == 0 })
	c.log.mu.Lock()
	if c.log.fits(record.StartSize, c.log.room.floor()) {
		t.Error("there is room left above what is kept")
	}
	c.log.mu.Unlock()
	want := c.snapshot()
	fs := c.fs.Killed()
	fs.Hook(noSpace)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, SegmentSize: 16 << 10}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if d := diff(o.snapshot(), want); d != "" {
		t.Fatal(d)
	}
	for id := range want {
		if _, err := o.delete(id); err != nil {
			t.Fatal(err)
		}
	}
}

// The numbers of segments follow each other, whatever is left of the spare files
// of a run that was killed.
func TestSpareFilesOnAFullDiskLeaveNoGap(t *testing.T) {
	t.Parallel()
	m, want := aLog(t, Options{})
	names := m.segments()
	next := record.FileIndex(names[len(names)-1]) + 1
	m[record.FileName(next)] = nil
	m[record.FileName(next+1)] = make([]byte, MinSegmentSize)
	m[record.FileName(next+2)] = make([]byte, MinSegmentSize)
	fs := m.fs(t)
	fs.SetCapacity(fs.Used())
	o := newOwner()
	opts := Options{FS: fs, SegmentSize: MinSegmentSize}
	if err := o.open(testDir, opts); err != nil {
		t.Fatal(err)
	}
	fs.SetCapacity(0)
	id := o.log.NextID()
	for first := id; id < first+100; id++ {
		r := testRecord(id, 100)
		if _, err := o.put(r); err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		} else if err == nil {
			want[id] = *r
		}
		o.log.Flush()
	}
	for _, id := range slices.Collect(maps.Keys(o.jobs)) {
		if id%2 == 0 {
			delete(want, id)
			if _, err := o.delete(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	again := newOwner()
	opts.FS = fs.Killed()
	if err := again.open(testDir, opts); err != nil {
		t.Fatal(err)
	}
	defer again.log.Close()
	if d := diff(again.snapshot(), want); d != "" {
		t.Error(d)
	}
}

func TestADiskThatBreaksItsPromiseOfSpaceHoldsCommitsBack(t *testing.T) {
	t.Parallel()
	for _, policy := range []SyncPolicy{SyncAlways, SyncEvery(time.Millisecond)} {
		c := newClient(t, Options{Sync: policy})
		c.newJob(10)
		short := 24 // bytes that the first write gets done
		c.fs.Hook(func(call faultfs.Call) faultfs.Fault {
			if call.Op == "write" {
				fault := faultfs.Fault{Err: syscall.ENOSPC, Short: short}
				short = 0
				return fault
			}
			return faultfs.Fault{}
		})
		pos, err := c.put(testRecord(100, 1000))
		if err != nil {
			t.Fatal(err)
		}
		c.log.Flush()
		eventually(t, "the log to notice", func() bool { return c.log.Stats().Full })
		if _, err := c.put(testRecord(101, 10)); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("put while the disk is full: %v", err)
		}
		if c.log.Committed() >= pos {
			t.Fatal("committed without being written")
		}
		c.fs.Hook(nil)
		eventually(t, "the commit", func() bool { return c.log.Committed() >= pos && !c.log.Stats().Full })
		want := c.snapshot()
		c.log.Close()
		o := newOwner()
		if err := o.open(testDir, Options{FS: c.fs.Killed()}); err != nil {
			t.Fatal(err)
		}
		if d := diff(o.snapshot(), want); d != "" {
			t.Error(d)
		}
		o.log.Close()
	}
}

func TestAFailedWriteOrSyncEndsAllCommits(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "sync"} {
		for _, policy := range []SyncPolicy{SyncAlways, SyncEvery(time.Millisecond)} {
			failures := make(chan error, 10)
			o := newOwner()
			o.hooks.OnFail = func(err error) { failures <- err }
			fs := faultfs.New(testDir)
			if err := o.open(testDir, Options{FS: fs, Sync: policy}); err != nil {
				t.Fatal(err)
			}
			pos, err := o.put(testRecord(1, 10))
			if err != nil {
				t.Fatal(err)
			}
			o.log.Flush()
			eventually(t, "the first commit", func() bool { return o.log.Stats().UnsyncedBytes == 0 && o.log.Committed() >= pos })
			acknowledged := o.snapshot()

			boom := errors.New("boom")
			fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == op {
					return faultfs.Fault{Err: boom}
				}
				return faultfs.Fault{}
			})
			if pos, err = o.put(testRecord(2, 10)); err != nil {
				t.Fatal(err)
			}
			o.log.Flush()
			if err := <-failures; !errors.Is(err, boom) {
				t.Fatalf("OnFail was told %v", err)
			}
			fs.Hook(nil)
			frozen := o.log.Committed()
			if policy == SyncAlways && frozen >= pos {
				t.Errorf("%s, %v: what has failed was committed", op, policy)
			}
			if _, err := o.put(testRecord(3, 10)); !errors.Is(err, ErrFailed) {
				t.Errorf("put: %v", err)
			}
			if _, err := o.delete(1); !errors.Is(err, ErrFailed) {
				t.Errorf("delete: %v", err)
			}
			o.log.Flush()
			if err := o.log.Close(); !errors.Is(err, ErrFailed) || !errors.Is(err, boom) {
				t.Errorf("close: %v", err)
			}
			if o.log.Committed() != frozen || len(failures) != 0 {
				t.Errorf("%s, %v: there was a commit, or OnFail was called again", op, policy)
			}
			again := newOwner()
			if err := again.open(testDir, Options{FS: fs.Killed()}); err != nil {
				t.Fatal(err)
			}
			for id := range acknowledged {
				if again.jobs[id] == nil {
					t.Errorf("%s, %v: job %d is lost", op, policy, id)
				}
			}
			again.log.Close()
		}
	}
}

// A server that ends while its disk fails has written its stop record, but not for certain.
func TestAStopRecordWhoseSyncHasFailedIsWrittenAgain(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	put := func(o *owner, id uint64) {
		t.Helper()
		pos, err := o.put(testRecord(id, 10))
		if err != nil {
			t.Fatal(err)
		}
		o.log.Flush()
		eventually(t, "the commit", func() bool { return o.log.Committed() >= pos })
	}
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	put(o, 1)
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	if err := o.log.Close(); !errors.Is(err, ErrFailed) {
		t.Fatalf("close: %v", err)
	}
	fs = fs.Killed()
	o = newOwner()
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	if !o.log.Recovery().Clean {
		t.Fatal("the stop record was not written")
	}
	put(o, 2)
	want := o.snapshot()
	cut := fs.PowerCut(rand.New(rand.NewPCG(1, 1)))
	o.log.Close()
	o = newOwner()
	if err := o.open(testDir, Options{FS: cut}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if d := diff(o.snapshot(), want); d != "" {
		t.Error(d)
	}
}

// heldFS stops in one call of an operation until it is told what to return.
type heldFS struct {
	vfs.FS
	op     string
	hold   atomic.Bool
	inside chan struct{}
	result chan error
}

func newHeldFS(op string) *heldFS {
	return &heldFS{FS: faultfs.New(testDir), op: op, inside: make(chan struct{}), result: make(chan error)}
}

func (h *heldFS) call(op string, f func() error) error {
	if op == h.op && h.hold.CompareAndSwap(true, false) {
		h.inside <- struct{}{}
		if err := <-h.result; err != nil {
			return err
		}
	}
	return f()
}

type heldFile struct {
	vfs.File
	fs *heldFS
}

func (h *heldFS) Create(name string, size int64) (vfs.File, error) {
	var f vfs.File
	err := h.call("create", func() (err error) {
		f, err = h.FS.Create(name, size)
		return err
	})
	return &heldFile{f, h}, err
}

type heldDir struct {
	vfs.Dir
	fs *heldFS
}

func (h *heldFS) OpenDir(name string) (vfs.Dir, error) {
	d, err := h.FS.OpenDir(name)
	return &heldDir{d, h}, err
}

func (d *heldDir) Sync() error { return d.fs.call("syncdir", d.Dir.Sync) }

func (f *heldFile) Sync() error { return f.fs.call("sync", f.File.Sync) }

func (f *heldFile) Truncate(size int64) error {
	return f.fs.call("truncate", func() error { return f.File.Truncate(size) })
}

func (f *heldFile) Allocate(size int64) error {
	return f.fs.call("allocate", func() error { return f.File.Allocate(size) })
}

// What the kernel has lost in a failed sync, no later sync brings back.
func TestNoSyncIsBelievedAfterOneHasFailed(t *testing.T) {
	t.Parallel()
	fs := newHeldFS("sync")
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	fs.hold.Store(true)
	first, err := o.put(testRecord(1, 10))
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(o.log.commit)
	<-fs.inside
	second, err := o.put(testRecord(2, 10))
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(o.log.commit)
	eventually(t, "the second write", func() bool { return Pos(o.log.written.Load()) >= second })
	fs.result <- errors.New("boom")
	wg.Wait()
	if o.log.Committed() >= first {
		t.Error("a commit was told of what a sync has failed for")
	}
	if err := o.log.Close(); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
}

// One sync serves all that was appended while the one before was under way.
func TestASyncServesAllThatWaitForIt(t *testing.T) {
	t.Parallel()
	fs := newHeldFS("sync")
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	fs.hold.Store(true)
	var last Pos
	for id := range uint64(100) {
		pos, err := o.put(testRecord(id+1, 10))
		if err != nil {
			t.Fatal(err)
		}
		o.log.Flush() // never waits
		if id == 0 {
			<-fs.inside
		}
		last = pos
	}
	before := o.log.Stats().Syncs
	fs.result <- nil
	eventually(t, "the commit", func() bool { return o.log.Committed() >= last })
	if got := o.log.Stats().Syncs - before; got != 2 {
		t.Errorf("%d syncs, want 2", got)
	}
}

func TestAShortWriteIsRepaired(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{Sync: SyncEvery(time.Millisecond)})
	writes, short := 0, 0
	c.fs.Hook(func(call faultfs.Call) faultfs.Fault {
		if call.Op != "write" {
			return faultfs.Fault{}
		}
		if writes++; writes%2 == 0 {
			return faultfs.Fault{}
		}
		short++
		return faultfs.Fault{Err: syscall.EINTR, Short: 7}
	})
	for range 200 {
		c.newJob(50)
	}
	want := c.snapshot()
	if err := c.log.Close(); err != nil {
		t.Fatal(err)
	}
	if short == 0 {
		t.Fatal("no write was short")
	}
	o := newOwner()
	if err := o.open(testDir, Options{FS: c.fs.Killed()}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if d := diff(o.snapshot(), want); d != "" {
		t.Error(d)
	}
}

// The limit holds for jobs; their deletes are always taken.
func TestASlowDiskBoundsWhatWaitsInMemory(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, Sync: SyncEvery(time.Millisecond), MaxPending: 10_000}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	var err error
	id := uint64(0)
	for err == nil {
		id++
		_, err = o.put(testRecord(id, 100))
	}
	if !errors.Is(err, ErrBusy) || id < 50 || id > 60 {
		t.Fatalf("put %d: %v", id, err)
	}
	if _, err := o.delete(1); err != nil {
		t.Fatal(err)
	}
	o.log.Flush()
	eventually(t, "the commit", func() bool { return o.log.Stats().PendingBytes == 0 })
	if _, err := o.put(testRecord(id, 100)); err != nil {
		t.Fatal(err)
	}
}
