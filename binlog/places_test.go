package binlog

import (
	"errors"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

// fullRecords are the ids of the full records that are on disk, by place.
func fullRecords(t *testing.T, fs *faultfs.FS, segs []*segment) map[journal.Place]uint64 {
	t.Helper()
	at := map[journal.Place]uint64{}
	var sc record.Scanner
	for _, seg := range segs {
		for b, gap := range sc.File(fs, seg.name, &seg.Header, seg.used) {
			if gap != nil {
				t.Fatalf("%s: %v", seg.name, gap.Err)
			}
			if record.KindOf(b) == record.Full {
				at[seg.place(sc.Offset()-int64(len(b)))] = record.Number(b)
			}
		}
	}
	return at
}

// The same place is told when a record is appended and when it is recovered, whoever has appended it.
func TestARecordIsWhereItsOwnerIsToldThatItIs(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize}); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id <= 40; id++ {
		o.put(testRecord(id, int(id)*41))
	}
	for id := uint64(1); id <= 40; id += 3 {
		o.replace(testRecord(id, int(id)*41))
	}
	o.pass(t, 41, 600) // compaction moves what is left of the first segments
	for id := uint64(2); id <= 40; id += 3 {
		o.delete(id)
	}
	eventually(t, "compaction", func() bool { return o.log.Stats().Migrated > 0 })
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	at := fullRecords(t, fs, o.log.segs)
	for id, j := range o.jobs {
		if got := at[j.place]; got != id {
			t.Errorf("job %d should be at %v, where there is %d", id, j.place, got)
		}
	}
	again := newOwner()
	l, err := Open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Replay(again), l.Close()); err != nil {
		t.Fatal(err)
	}
	for id, j := range o.jobs {
		if got := again.jobs[id].place; got != j.place {
			t.Errorf("job %d was at %v, and is at %v after a restart", id, j.place, got)
		}
	}
}
