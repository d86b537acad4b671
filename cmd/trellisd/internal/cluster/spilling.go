package cluster

import (
	"trellis/binlog/journal"
	"trellis/binlog/spill"
	"trellis/engine"
)

// spilling is an engine that is fed, and whose bodies leave memory also while it serves: a replica.Spilling.
type spilling struct {
	fed
	engine *engine.Engine
}

// SpillTo implements replica.Spilling.
func (s spilling) SpillTo(l *spill.Life) {
	s.queue.life.Store(l)
	s.engine.SpillTo(l)
}

// Spill implements replica.Spilling.
func (s spilling) Spill(most int, give func(*journal.Record) (more bool)) (freed int64, more bool) {
	return s.engine.Spill(most, give)
}

// BodyMemory implements replica.Spilling.
func (s spilling) BodyMemory() int64 { return s.engine.BodyMemory() }

// Spilled implements spill.Owner.
func (s spilling) Spilled(id uint64, at journal.Place) bool { return s.engine.Spilled(id, at) }

// Leaves implements spill.Owner.
func (s spilling) Leaves(id uint64, at journal.Place) bool { return s.engine.Leaves(id, at) }

// Moved implements spill.Owner.
func (s spilling) Moved(id uint64, from, to journal.Place) bool { return s.engine.Moved(id, from, to) }

// Loaded implements spill.Owner.
func (s spilling) Loaded(list []journal.Fetched) { s.engine.Loaded(list) }

// coldJob is a job as a walk has met it, whose body is not in memory.
type coldJob struct {
	record journal.Record
	fetch  journal.Fetch
	hold   *journal.Hold
}

func coldOf(r *journal.Record, h *journal.Hold) coldJob {
	c := coldJob{record: *r, fetch: *r.Absent}
	c.record.Absent = nil
	if h != nil {
		c.hold = new(*h)
	}
	return c
}

// byPlace orders jobs as their bodies lie, which is read in one go.
func byPlace(a, b coldJob) int { return a.fetch.Place.Compare(b.fetch.Place) }

// sum adds the job to a digest.
func (c *coldJob) sum(d *journal.Digester, bodies *spill.Reader) (err error) {
	if c.record.Body, err = bodies.Body(&c.fetch); err != nil {
		return err
	}
	return d.Add(&c.record, c.hold)
}
