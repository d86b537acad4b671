package shard

import (
	"fmt"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
)

// finder looks for each job while it is being recorded.
type finder struct {
	*file
	engine *Engine
	missed []uint64
}

func (f *finder) Put(r *journal.Record) (journal.Ticket, error) {
	if f.engine.ids.Get(r.ID) == 0 {
		f.missed = append(f.missed, r.ID)
	}
	return f.file.Put(r)
}

// Compaction may come to a job's record as soon as that is made, and asks Migrate
// once only.
func TestAJobCanBeFoundBeforeItIsOnRecord(t *testing.T) {
	s := newSim(100, 1)
	f := &finder{file: newFile(nil), engine: s.engine}
	s.engine.log.Journal = f
	c := s.open()
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "put 0 0 9 1\r\nx\r\nput 0 10 9 1\r\nx\r\n")
	if len(f.missed) > 0 {
		t.Errorf("jobs %d cannot be found", f.missed)
	}
	// One that cannot be recorded is not found afterwards.
	f.err = journal.ErrNoSpace
	c.expect(t, "OUT_OF_MEMORY\r\n", "put 0 0 9 1\r\nx\r\n")
	if s.engine.ids.Get(3) != 0 {
		t.Error("a job that was refused can be found")
	}
}

// watchful checks for each record whether the shard is locked meanwhile.
type watchful struct {
	*cramped
	engine *Engine
	locked []bool // for each put
}

func (w *watchful) Put(r *journal.Record) (journal.Ticket, error) {
	sh := w.engine.defaultTube.shard
	locked := !sh.mu.TryLock()
	if !locked {
		sh.mu.Unlock()
	}
	w.locked = append(w.locked, locked)
	return w.cramped.Put(r)
}

// To record a large body is to copy it, and nobody waits for that at a lock.
func TestALargeBodyIsRecordedWithoutTheLockOfItsShard(t *testing.T) {
	for _, size := range []int{0, 100, pinnedSize - 1, pinnedSize, 150_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newSim(200_000, 1)
			f := &watchful{cramped: &cramped{file: newFile(nil), room: true}, engine: s.engine}
			s.engine.log.Journal = f
			c := s.open()
			body := strings.Repeat("x", size)
			// In one piece and in several, ready and delayed.
			c.expect(t, "INSERTED 1\r\n", "put 5 0 9 %d\r\n%s\r\n", size, body)
			c.expect(t, "", "put 5 7 0 %d\r\n", size)
			c.expect(t, "INSERTED 2\r\n", "%s\r\n", body)
			if got, want := f.locked[1], size < pinnedSize; got != want {
				t.Errorf("recorded under the lock: %v, want %v", got, want)
			}
			for id, x := range f.jobs {
				p := s.engine.ids.Get(id)
				sh := s.engine.shards[p.Shard()]
				j := sh.job(p.Ref())
				ch := sh.present(j)
				if got := sh.describe(j, &ch); !same(got, &x.record) || j.segment != x.segment {
					t.Errorf("job %d in segment %d is on record as %+v in %d, is %+v", id, j.segment, x.record, x.segment, got)
				}
			}
			c.expect(t, "DELETED\r\nDELETED\r\n", "delete 1\r\ndelete 2\r\n")
			if len(f.jobs) != 0 {
				t.Errorf("%d jobs are left on record", len(f.jobs))
			}
		})
	}
}

// The shard may have no memory for a job that is on record already.
func TestALargePutThatFailsAfterItsRecordIsTakenOffTheRecord(t *testing.T) {
	s := newSim(200_000, 1)
	f := &cramped{file: newFile(nil), room: true}
	s.engine.log.Journal = f
	c := s.open()
	body := strings.Repeat("x", 100_000)
	c.expect(t, "", "put 0 0 9 %d\r\n%s", len(body), body)
	sh := s.engine.defaultTube.shard
	sh.jobs = arena.Slab[job]{} // it can allocate nothing
	c.expect(t, "OUT_OF_MEMORY\r\n", "\r\n")
	sh.jobs = arena.NewSlab[job]()
	if len(f.jobs) != 0 {
		t.Errorf("%d jobs are on record", len(f.jobs))
	}
}
