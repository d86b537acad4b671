//go:build proof

package binlog

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/vfs/faultfs"
)

// A disk that gives nothing for a while is no damage: compaction goes on when it gives something.
func TestCompactionOutlastsADiskThatGivesNothing(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	var dying, failed sync.Map
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if _, ok := dying.Load(0); ok && c.Op == "read" {
			failed.Store(0, 0)
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	o := newOwner()
	withDesk(o)
	if err := o.open(testDir, Options{FS: fs, SegmentSize: MinSegmentSize}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	dying.Store(0, 0)
	o.put(testRecord(1, 100))
	o.pass(t, 2, 200)
	eventually(t, "a read", func() bool { _, ok := failed.Load(0); return ok })
	time.Sleep(200 * time.Millisecond) // it has tried three times, and a probe
	dying.Delete(0)
	next := uint64(201)
	eventually(t, "compaction", func() bool {
		o.pass(t, next, next+9)
		next += 10
		return o.log.Stats().OldestSegment > 1
	})
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	for _, seg := range o.log.segs {
		if seg.stuck {
			t.Errorf("%s is stuck", seg.name)
		}
	}
}
