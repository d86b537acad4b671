package binlog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// keyedRecord is a job that leaves a tombstone.
func keyedRecord(id uint64, body int) *Record {
	r := testRecord(id, body)
	r.Keys = journal.Keys{Unique: fmt.Sprintf("key%d", id), Seconds: 60, Limited: "c", Limit: 2}
	return r
}

func tombstoneOf(r *Record) *Record {
	return &Record{ID: r.ID, State: journal.Deleted, Due: 5, Tube: r.Tube, Keys: r.Keys.Tombstone()}
}

// Room for a tombstone is kept from the put on, and for its end.
func TestAFullDiskRefusesNoTombstones(t *testing.T) {
	t.Parallel()
	for name, policy := range levels {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Options{Sync: policy, SegmentSize: MinSegmentSize})
			c.fs.SetCapacity(200 << 10)
			for {
				c.nextID++
				r := keyedRecord(c.nextID, 100+int(c.nextID%50))
				if c.nextID%3 == 0 {
					r = testRecord(c.nextID, 100)
				}
				pos, err := c.put(r)
				if errors.Is(err, ErrNoSpace) {
					break
				}
				c.done(pos, err)
			}
			jobs := c.snapshot()
			if len(jobs) < 100 {
				t.Fatalf("only %d jobs", len(jobs))
			}
			for id, r := range jobs {
				if r.Keys != (journal.Keys{}) && id%5 > 0 {
					if _, err := c.replace(tombstoneOf(&r)); err != nil {
						t.Fatalf("tombstone of job %d: %v", id, err)
					}
				}
			}
			for id := range jobs {
				c.end(id)
			}
			eventually(t, "puts to be accepted", func() bool {
				c.nextID++
				_, err := c.put(keyedRecord(c.nextID, 100))
				if err != nil && !errors.Is(err, ErrNoSpace) {
					t.Fatal(err)
				}
				return err == nil
			})
			if got, want := c.log.room.tombstones, journal.TombstoneSize("default", &keyedRecord(c.nextID, 0).Keys); got != want {
				t.Errorf("%d bytes are kept for the tombstone of one job, want %d", got, want)
			}
		})
	}
}

// Tombstones do not fill segments to the end, and the keeper does not give back the room for
// that.
func TestAFullDiskRefusesNoTombstonesThatLeaveMuchOfTheirSegmentsUnused(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.openStill(testDir, Options{FS: fs, SegmentSize: MinSegmentSize}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	l := o.log
	const jobs = 500
	for id := uint64(1); id <= jobs; id++ {
		r := testRecord(id, 0)
		r.Tube = strings.Repeat("t", 190) // eleven tombstones, and no room for much of another one
		r.Keys = journal.Keys{Unique: fmt.Sprintf("%064d", id), Seconds: 60}
		if _, err := o.put(r); err != nil {
			t.Fatal(err)
		}
	}
	l.keepRoom(true)
	o.work = func() { l.keepRoom(true) }
	fs.Hook(noSpace)
	for id, r := range o.snapshot() {
		if _, err := o.replace(tombstoneOf(&r)); err != nil {
			t.Fatalf("tombstone of job %d: %v", id, err)
		}
	}
	for id := range o.snapshot() {
		err := o.inRoom(func() error {
			_, err := o.delete(id)
			return err
		})
		if err != nil {
			t.Fatalf("end of the tombstone of job %d: %v", id, err)
		}
	}
}

// However often it is compacted, a log keeps its tombstones, and not the jobs that have
// left them.
func TestCompactionKeepsTombstones(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: MinSegmentSize})
	first := keyedRecord(1, 3000)
	c.nextID = 1
	c.done(c.put(first))
	c.done(c.replace(tombstoneOf(first)))
	for c.log.Stats().SegmentsRemoved < 20 {
		c.nextID++
		c.done(c.put(testRecord(c.nextID, 1000)))
		c.end(c.nextID)
		c.log.Flush()
	}
	if n := c.jobs[1].place.Segment; n < 5 {
		t.Errorf("the tombstone is still in segment %d", n)
	}
	want := c.snapshot()
	if err := c.log.Close(); err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	if err := o.open(testDir, Options{FS: c.fs.Killed(), SegmentSize: MinSegmentSize}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if d := diff(o.snapshot(), want); d != "" {
		t.Error(d)
	}
	if r := o.jobs[1]; r == nil || r.State != journal.Deleted || r.Keys.Unique != "key1" {
		t.Errorf("job 1 is %+v", r)
	}
}

// An owner's timers may be faster than Start: what they do waits.
func TestAnAppendBeforeTheStartFindsNoRoom(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	c.newJob(10)
	if err := c.log.Close(); err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	l, err := Open(testDir, Options{FS: c.fs.Killed()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Replay(o); err != nil {
		t.Fatal(err)
	}
	for id, j := range o.jobs {
		if _, err := l.Delete(id, j.former()); !errors.Is(err, ErrRoom) {
			t.Fatalf("a delete before the start: %v", err)
		}
		if err := l.Start(Hooks{}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Delete(id, j.former()); err != nil {
			t.Errorf("a delete after the start: %v", err)
		}
	}
}

// The same while Start runs.
func TestAppendsAreRefusedUntilTheLogHasStarted(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	c.newJob(10)
	if err := c.log.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(testDir, Options{FS: c.fs.Killed()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := newOwner()
	if err := l.Replay(o); err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			r := testRecord(l.NextID(), 10)
			r.Keys = journal.Keys{Unique: "key", Seconds: 9}
			_, err := l.Put(r)
			if n == 0 {
				close(began)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, ErrRoom) {
				t.Error(err)
				return
			}
		}
	}()
	<-began
	if err := l.Start(Hooks{}); err != nil {
		t.Fatal(err)
	}
	<-ended
}
