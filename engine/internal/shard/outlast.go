package shard

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// What is reserved in a tube that lingers outlives the server, if that has a log: such reservations, and their touches,
// are on record as holds of no session, and their ends are, as any other change of a job. A server that starts, or
// that takes over, has those jobs as orphans, which linger from then on, and so have those who follow its log. While
// a tube does not linger nothing is recorded of its reservations, so that all of them are when it begins to; when it
// ceases to, all of its holds of no session have ended. Those of a session on record are its own until it leaves: see
// closing.leave.

// outlasts reports whether what is reserved in the tube is on record.
func (t *tube) outlasts() bool { return t.lingers() && t.shard.shared.log.Reservations != nil }

// recordReserved records that a job of a tube that outlasts the server is reserved until end, and was so often then.
// It returns the position behind, 0 if there is no room for the record: then the job is ready after a restart.
func (sh *shard) recordReserved(j *job, end clock.Time, reserves uint32) journal.Pos {
	h := journal.Hold{ID: j.ID, End: sh.shared.wall(end), Reserves: reserves}
	pos, err := sh.shared.log.Reservations.Hold(&h)
	if err != nil {
		return 0
	}
	sh.recorded(pos)
	return pos
}

// An outlastScan puts on record what is reserved in a tube, which lingers from now on.
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
			if j.state == reserved && sh.reservations[j.Next].of.holder == nil {
				out.DependOn(sh.recordReserved(j, j.endOnRecord(), sh.counters.At(j.counters).reserves))
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

// outlasted takes a reservation of no session: its job is an orphan of the server before, or of the one that is
// followed. After a restart it goes on for no longer than its whole length, even if somebody has set the wall clock.
func (f *Follower) outlasted(sh *shard, r ref, j *job, h *journal.Hold) error {
	t := sh.tubes[j.tube]
	f.contradiction(!t.lingers())
	ch := sh.present(j)
	ch.counters.reserves = max(h.Reserves, 1) // a reserved job has counters
	if ch.at = f.shared.sinceStart(h.End); f.now != clock.Always {
		ch.at = min(ch.at, f.now+clock.Seconds(j.ttr))
	}
	o := t.orphansOf("", serverStops, byRelease)
	if j.state == reserved {
		*sh.counters.At(j.counters) = ch.counters
		j.At = int64(ch.at)
		sh.hand(r, j, &o.oldest, ch.at)
		return nil
	}
	ch.to, ch.holder = reserved, &o.ReservationSet
	if err := sh.provide(j, &ch); err != nil {
		return err
	}
	sh.apply(r, j, &ch)
	return nil
}

// ceaseLingering makes ready the orphans of a tube that does not linger any more: so they are where the setting was
// made, or are about to be. The shard is locked.
func (f *Follower) ceaseLingering(t *tube) {
	for len(t.orphans) > 0 {
		o := t.orphans[0]
		for o.oldest.jobs.Len() > 0 {
			r := o.oldest.jobs.First().Ref
			t.shard.makeReady(r, t.shard.job(r))
		}
		o.forget()
	}
}

// beginLingering has orphans linger from now on, where their tube lingers, and ends the others.
// The shard is locked, and still.
func (sh *shard) beginLingering() {
	for _, t := range sh.tubes {
		switch {
		case t == nil:
			continue
		case !t.lingers():
			t.endOrphans()
			continue
		}
		for _, o := range t.orphans {
			h, end := &o.oldest, sh.now+clock.Seconds(t.policy.Linger)
			for _, r := range slices.Collect(h.jobs.All()) {
				j := sh.job(r)
				sh.hand(r, j, h, min(j.at(), end))
			}
		}
	}
}
