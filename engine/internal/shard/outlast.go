package shard

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// What is reserved in a tube that lingers outlives the server, if that has a log of its own: such reservations, and
// their touches, are on record as holds of no session, and their ends are, as any other change of a job. A server that
// starts has those jobs as orphans. While a tube does not linger nothing is recorded of its reservations, so that all
// of them are when it begins to.

// outlasts reports whether what is reserved in the tube is on record.
func (t *tube) outlasts() bool { return t.lingers() && t.shard.shared.reservations != nil }

// recordReserved records that a job of a tube that outlasts the server is reserved until end, and was so often then.
// It returns the position behind, 0 if there is no room for the record: then the job is ready after a restart.
func (sh *shard) recordReserved(j *job, end clock.Time, reserves uint32) journal.Pos {
	h := journal.Hold{ID: j.ID, End: sh.shared.wall(end), Reserves: reserves}
	pos, err := sh.shared.reservations.Hold(&h)
	if err != nil {
		return 0
	}
	sh.recorded(pos)
	return pos
}

// Outlast puts on record what is reserved in the tube of that name, which lingers from now on.
func (c *Tx) Outlast(tube string) Work {
	return &outlastScan{scanOf(c.shared.shardFor([]byte(tube)), tube), 0}
}

type outlastScan struct {
	scan
	recorded int
}

// Turn implements Work.
func (o *outlastScan) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	for !o.done() {
		sh := o.shard
		sh.lock(c, now)
		t := sh.byName[o.tube]
		if t == nil || !t.outlasts() || t.reserved == 0 {
			sh.unlock(c)
			break
		}
		before := o.recorded
		o.slice(t, func(_ ref, j *job) bool {
			if j.state == reserved {
				out.DependOn(sh.recordReserved(j, j.at(), sh.counters.At(j.counters).reserves))
				o.recorded++
			}
			return true
		})
		sh.unlock(c)
		if c.spend(o.recorded - before + scanCost); !c.left() {
			return o.recorded, !o.done(), nil
		}
	}
	return o.recorded, false, nil
}

// outlasted takes a reservation of no session: its job is an orphan of the server before. It goes on for no longer
// than its whole length, even if somebody has set the wall clock.
func (f *Follower) outlasted(sh *shard, r ref, j *job, h *journal.Hold) error {
	ch := sh.present(j)
	ch.counters.reserves = max(h.Reserves, 1) // a reserved job has counters
	ch.at = min(f.shared.sinceStart(h.End), f.now+clock.Seconds(j.ttr))
	if j.state == reserved {
		*sh.counters.At(j.counters) = ch.counters
		list := sh.reservations[j.Next]
		list.jobs.Remove(sh.table, &j.Links)
		j.At = int64(ch.at)
		list.add(r, j)
		return nil
	}
	ch.to, ch.holder = reserved, &sh.tubes[j.tube].orphansOf("", ServerStops).ReservationSet
	if err := sh.provide(j, &ch); err != nil {
		return err
	}
	sh.apply(r, j, &ch)
	return nil
}

// beginLingering has orphans of the server before linger from now on, where their tube lingers, and ends the others.
// The shard is locked, and still.
func (sh *shard) beginLingering() {
	for _, t := range sh.byName {
		if !t.lingers() {
			t.endOrphans()
			continue
		}
		for _, o := range t.orphans {
			h, end := &o.oldest, sh.now+clock.Seconds(t.policy.Linger)
			var all []ref
			for r := range h.jobs.All() {
				all = append(all, r)
			}
			for _, r := range all {
				j := sh.job(r)
				h.jobs.Remove(sh.table, &j.Links)
				h.jobs.Push(sh.table, min(j.at(), end).Key(), r, &j.Links)
			}
			sh.arm(&h.timer, h.deadline())
		}
	}
}
