package binlog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

// openWith opens a log whose compaction asks migrate.
func (o *owner) openWith(t *testing.T, opts Options, migrate func(id uint64, place journal.Place, body []byte) error) {
	t.Helper()
	l, err := Open(testDir, opts)
	if err != nil {
		t.Fatal(err)
	}
	o.log = l
	t.Cleanup(func() { l.Close() })
	err = l.Replay(o)
	if err == nil {
		err = l.Start(Hooks{Migrate: migrate, Jobs: o.jobsIn, OnRoom: o.room.onRoom})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pass has many jobs come and go.
func (o *owner) pass(t *testing.T, first, last uint64) {
	t.Helper()
	for id := first; id <= last; id++ {
		if _, err := o.put(testRecord(id, 100)); err != nil {
			t.Fatal(err)
		}
		if _, err := o.delete(id); err != nil {
			t.Fatal(err)
		}
		o.log.Flush()
	}
}

// An owner records a job before others can find it.
func TestAJobThatCompactionHasMissedIsMovedLater(t *testing.T) {
	t.Parallel()
	o := newOwner()
	var missed atomic.Bool
	o.openWith(t, Options{FS: faultfs.New(testDir), SegmentSize: MinSegmentSize}, func(id uint64, place journal.Place, body []byte) error {
		if missed.CompareAndSwap(false, true) {
			return nil
		}
		return o.migrate(id, place, body)
	})
	if _, err := o.put(testRecord(1, 10)); err != nil {
		t.Fatal(err)
	}
	o.pass(t, 2, 300)
	eventually(t, "compaction", func() bool { return missed.Load() && o.log.Stats().OldestSegment > 1 })
}

func TestCompactionThatMetAFullDiskGoesOnWhenThereIsSpace(t *testing.T) {
	t.Parallel()
	o := newOwner()
	fs := faultfs.New(testDir)
	asked, moved := make(chan struct{}), make(chan struct{})
	first := true
	o.openWith(t, Options{FS: fs, SegmentSize: MinSegmentSize}, func(id uint64, place journal.Place, body []byte) error {
		if first {
			first = false
			close(asked)
			<-moved
		}
		return o.migrate(id, place, body)
	})
	if _, err := o.put(testRecord(1, 10)); err != nil {
		t.Fatal(err)
	}
	o.pass(t, 2, 300)
	<-asked
	eventually(t, "all to be on disk", func() bool { s := o.log.Stats(); return s.PendingBytes == 0 && s.UnsyncedBytes == 0 })
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "write" {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	close(moved)
	eventually(t, "the full disk to be met", func() bool { return o.log.Stats().Full })
	eventually(t, "compaction to give up", func() bool {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		return o.log.stalled
	})
	fs.Hook(nil)
	eventually(t, "compaction", func() bool { return o.log.Stats().SegmentsRemoved > 0 })
	if _, err := o.put(testRecord(301, 10)); err != nil && !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
}

// lines is a log for people that several goroutines write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// All jobs are moved out that can be read or that the owner has in memory, and settings. The others are named, and when
// they are deleted, the segment goes.
func TestADamagedSegmentStaysForTheJobsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	o, fs, said := newOwner(), faultfs.New(testDir), &lines{}
	o.openWith(t, Options{
		FS: fs, SegmentSize: MinSegmentSize, Sync: SyncAlways, Indexes: true, Log: slog.New(slog.NewTextHandler(said, nil)),
	}, o.migrate)
	if _, err := o.set(journal.DeadLetters("mail", 3, "mail.dead")); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id <= 40; id++ {
		if _, err := o.put(testRecord(id, 100)); err != nil {
			t.Fatal(err)
		}
	}
	o.log.makeDurable()
	eventually(t, "an index", func() bool {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		return o.log.segs[0].sealed && o.log.segs[0].file == nil && o.log.segs[0].indexed > 0
	})
	eventually(t, "all of it", func() bool { return strings.HasSuffix(string(content(t, fs, indexFiles(t, fs)[0])), "TIDX") })
	first := o.jobs[1].place.Segment
	damaged, err := fs.Open(o.log.path(first))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{int64(o.jobs[4].place.Offset) * 8, int64(o.jobs[5].place.Offset) * 8, record.HeaderSize} {
		if _, err := damaged.WriteAt([]byte("#"), at+60); err != nil {
			t.Fatal(err)
		}
	}
	o.lost = map[uint64]bool{3: true, 5: true} // and 3 can be read, behind damage
	for id := uint64(6); id <= 40; id++ {
		if _, err := o.delete(id); err != nil {
			t.Fatal(err)
		}
	}
	o.pass(t, 41, 200)
	eventually(t, "compaction", func() bool { return o.log.Stats().Stuck == 1 })
	eventually(t, "the name of the job", func() bool { return strings.Contains(said.String(), "jobs=[5]") })
	o.mu.Lock()
	for id := uint64(1); id <= 5; id++ {
		if stays := o.jobs[id].place.Segment == first; stays != (id == 5) {
			t.Errorf("job %d is in segment %d", id, o.jobs[id].place.Segment)
		}
	}
	o.mu.Unlock()
	o.log.mu.Lock()
	if n := o.log.segs[0].liveCount; n != 1 {
		t.Errorf("%d jobs and settings are left in the segment", n)
	}
	o.log.mu.Unlock()
	if _, err := o.delete(5); err != nil {
		t.Fatal(err)
	}
	o.log.Flush()
	eventually(t, "the segment to go", func() bool { s := o.log.Stats(); return s.OldestSegment > first && s.Stuck == 0 })
}
