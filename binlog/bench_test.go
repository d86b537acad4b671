package binlog

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

func benchLog(b *testing.B, policy SyncPolicy) *owner {
	o := newOwner()
	if err := o.open(b.TempDir(), Options{Sync: policy, SegmentSize: 64 << 20}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { o.log.Close() })
	return o
}

// append is put without the owner's books. It waits for room, and for a disk that
// is too slow.
func (o *owner) append(r *Record) (t Ticket, err error) {
	for {
		n := o.room.count()
		t, err = o.log.Put(r)
		switch {
		case errors.Is(err, ErrRoom):
			o.room.after(n)
		case errors.Is(err, ErrBusy):
			time.Sleep(time.Millisecond)
		default:
			return t, err
		}
	}
}

// One put and one delete, committed once for every 64 of them.
func BenchmarkPutDelete(b *testing.B) {
	o := benchLog(b, SyncNever)
	r := testRecord(1, 100)
	size := journal.Size(r.Tube, len(r.Body))
	b.ReportAllocs()
	for i := range b.N {
		r.ID = uint64(i + 1)
		t, err := o.append(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := o.log.Delete(r.ID, journal.Former{Segment: t.Segment, Size: size}); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			o.log.Flush()
		}
	}
}

func BenchmarkPutDeleteParallel(b *testing.B) {
	o := benchLog(b, SyncNever)
	var id atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := testRecord(1, 100)
		size := journal.Size(r.Tube, len(r.Body))
		for i := 0; pb.Next(); i++ {
			r.ID = id.Add(1)
			t, err := o.append(r)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := o.log.Delete(r.ID, journal.Former{Segment: t.Segment, Size: size}); err != nil {
				b.Error(err)
				return
			}
			if i%64 == 63 {
				o.log.Flush()
			}
		}
	})
}

// discardFS loses what is written to its files, so that a benchmark sees what
// appends and commits cost without the disk.
type discardFS struct{ vfs.FS }

func (d discardFS) Create(name string, _ int64) (vfs.File, error) {
	f, err := d.FS.Create(name, 0)
	return discardFile{f}, err
}

type discardFile struct{ vfs.File }

func (discardFile) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (discardFile) Allocate(int64) error                   { return nil }
func (discardFile) Truncate(int64) error                   { return nil }

// Puts and deletes of one or two goroutines, as loops do them: sixteen at a time,
// which then wait for their commit. There is no disk.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1000, 4000, 64_000} {
		for _, goroutines := range []int{1, 2} {
			b.Run(fmt.Sprintf("body=%d/goroutines=%d", size, goroutines), func(b *testing.B) {
				o := newOwner()
				if err := o.open(testDir, Options{Sync: SyncNever, FS: discardFS{faultfs.New(testDir)}, SegmentSize: 64 << 20}); err != nil {
					b.Fatal(err)
				}
				defer o.log.Close()
				b.SetBytes(journal.Size("default", size))
				b.ReportAllocs()
				var wg sync.WaitGroup
				for g := range goroutines {
					wg.Go(func() {
						r := testRecord(1, size)
						n := journal.Size(r.Tube, size)
						for i := g; i < b.N; i += goroutines {
							r.ID = uint64(i + 1)
							t, err := o.append(r)
							if err != nil {
								b.Error(err)
								return
							}
							pos, err := o.log.Delete(r.ID, journal.Former{Segment: t.Segment, Size: n})
							if err != nil {
								b.Error(err)
								return
							}
							if i/goroutines%16 != 15 {
								continue
							}
							for o.log.Flush(); o.log.Committed() < pos; {
								runtime.Gosched()
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func BenchmarkCommitWritten(b *testing.B) {
	o := benchLog(b, SyncEvery(50*time.Millisecond))
	r := testRecord(1, 100)
	size := journal.Size(r.Tube, len(r.Body))
	b.ReportAllocs()
	for i := range b.N {
		r.ID = uint64(i + 1)
		t, err := o.append(r)
		if err != nil {
			b.Fatal(err)
		}
		p, _ := o.log.Delete(r.ID, journal.Former{Segment: t.Segment, Size: size})
		o.log.Flush()
		for o.log.Committed() < p {
		}
	}
}

func BenchmarkCommitSynced(b *testing.B) {
	done := make(chan Pos, 1)
	o := newOwner()
	o.hooks.OnCommit = func(p Pos) {
		select {
		case done <- p:
		default:
		}
	}
	if err := o.open(b.TempDir(), Options{SegmentSize: DefaultSegmentSize}); err != nil {
		b.Fatal(err)
	}
	defer o.log.Close()
	r := testRecord(1, 100)
	b.ReportAllocs()
	for i := range b.N {
		r.ID = uint64(i + 1)
		t, err := o.append(r)
		if err != nil {
			b.Fatal(err)
		}
		o.log.Flush()
		for o.log.Committed() < t.Pos {
			<-done
		}
	}
}

type countRestorer struct{ jobs int }

func (c *countRestorer) Full(*Record, journal.Place) (f journal.Former, err error) {
	c.jobs++
	return f, nil
}
func (c *countRestorer) Update(*Record) error { return nil }

func (c *countRestorer) Setting(*Setting) error { return nil }

func (c *countRestorer) Hold(*journal.Hold) error { return nil }

// A million jobs of 100 bytes: the time is for all of them.
func BenchmarkReplayMillion(b *testing.B) {
	dir := b.TempDir()
	o := newOwner()
	if err := o.open(dir, Options{Sync: SyncNever, SegmentSize: DefaultSegmentSize}); err != nil {
		b.Fatal(err)
	}
	const jobs = 1_000_000
	r := testRecord(1, 100)
	for i := range jobs {
		r.ID = uint64(i + 1)
		if _, err := o.append(r); err != nil {
			b.Fatal(err)
		}
		if i%256 == 0 {
			o.log.Flush()
		}
	}
	if err := o.log.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		l, err := Open(dir, Options{Sync: SyncNever})
		if err != nil {
			b.Fatal(err)
		}
		var c countRestorer
		if err := l.Replay(&c); err != nil {
			b.Fatal(err)
		}
		if c.jobs != jobs {
			b.Fatal(c.jobs)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/1e6, "cpu-ms/op")
}

// cpuTime is what the process has used of the processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
