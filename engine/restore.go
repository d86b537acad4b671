package engine

import (
	"cmp"
	"fmt"
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
)

// Restorer fills an engine with the jobs that a journal holds, before any
// session is opened. It is for one goroutine.
type Restorer struct {
	engine *Engine
	caller caller
	last   struct { // the tube of the last record, since records of one tube come in rows
		name string
		tube *tube
	}
}

// Restore begins to fill the engine.
func (e *Engine) Restore() *Restorer { return &Restorer{engine: e} }

// Full takes the whole state of a job, which replaces an earlier one. It returns
// the segment in which that stood, 0 if there was none.
func (rs *Restorer) Full(r *journal.Record, segment uint32) (replaced uint32, err error) {
	e := rs.engine
	if p := e.ids.get(r.ID); p != 0 {
		sh := e.shards[p.shard()]
		_, j := sh.find(r.ID)
		replaced, j.segment = j.segment, segment
		return replaced, sh.restoreState(j, r)
	}
	t := rs.last.tube
	if t == nil || rs.last.name != r.Tube {
		t = e.shardFor([]byte(r.Tube)).tube([]byte(r.Tube), 0)
		rs.last.name, rs.last.tube = t.name, t
	}
	sh := t.shard
	if e.cfg.Limits.Memory != 0 {
		e.usage.memory.Add(jobMemory + arena.Footprint(uint32(len(r.Body))))
	}
	body, err := sh.bodies.Alloc(uint32(len(r.Body)))
	if err != nil {
		return 0, fmt.Errorf("restoring job %d: %w", r.ID, err)
	}
	copy(sh.bodies.Bytes(body, uint32(len(r.Body))), r.Body)
	ref, err := sh.jobs.Alloc()
	if err == nil && ref > maxJobRef {
		err = errTooManyJobs
	}
	if err != nil {
		return 0, fmt.Errorf("restoring job %d: %w", r.ID, err)
	}
	j := sh.job(ref)
	*j = job{
		id: r.ID, created: e.sinceStart(r.Created), ttr: max(r.TTR, 1),
		size: uint32(len(r.Body)), body: body, tube: t.index, segment: segment,
	}
	e.ids.put(r.ID, placeOf(sh.number, ref))
	return 0, sh.restoreState(j, r)
}

// Update takes a later state of a job.
func (rs *Restorer) Update(r *journal.Record) error {
	e := rs.engine
	p := e.ids.get(r.ID)
	if p == 0 {
		return nil
	}
	sh := e.shards[p.shard()]
	_, j := sh.find(r.ID)
	return sh.restoreState(j, r)
}

// restoreState notes a job's state without queueing it: at then holds what its
// place among its like depends on.
func (sh *shard) restoreState(j *job, r *journal.Record) error {
	j.pri = r.Pri
	switch r.State {
	case journal.Delayed:
		j.state, j.at = delayed, sh.engine.sinceStart(r.Due)
	case journal.Buried:
		j.state, j.at = buried, Time(r.BuryOrder)
	default:
		j.state, j.at = ready, 0
	}
	counted := r.Delay | r.Reserves | r.Timeouts | r.Releases | r.Buries | r.Kicks
	if counted == 0 && j.tally == 0 {
		return nil
	}
	n, err := sh.tallyOf(j)
	if err != nil {
		return fmt.Errorf("restoring job %d: %w", r.ID, err)
	}
	*n = tally{
		delay: r.Delay, reserves: r.Reserves, timeouts: r.Timeouts,
		releases: r.Releases, buries: r.Buries, kicks: r.Kicks,
	}
	return nil
}

// Done queues all jobs. nextID is the first id that was never used. No delay is
// longer than when it began, even if the wall clock has been set back.
func (rs *Restorer) Done(nextID uint64, now Time) {
	e := rs.engine
	e.lastID.Store(max(nextID, 1) - 1)
	e.ids.restored(max(nextID, 1))
	for _, sh := range e.shards {
		sh.lock(&rs.caller, now)
		sh.queueRestored(now)
		sh.unlock(&rs.caller)
	}
}

func (sh *shard) queueRestored(now Time) {
	var toReady, toBury []ref
	sh.jobs.Walk(^ref(0), sh.jobs.Live(), func(r ref) {
		switch j := sh.job(r); {
		case j.state == delayed && j.at > now:
			due := j.at
			if j.tally != 0 {
				due = min(due, now+seconds(sh.tallies.At(j.tally).delay))
			}
			sh.makeDelayed(r, j, due)
		case j.state == buried:
			toBury = append(toBury, r)
		default:
			toReady = append(toReady, r)
		}
	})
	byID := func(a, b ref) int { return cmp.Compare(sh.job(a).id, sh.job(b).id) }
	slices.SortFunc(toReady, byID)
	for _, r := range toReady {
		sh.makeReady(r, sh.job(r), now)
	}
	slices.SortFunc(toBury, func(a, b ref) int {
		return cmp.Or(cmp.Compare(sh.job(a).at, sh.job(b).at), byID(a, b))
	})
	for _, r := range toBury {
		j := sh.job(r)
		sh.journal.buries = max(sh.journal.buries, uint64(j.at))
		sh.tubes[j.tube].buried.append(sh, r, j)
	}
}
