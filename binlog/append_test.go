package binlog

import (
	"sync/atomic"
	"testing"

	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

// An append that is still filling its part of a batch holds up the writer of that
// batch, and nobody else.
func TestNoRecordIsWrittenBeforeItIsEncoded(t *testing.T) {
	t.Parallel()
	o := newOwner()
	fs := faultfs.New(testDir)
	if err := o.open(testDir, Options{FS: fs, Sync: SyncNever}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	l := o.log
	if _, err := o.put(testRecord(1, 10)); err != nil {
		t.Fatal(err)
	}
	l.Flush()
	var encoded atomic.Bool
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "write" && !encoded.Load() {
			t.Error("bytes were written that were not encoded yet")
		}
		return faultfs.Fault{}
	})

	// An append that has its place and is slow to fill it.
	l.mu.Lock()
	b, seg := l.append(record.UpdateSize)
	encoders := l.batch.encoders
	encoders.Add(1)
	l.mu.Unlock()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		l.Flush()
	}()
	eventually(t, "the writer to take the batch", func() bool { return l.pending.Load() == 0 })
	if _, err := o.put(testRecord(2, 2*encodeOutside)); err != nil {
		t.Fatal(err)
	}
	r := o.snapshot1(1)
	r.State, r.BuryOrder = Buried, 1
	record.EncodeUpdate(b, seg.salt, &r)
	o.jobs[1].apply(&r)
	encoded.Store(true)
	encoders.Done()
	<-flushed
	l.Flush()
	eventually(t, "the commit", func() bool { return l.Stats().PendingBytes == 0 })

	again := newOwner()
	if err := again.open(testDir, Options{FS: fs.Killed()}); err != nil {
		t.Fatal(err)
	}
	defer again.log.Close()
	if d := diff(again.snapshot(), o.snapshot()); d != "" {
		t.Error(d)
	}
}

// A loop that flushes is not held up by the write of a large job, nor by another
// loop that still encodes one.
func TestFlushLeavesALargeWriteToTheCommitter(t *testing.T) {
	t.Parallel()
	o := newOwner()
	fs := faultfs.New(testDir)
	if err := o.open(testDir, Options{FS: fs, Sync: SyncNever}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	pos, err := o.put(testRecord(1, 2*flushSize))
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "write" {
			<-written
		}
		return faultfs.Fault{}
	})
	o.log.Flush() // returns while the write stands still
	close(written)
	eventually(t, "the commit", func() bool { return o.log.Committed() >= pos })
}
