package shard

import (
	"errors"
	"math/bits"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/spread"
)

// A cause is how a reservation has ended that did not end well.
type cause uint8

const (
	byRelease cause = iota
	byTimeOut
	byDisconnect // the connection of its client has ended
	byStop       // so it has because the server stops: that is no failure
	byUnread     // the job's body could not be loaded: nor is that
	numCauses
)

// A fate is what becomes of a job whose reservation has ended.
type fate uint8

const (
	goesOn     fate = iota // it is ready, or delayed as its client wants
	backsOff               // it is delayed because it has failed
	deadLetter             // it is buried in the dead tube
	expired                // so it is if its tube's setting names one, and otherwise deleted
)

// counts reports whether the end of a reservation is an attempt.
func (t *tube) counts(by cause) bool {
	switch by {
	case byStop, byUnread:
		return false
	case byDisconnect:
		return t.policy != nil && t.policy.Disconnects
	}
	return true
}

// failed decides what becomes of a job of t by the end of its reservation, and nothing else does. ch is
// the job as it is, with the priority and delay of a release; it becomes what the end makes of the
// job, but for a dead letter's place.
func (sh *shard) failed(t *tube, j *job, ch *change, by cause) fate {
	counts := t.counts(by)
	switch by {
	case byRelease:
		ch.counters.releases++
	case byTimeOut:
		ch.counters.timeouts++
	}
	if counts {
		ch.counters.attempts++
	}
	ch.to = ready
	if !j.plain(t) {
		if what := sh.judge(t, j, ch, by, counts); what != goesOn {
			return what
		}
	}
	if by == byRelease && ch.counters.delay > 0 {
		ch.to, ch.at = delayed, sh.now+clock.Seconds(ch.counters.delay)
	}
	return goesOn
}

// judge is the part of failed for a job that is not plain: whether that goes on.
func (sh *shard) judge(t *tube, j *job, ch *change, by cause, counts bool) fate {
	switch p := t.policy; {
	case counts && p != nil && p.Attempts > 0 && ch.counters.attempts >= p.Attempts:
		return deadLetter
	case sh.overdue(j):
		return expired
	case by == byRelease && ch.counters.delay > 0: // as its client wants
	case counts && p != nil && p.RetryMin > 0:
		d := backOff(p, j.ID, ch.counters.attempts)
		ch.to, ch.at = delayed, sh.now+d
		ch.counters.delay = uint32((d + clock.Second - 1) / clock.Second) // a restart lets it last no longer than this
		return backsOff
	}
	return goesOn
}

// buries reports whether a job goes to the dead tube by its fate.
func (t *tube) buries(what fate) bool {
	return what == deadLetter || what == expired && t.policy != nil && t.policy.Dead != ""
}

// lapse ends a reservation that its client has not ended. One of which the client was not told, because the job's body
// was not in memory, has not failed. It returns nil; or, if the lock of the
// dead tube's shard is not to be had, that shard, and has changed nothing.
func (sh *shard) lapse(r ref, j *job, by cause) (taken *shard) {
	ch := sh.present(j)
	delay := ch.counters.delay
	t, cause := sh.tubes[j.tube], by
	untold := j.storage&isUntold != 0
	if untold {
		ch.counters.reserves--
		by = byStop
	}
	what := sh.failed(t, j, &ch, by)
	if t.buries(what) || what == expired {
		// If there is no room for it, it is judged again when it fails next, or a second later.
		var out reply.Output // nobody waits for it
		taken, err := sh.end(r, j, &ch, what, &out)
		if taken == nil && err == nil {
			t.countFailure(by, what)
		}
		if taken != nil || err == nil {
			return taken
		}
		if errors.Is(err, errCold) && cause != byStop && cause != byUnread && sh.loadAhead(j) {
			sh.putOff(r, j, cause)
			return nil
		}
	}
	if (cause == byTimeOut || cause == byUnread) && sh.onRecord(j) || t.outlasts() || t.recordsFailures() && t.counts(by) {
		if err := sh.recordLapse(j, &ch); err != nil && what == backsOff {
			what, ch.to, ch.counters.delay = goesOn, ready, delay // others who follow the journal know no delay
		}
	}
	t.countFailure(by, what)
	if untold {
		t.totals().reserves--
	}
	sh.apply(r, j, &ch)
	sh.dispatch(t)
	return nil
}

