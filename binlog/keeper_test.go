package binlog

import (
	"context"
	"errors"
	"log/slog"
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
	for op, interval := range map[string]time.Duration{"truncate": NeverSync, "syncdir": time.Millisecond} {
		t.Run(op, func(t *testing.T) {
			fs := newHeldFS(op)
			o := newOwner()
			if err := o.open(testDir, Options{FS: fs, SyncInterval: interval, SegmentSize: MinSegmentSize}); err != nil {
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
	c := newClient(t, Options{SyncInterval: time.Hour, SegmentSize: MinSegmentSize})
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
		_, err := o.log.Put(testRecord(jobs+1, 2*MinSegmentSize))
		result <- err
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
