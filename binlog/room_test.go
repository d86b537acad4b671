package binlog

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// watched is a log whose lines are told to a function.
type watched struct {
	slog.Handler
	tell func(message string)
}

func (w watched) Handle(_ context.Context, r slog.Record) error {
	w.tell(r.Message)
	return nil
}

func watch(tell func(string)) *slog.Logger {
	return slog.New(watched{slog.NewTextHandler(nil, nil), tell})
}

// Whoever reads the server's output may stop doing so.
func TestNoLineIsWrittenWithALockHeldThatAppendsNeed(t *testing.T) {
	t.Parallel()
	o := newOwner()
	fs := faultfs.New(testDir)
	var l atomic.Pointer[Log]
	lines := make(chan string, 100)
	opts := Options{FS: fs, SegmentSize: MinSegmentSize, Log: watch(func(line string) {
		if l.Load() != nil {
			l.Load().Stats()
		}
		lines <- line
	})}
	if err := o.open(testDir, opts); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	l.Store(o.log)
	fs.Hook(noSpace)
	if _, err := o.put(testRecord(1, 2*MinSegmentSize)); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	<-lines
	fs.Hook(nil)
	eventually(t, "the job to be accepted", func() bool {
		_, err := o.put(testRecord(1, 2*MinSegmentSize))
		return err == nil
	})
	<-lines
}

// A disk that is slow to give space back, or to sync a directory, is not waited
// for.
func TestAnAppendThatNeedsASegmentWaitsForItsAllocationOnly(t *testing.T) {
	t.Parallel()
	for op, policy := range map[string]SyncPolicy{"truncate": SyncNever, "syncdir": SyncEvery(time.Millisecond)} {
		t.Run(op, func(t *testing.T) {
			fs := newHeldFS(op)
			o := newOwner()
			if err := o.open(testDir, Options{FS: fs, Sync: policy, SegmentSize: MinSegmentSize}); err != nil {
				t.Fatal(err)
			}
			defer o.log.Close()
			goOn := sync.OnceFunc(func() { fs.result <- nil })
			defer goOn()
			fs.hold.Store(true)
			var done atomic.Int64
			go func() {
				for id := range uint64(1000) {
					if _, err := o.put(testRecord(id+1, 100)); err != nil {
						t.Error(err)
						return
					}
					o.log.Flush()
					done.Add(1)
				}
			}()
			<-fs.inside
			eventually(t, "the puts", func() bool { return done.Load() == 1000 })
		})
	}
}

// Files stay open until they are synced, so that a sync does not wait for its
// time when there are many.
func TestALongSyncIntervalKeepsFewFilesOpen(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{Sync: SyncEvery(time.Hour), SegmentSize: MinSegmentSize})
	for range 2000 {
		c.newJob(100)
	}
	c.log.Flush()
	eventually(t, "files to be closed", func() bool {
		c.log.mu.Lock()
		defer c.log.mu.Unlock()
		return len(c.log.sealed) <= 20
	})
}

// poorFS has no descriptors left.
type poorFS struct {
	vfs.FS
	poor atomic.Bool
}

func (f *poorFS) err() error {
	if f.poor.Load() {
		return syscall.EMFILE
	}
	return nil
}

func (f *poorFS) Create(name string, size int64) (vfs.File, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.FS.Create(name, size)
}

func (f *poorFS) OpenRead(name string) (vfs.File, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.FS.OpenRead(name)
}

func (f *poorFS) OpenDir(name string) (vfs.Dir, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.FS.OpenDir(name)
}

func TestALackOfDescriptorsDoesNotEndTheLog(t *testing.T) {
	t.Parallel()
	fs := &poorFS{FS: faultfs.New(testDir)}
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	put := func(id uint64) bool {
		_, err := o.put(testRecord(id, 100))
		if err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
		o.log.Flush()
		return err == nil
	}
	id := uint64(1)
	for ; id < 100; id++ {
		put(id)
		if id == 50 {
			fs.poor.Store(true)
		}
	}
	for id := range o.snapshot() {
		if _, err := o.delete(id); err != nil {
			t.Fatal(err)
		}
		o.log.Flush()
	}
	eventually(t, "compaction", func() bool { return o.log.Stats().SegmentsRemoved > 0 })
	fs.poor.Store(false)
	eventually(t, "puts to be accepted", func() bool { return put(id) })
}