// giveBack ends a reservation of a client whose connection has ended, which is on record. The result is that of lapse.
func (sh *shard) giveBack(r ref, j *job, by cause) (taken *shard) {
	if t := sh.tubes[j.tube]; !t.counts(by) && !sh.overdue(j) && !t.outlasts() && j.storage&isUntold == 0 {
		sh.makeReady(r, j)
		sh.dispatch(t)
		return nil
	}
	return sh.lapse(r, j, by)
}

// countFailure counts the end of a reservation of the tube's.
func (t *tube) countFailure(by cause, what fate) {
	switch by {
	case byRelease:
		t.totals().releases++
	case byTimeOut:
		t.totals().timeouts++
		t.shard.totals.timeouts++
	}
	if what == backsOff {
		t.shard.totals.retries[by]++
	}
}

// recordsFailures reports whether attempts are on record, however they end, so that a restart does not
// give jobs their attempts again.
func (t *tube) recordsFailures() bool {
	return t.policy != nil && (t.policy.Attempts > 0 || t.policy.RetryMin > 0)
}

// recordLapse puts on record what becomes of a job whose reservation has lapsed. For the end of a
// hold, without which the next server would think that the job is held, the journal always has room.
func (sh *shard) recordLapse(j *job, ch *change) error {
	log := sh.shared.log.Journal
	if log == nil {
		return nil
	}
	record := log.Update
	if holds := sh.shared.log.Holds; holds != nil && sh.onRecord(j) {
		record = holds.EndHold
	}
	pos, err := record(sh.describe(j, ch))
	if err == nil {
		var out reply.Output // nobody waits for it
		sh.recordedEnd(pos, &out)
	}
	return err
}

// end makes a dead letter of a job, or has it expire. It returns why that cannot be, or, if the lock
// of the dead tube's shard is not to be had, that shard.
func (sh *shard) end(r ref, j *job, ch *change, what fate, out *reply.Output) (taken *shard, err error) {
	t := sh.tubes[j.tube]
	if !t.buries(what) {
		return nil, sh.deleteExpired(r, j, out)
	}
	if j.cold() && t.deadTube() != t.name {
		return nil, errCold
	}
	to := sh.shared.shardFor([]byte(t.deadTube()))
	entered, ok := sh.enter(to)
	if !ok {
		return to, nil
	}
	sh.moves -= deadMoves + int(j.size/deadMoveBytes)
	if j.flags != 0 {
		sh.moves -= keyedMoveCost / 4 // its keys move as well
	}
	err = sh.buryDead(r, j, *ch, what, to, out)
	if entered {
		to.unlock(sh.by)
	}
	return nil, err
}

// What a dead letter takes of shard.moves besides the end of its reservation: it is recorded as a
// whole, and copied if its dead tube lies in another shard.
const (
	deadMoves     = 4
	deadMoveBytes = 512 // of the body, for each further one
)

// backOff is how long a job waits that has failed as often as attempts says.
func backOff(p *journal.Policy, id uint64, attempts uint32) clock.Time {
	b, most := uint64(p.RetryMin), uint64(max(p.RetryMin, p.RetryMax))
	for k := uint32(1); k < attempts && b < most && p.RetryFactor > 1; k++ {
		b *= uint64(p.RetryFactor)
	}
	b = min(b, most) * uint64(clock.Second)
	random := spread.Mix(id+uint64(attempts)*spread.Golden) >> (64 - randomBits)
	high, low := bits.Mul64(b, uint64(p.RetryJitter)*random)
	more, _ := bits.Div64(high, low, 100<<randomBits)
	return min(clock.Time(b+more), clock.Seconds(1<<32-1))
}

const randomBits = 24
