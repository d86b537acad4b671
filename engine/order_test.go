package engine

import (
	"testing"

	"trellis/binlog/journal"
)

// finder looks for each job while it is being recorded.
type finder struct {
	*file
	engine *Engine
	missed []uint64
}

func (f *finder) Put(r *journal.Record) (journal.Ticket, error) {
	if f.engine.ids.get(r.ID) == 0 {
		f.missed = append(f.missed, r.ID)
	}
	return f.file.Put(r)
}

// Compaction may come to a job's record as soon as that is made, and asks Migrate
// once only.
func TestAJobCanBeFoundBeforeItIsOnRecord(t *testing.T) {
	s := newSim(100, 1)
	f := &finder{file: newFile(nil), engine: s.engine}
	s.engine.cfg.Journal = f
	c := s.open()
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "put 0 0 9 1\r\nx\r\nput 0 10 9 1\r\nx\r\n")
	if len(f.missed) > 0 {
		t.Errorf("jobs %d cannot be found", f.missed)
	}
	// One that cannot be recorded is not found afterwards.
	f.err = journal.ErrNoSpace
	c.expect(t, "OUT_OF_MEMORY\r\n", "put 0 0 9 1\r\nx\r\n")
	if s.engine.ids.get(3) != 0 {
		t.Error("a job that was refused can be found")
	}
}
