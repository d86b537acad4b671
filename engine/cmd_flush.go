package engine

import (
	"math"

	"trellis/codec"
)

// A deletion deletes jobs of a tube, whoever has reserved them. What it does not find at the
// heads of queues, a scan finds.
type deletion struct {
	bulk
	scan  scan
	of    state         // all that the scan deletes; 0 for any
	scans bool          // the scan has something to find
	byID  *deletionByID // finds the jobs instead of the scan; nil if none does

	graves int // of a flush: tombstones of the tube's name that are left to be looked at; -1 while there are jobs
}

// deletionOf is a deletion for the tube of that name, which has no more than most jobs that
// are to be deleted.
func deletionOf(sh *shard, name string, v verb, most int) *deletion {
	d := &deletion{scan: scanOf(sh, name)}
	d.bulk = bulk{shard: sh, locks: sh.self, tube: name, verb: v, most: most, newest: math.MaxUint64, rest: d}
	return d
}

// flushTube deletes all jobs of a tube that are there when it begins.
func (s *Session) flushTube(now Time, cmd *codec.Command, out *Output) Outcome {
	sh := s.loop.engine.shardFor(cmd.Tube)
	sh.lock(&s.loop.locks, now)
	t := sh.byName[string(cmd.Tube)]
	if k := sh.keyspaceOf(string(cmd.Tube)); t == nil && (k == nil || k.tombstones == 0) {
		s.notFound(sh, out, codec.ReplyNotFound)
		sh.unlock(&s.loop.locks)
		return Done
	}
	most := 0
	if t != nil {
		most = t.jobs()
	}
	d := deletionOf(sh, string(cmd.Tube), flush, most)
	d.heads, d.newest, d.graves = [4]state{held, ready, delayed, buried}, s.loop.engine.ids.Last.Load(), -1
	sh.unlock(&s.loop.locks)
	return d.turn(s, now, out)
}

// deleteTubeJobs deletes the first jobs of a tube in one state.
func (s *Session) deleteTubeJobs(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	of := stateOf(cmd.State)
	d := deletionOf(sh, t.name, remove, int(min(int64(cmd.Bound), int64(t.count(of)))))
	switch d.of = of; {
	case of != reserved:
		d.from(t, of, cmd.Bound)
	case d.most == t.reserved && t.limited == nil: // so that none is reserved meanwhile in place of another
		d.scans = true
	default:
		d.byID = &deletionByID{deletion: d}
	}
	sh.unlock(&s.loop.locks)
	return d.turn(s, now, out)
}

// stateOf is the state that a command names.
func stateOf(in codec.State) state {
	return [...]state{codec.Ready: ready, codec.Reserved: reserved, codec.Delayed: delayed, codec.Buried: buried}[in]
}

// next does a slice of what is not found at the heads of queues. It returns false at the
// end.
func (d *deletion) next(out *Output) (more bool, err error) {
	if d.byID != nil {
		return d.byID.next(out)
	}
	sh := d.shard
	t := sh.byName[d.tube]
	d.scans = d.scans || d.passed || d.verb == flush && t != nil && t.reserved > 0
	if !d.scans || d.scan.done() || t == nil || d.done >= d.most {
		return d.deleteTombstones(out)
	}
	d.scan.slice(t, func(r ref, j *job) bool {
		switch {
		case err != nil || d.full():
			return false
		case d.done >= d.most || sh.byName[d.tube] != t:
			return true // the tube is gone, and so are its jobs
		}
		if j.ID <= d.newest && (d.of == 0 || j.state == d.of) {
			err = d.do(r, j, out)
		}
		return err == nil
	})
	sh.by.spend(scanCost)
	return !d.scan.done() || d.verb == flush, err
}

// deleteTombstones deletes those of a tube that is flushed, some under each lock.
func (d *deletion) deleteTombstones(out *Output) (more bool, err error) {
	if d.verb != flush {
		return false, nil
	}
	sh := d.shard
	if d.graves < 0 {
		d.graves = 0
		if k := sh.keyspaceOf(d.tube); k != nil {
			d.graves = k.tombstones
		}
	}
	n, err := sh.deleteTombstones(d.tube, d.newest, min(d.graves, scanSlice/keyedCost), out)
	sh.by.spend(n * keyedCost)
	if d.graves -= n; n == 0 && err == nil {
		d.graves = 0 // the others have ended meanwhile
	}
	return d.graves > 0 || err != nil, err
}

// deletionByID deletes the reserved jobs of a tube that have the smallest ids.
type deletionByID struct {
	*deletion
	survey *survey // finds some of them
	found  bool    // the survey has; they are being put into order
	left   []listed
}

// next deletes some of them, or goes on with looking for them.
func (d *deletionByID) next(out *Output) (more bool, err error) {
	sh := d.shard
	t := sh.byName[d.tube]
	if t == nil || d.done >= d.most {
		return false, nil
	}
	for len(d.left) > 0 && !d.full() {
		r, j := sh.find(d.left[0].id)
		if j != nil && j.state == reserved && sh.tubes[j.tube] == t {
			if err := d.do(r, j, out); err != nil {
				return true, err
			}
			t = sh.byName[d.tube]
		} else {
			sh.by.spend(1)
		}
		d.left = d.left[1:]
	}
	switch {
	case len(d.left) > 0:
	case d.survey == nil:
		d.survey = newSurvey(sh, d.tube, reserved, min(d.most-d.done, codec.MaxListJobs))
	case !d.found:
		d.found = d.survey.look(t)
		sh.by.spend(d.survey.takeCost() + scanCost)
	case d.survey.sort(sortSlice):
		sh.by.spend(sortSlice)
	case len(d.survey.found) == 0:
		return false, nil
	default:
		d.left, d.survey, d.found = d.survey.found, nil, false
	}
	return true, nil
}
