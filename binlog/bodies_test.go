package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// desk is where an owner's goroutines get the bodies that they have asked for: each has a turn of its own.
type desk struct {
	mu    sync.Mutex
	waits map[uint64]chan journal.Fetched
	turns uint64
}

func (d *desk) fetched(found []journal.Fetched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range found {
		f.Body = bytes.Clone(f.Body)
		d.waits[f.Turn] <- f
		delete(d.waits, f.Turn)
	}
}

// fetch asks for the body at a place, and waits for it.
func (d *desk) fetch(l *Log, f journal.Fetch) ([]byte, error) {
	c := make(chan journal.Fetched, 1)
	d.mu.Lock()
	d.turns++
	f.Turn = d.turns
	d.waits[f.Turn] = c
	d.mu.Unlock()
	l.Load([]journal.Fetch{f})
	got := <-c
	return got.Body, got.Err
}

// withDesk gives an owner a desk. It comes before open.
func withDesk(o *owner) *desk {
	d := &desk{waits: map[uint64]chan journal.Fetched{}}
	o.hooks.Fetched = d.fetched
	return d
}

// where is what to ask for to get the body of a job.
func (o *owner) where(id uint64) journal.Fetch {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[id]
	return journal.Fetch{ID: id, Place: j.place, Size: uint32(len(j.Body))}
}

// While compaction moves jobs and removes files, what is told is the right body, or that it has moved. And no
// number of a file is used again that had records.
func TestBodiesAreReadWhileCompactionMovesThem(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := faultfs.New(testDir)
			var mu sync.Mutex
			again, had := "", map[string]bool{}
			fs.Hook(func(c faultfs.Call) (f faultfs.Fault) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case c.Op == "write":
					had[c.Name] = true
				case c.Op == "create" && had[c.Name]:
					again = c.Name
				}
				return f
			})
			o := newOwner()
			d := withDesk(o)
			if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize, Sync: policy}); err != nil {
				t.Fatal(err)
			}
			const jobs = 20
			for id := uint64(1); id <= jobs; id++ {
				o.put(testRecord(id, int(id)*50))
			}
			end := make(chan struct{})
			var readers sync.WaitGroup
			moved, read := 0, 0
			for n := range 3 {
				readers.Go(func() {
					for k := uint64(n); ; k++ {
						select {
						case <-end:
							return
						default:
						}
						f := o.where(k%jobs + 1)
						f.Lane = journal.Lane(n)
						body, err := d.fetch(o.log, f)
						mu.Lock()
						switch {
						case errors.Is(err, journal.ErrMoved):
							moved++
						case err != nil || !bytes.Equal(body, testRecord(f.ID, int(f.ID)*50).Body):
							t.Errorf("job %d at %v: %d bytes, %v", f.ID, f.Place, len(body), err)
						default:
							read++
						}
						mu.Unlock()
					}
				})
			}
			for first := uint64(100); o.log.Stats().OldestSegment < 15; first += 100 {
				o.pass(t, first, first+99)
			}
			close(end)
			readers.Wait()
			if err := o.log.Close(); err != nil {
				t.Error(err)
			}
			if again != "" {
				t.Errorf("%s was made again", again)
			}
			if read == 0 {
				t.Errorf("%d were read, %d had moved", read, moved)
			}
		})
	}
}

// What lies in the log's batch is no damage, and is not waited for longer than a commit takes.
func TestABodyThatIsNotWrittenYetIsReadSoon(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwner()
			d := withDesk(o)
			if err := o.open(testDir, Options{FS: faultfs.New(testDir), Sync: policy}); err != nil {
				t.Fatal(err)
			}
			defer o.log.Close()
			for id := uint64(1); id <= 50; id++ {
				o.put(testRecord(id, 1000))
				if body, err := d.fetch(o.log, o.where(id)); err != nil || !bytes.Equal(body, testRecord(id, 1000).Body) {
					t.Fatalf("job %d: %d bytes, %v", id, len(body), err)
				}
			}
		})
	}
}

func TestALogThatHasFailedGivesWhatItHasWritten(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	o := newOwner()
	d := withDesk(o)
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	o.put(testRecord(1, 100))
	o.log.Flush()
	eventually(t, "a commit", func() bool { return o.log.Stats().PendingBytes == 0 })
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "write" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	o.put(testRecord(2, 100))
	if _, err := d.fetch(o.log, o.where(2)); !errors.Is(err, ErrFailed) {
		t.Errorf("what will never be written: %v", err)
	}
	if _, err := d.fetch(o.log, o.where(1)); err != nil {
		t.Errorf("what was written: %v", err)
	}
	if err := o.log.Close(); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
}

func TestADamagedBodyIsUnreadableAndLogged(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	var log bytes.Buffer
	o := newOwner()
	d := withDesk(o)
	if err := o.open(testDir, Options{FS: fs, Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	o.put(testRecord(1, 100))
	f := o.where(1)
	if _, err := d.fetch(o.log, f); err != nil {
		t.Fatal(err)
	}
	at := int64(f.Place.Offset) * 8
	file, err := fs.Open(o.log.path(f.Place.Segment))
	if err == nil {
		_, err = file.WriteAt([]byte{7}, at+120)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.fetch(o.log, f); !errors.Is(err, journal.ErrUnreadable) {
		t.Error(err)
	}
	o.log.Close()
	if want := fmt.Sprintf("job=1 file=%s offset=%d", o.log.path(1), at); !strings.Contains(log.String(), want) {
		t.Errorf("logged %q, want %q", log.String(), want)
	}
}

// Memory may go only for what is durable, not for what is committed.
func TestWhatIsDurableIsKnownAndCanBeHurried(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, Sync: SyncEvery(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	first, _ := o.put(testRecord(1, 100))
	o.log.Flush()
	eventually(t, "a commit", func() bool { return o.log.Committed() >= first })
	if o.log.Durable() >= first {
		t.Error("it is durable before it is synced")
	}
	second, _ := o.put(testRecord(2, 100)) // not even flushed
	eventually(t, "a sync", func() bool { o.log.Hurry(); return o.log.Durable() >= second })
	third, _ := o.put(testRecord(3, 100))
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	eventually(t, "a failure", func() bool { o.log.Hurry(); return o.log.Stats().Failed })
	if o.log.Durable() >= third {
		t.Error("it is durable although the sync has failed")
	}
	o.log.Close()
}

// A timer of the owner's may want a body before the log has begun its run.
func TestABodyThatIsAskedForBeforeTheStartIsReadThen(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	o.put(testRecord(1, 100))
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	f := o.where(1)
	l, err := Open(testDir, Options{FS: fs})
	if err == nil {
		err = l.Replay(newOwner())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Load([]journal.Fetch{f})
	told := make(chan journal.Fetched, 1)
	if err := l.Start(Hooks{Fetched: func(found []journal.Fetched) {
		found[0].Body = bytes.Clone(found[0].Body)
		told <- found[0]
	}}); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got.Err != nil || !bytes.Equal(got.Body, testRecord(1, 100).Body) {
		t.Errorf("%d bytes, %v", len(got.Body), got.Err)
	}
}