// What is allocated to a spare segment that is used up meanwhile is given back.
func TestASpareSegmentMayBeUsedUpWhileItGrows(t *testing.T) {
	t.Parallel()
	fs := newHeldFS("allocate")
	o := newOwner()
	o.openWith(t, Options{FS: fs, SegmentSize: MinSegmentSize}, nil)
	const jobs = 800
	for id := range uint64(jobs) {
		if _, err := o.put(testRecord(id+1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	o.log.Flush()
	fs.hold.Store(true)
	result := make(chan error)
	go func() {
		result <- o.inRoom(func() error {
			_, err := o.log.Put(testRecord(jobs+1, 2*MinSegmentSize))
			return err
		})
	}()
	<-fs.inside
	growing := o.log.Stats().CurrentSegment + 1
	for id := uint64(2); o.log.Stats().CurrentSegment <= growing; id++ {
		if _, err := o.delete(id); err != nil {
			t.Fatal(err)
		}
		o.log.Flush()
	}
	eventually(t, "the commit", func() bool { return o.log.Stats().PendingBytes == 0 && o.log.Stats().UnsyncedBytes == 0 })
	fs.result <- nil
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	o.log.Flush()
	eventually(t, "space to be given back", func() bool {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		disk := int64(0)
		for _, seg := range slices.Concat(o.log.segs, o.log.spares) {
			if seg.sealed && seg.size > seg.used {
				return false
			}
			disk += seg.size
		}
		return disk == o.log.room.disk && disk == fs.FS.(*faultfs.FS).Used()
	})
}

// refused opens a log whose keeper stands still in the file system, and does puts
// until one is refused with ErrRoom. It returns the id of that, and how often
// OnRoom had been called by then.
func refused(t *testing.T, opts Options) (o *owner, fs *heldFS, id uint64, told int) {
	t.Helper()
	fs = newHeldFS("create")
	o = newOwner()
	opts.FS, opts.SegmentSize = fs, MinSegmentSize
	if err := o.open(testDir, opts); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keeper to have enough", func() bool {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		return !o.log.room.short()
	})
	fs.hold.Store(true)
	told = o.room.count()
	for id = 1; ; id++ {
		if _, err := o.log.Put(testRecord(id, 100)); errors.Is(err, ErrRoom) {
			<-fs.inside
			return o, fs, id, told
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// An append that was refused with ErrRoom can rely on OnRoom.
func TestARefusedAppendIsToldToTryAgain(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for what, c := range map[string]struct {
		meanwhile func(o *owner)
		created   error // by the keeper's call of the file system
		want      error
	}{
		"when a segment was allocated": {},
		"when the disk is full":        {created: syscall.ENOSPC, want: ErrNoSpace},
		"when the log has failed":      {meanwhile: func(o *owner) { o.log.fail(boom) }, want: ErrFailed},
		"when both have happened":      {meanwhile: func(o *owner) { o.log.fail(boom) }, created: syscall.ENOSPC, want: ErrFailed},
	} {
		t.Run(what, func(t *testing.T) {
			o, fs, id, told := refused(t, Options{})
			defer o.log.Close()
			if c.meanwhile != nil {
				c.meanwhile(o)
			}
			if c.created != nil {
				fs.FS.(*faultfs.FS).Hook(noSpace)
			}
			fs.result <- c.created
			o.room.after(told)
			if _, err := o.put(testRecord(id, 100)); !errors.Is(err, c.want) {
				t.Errorf("the put that was refused: %v, want %v", err, c.want)
			}
		})
	}
}

func TestARefusedAppendIsToldOfTheLogsEnd(t *testing.T) {
	t.Parallel()
	o, fs, id, told := refused(t, Options{})
	closed := make(chan error)
	go func() { closed <- o.log.Close() }()
	eventually(t, "the log to close", func() bool {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		return o.log.closing
	})
	fs.result <- nil
	o.room.after(told)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := o.log.Put(testRecord(id, 100)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// No call of OnRoom gets lost between appenders, the keeper, compaction, and a
// disk that is full now and then: each appender waits for no more than one such
// call before it tries again.
func TestManyAppendersWaitForRoomAndGetIt(t *testing.T) {
	t.Parallel()
	const appenders, jobs = 8, 300
	o := newOwner()
	fs := faultfs.New(testDir)
	if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize, Sync: SyncNever}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	var wg sync.WaitGroup
	for a := range uint64(appenders) {
		wg.Go(func() {
			for i := range uint64(jobs) {
				id := a*jobs + i + 1
				r := testRecord(id, int(id%5)*3000+100)
				for {
					_, err := o.put(r)
					if err == nil {
						break
					}
					if !errors.Is(err, ErrNoSpace) {
						t.Error(err)
						return
					}
					fs.SetCapacity(0)
					runtime.Gosched()
				}
				o.log.Flush()
				if i%2 == 0 {
					if _, err := o.delete(id); err != nil {
						t.Error(err)
						return
					}
				}
				if id%100 == 99 && a == 0 {
					fs.SetCapacity(fs.Used())
				}
			}
		})
	}
	wg.Wait()
	fs.SetCapacity(0)
	if n := len(o.snapshot()); n != appenders*jobs/2 {
		t.Errorf("%d jobs are left, want %d", n, appenders*jobs/2)
	}
	if s := o.log.Stats(); s.AppendWaits == 0 {
		t.Errorf("no append was refused with ErrRoom: %+v", s)
	}
}

// What was granted is there when the one who wanted it comes, however often the
// keeper looks for what can be given back, and others may use it.
func TestRoomThatWasGrantedIsKept(t *testing.T) {
	t.Parallel()
	o := newOwner()
	if err := o.openStill(testDir, Options{FS: faultfs.New(testDir), SegmentSize: MinSegmentSize}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	l, large := o.log, testRecord(1, 5*MinSegmentSize)
	grant := func() {
		t.Helper()
		if _, err := l.Put(large); !errors.Is(err, ErrRoom) {
			t.Fatal(err)
		}
		for range 3 {
			l.keepRoom(true)
		}
	}
	grant()
	if _, err := l.Put(large); err != nil {
		t.Errorf("the put that was refused: %v", err)
	}
	large.ID = 2
	grant()
	for id := uint64(3); l.room.grant.n > 0; id++ {
		if id > 100 {
			t.Fatal("room is kept that others have used up")
		}
		if _, err := o.put(testRecord(id, MinSegmentSize/2)); err != nil {
			t.Fatal(err)
		}
		l.keepRoom(false)
	}
	if free, most := l.room.free, l.room.floor()+2*l.room.ahead+l.waste(len(l.spares))+capacity(MinSegmentSize); free > most {
		t.Errorf("%d bytes are free, and no more than %d are needed", free, most)
	}
	grant()
	if _, err := l.Put(large); err != nil {
		t.Errorf("the put that was refused a second time: %v", err)
	}
}
