package shard

import (
	"math"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A deletion is what a bulk has in addition that deletes jobs, whoever has reserved them: what is not found
// at the heads of queues, a scan finds.
type deletion struct {
	scan  scan
	of    state         // all that the scan deletes; 0 for any
	scans bool          // the scan has something to find
	byID  *deletionByID // finds the jobs instead of the scan; nil if none does

	graves int // of a flush: tombstones of the tube's name that are left to be looked at; -1 while there are jobs
}

// beginDeletion makes b, which is zero, a deletion for the tube of that name, which has no more than most
// jobs that are to be deleted.
func (b *Bulk) beginDeletion(sh *shard, name string, v verb, most int) {
	*b = Bulk{
		shard: sh, locks: sh.self, tube: name, verb: v, most: most, newest: math.MaxUint64,
		rest: &deletion{scan: scanOf(sh, name)},
	}
}

// Flush makes b, which is zero, a deletion of all jobs of a tube that are there now, and of the tombstones of
// its name.
func (c *Tx) Flush(now clock.Time, b *Bulk, name []byte, out *reply.Output) error {
	sh := c.shared.shardFor(name)
	sh.lock(c, now)
	t := sh.byName[string(name)]
	if k := sh.keyspaceOf(string(name)); t == nil && (k == nil || k.tombstones == 0) {
		return c.refuse(sh, out)
	}
	most := 0
	if t != nil {
		most = t.jobs()
	}
	b.beginDeletion(sh, string(name), flush, most)
	b.heads, b.newest, b.rest.graves = [4]state{held, ready, delayed, buried}, c.shared.ids.Last.Load(), -1
	sh.unlock(c)
	return nil
}

// DeleteJobs makes b, which is zero, a deletion of the first jobs of a tube in one state.
func (c *Tx) DeleteJobs(now clock.Time, b *Bulk, name []byte, in codec.State, bound uint32, out *reply.Output) error {
	sh, t := c.lockTube(now, name, out)
	if t == nil {
		return reply.ErrNotFound
	}
	of := stateOf(in)
	b.beginDeletion(sh, t.name, remove, int(min(int64(bound), int64(t.count(of)))))
	switch b.rest.of = of; {
	case of != reserved:
		b.from(t, of, bound)
	case b.most == t.reserved && t.limited == nil: // so that none is reserved meanwhile in place of another
		b.rest.scans = true
	default:
		b.rest.byID = new(deletionByID)
	}
	sh.unlock(c)
	return nil
}

// next does a slice of what is not found at the heads of queues. It returns false at the
// end.
func (d *deletion) next(b *Bulk, out *reply.Output) (more bool, err error) {
	if d.byID != nil {
		return d.byID.next(b, out)
	}
	sh := b.shard
	t := sh.byName[b.tube]
	d.scans = d.scans || b.passed || b.verb == flush && t != nil && t.reserved > 0
	if !d.scans || d.scan.done() || t == nil || b.done >= b.most {
		return d.deleteTombstones(b, out)
	}
	d.scan.slice(t, func(r ref, j *job) bool {
		switch {
		case err != nil || b.full():
			return false
		case b.done >= b.most || sh.byName[b.tube] != t:
			return true // the tube is gone, and so are its jobs
		}
		if j.ID <= b.newest && (d.of == 0 || j.state == d.of) {
			err = b.do(r, j, out)
		}
		return err == nil
	})
	sh.by.spend(scanCost)
	return !d.scan.done() || b.verb == flush, err
}

// deleteTombstones deletes those of a tube that is flushed, some under each lock.
func (d *deletion) deleteTombstones(b *Bulk, out *reply.Output) (more bool, err error) {
	if b.verb != flush {
		return false, nil
	}
	sh := b.shard
	if d.graves < 0 {
		d.graves = 0
		if k := sh.keyspaceOf(b.tube); k != nil {
			d.graves = k.tombstones
		}
	}
	n, err := sh.deleteTombstones(b.tube, b.newest, min(d.graves, scanSlice/keyedCost), out)
	sh.by.spend(n * keyedCost)
	if d.graves -= n; n == 0 && err == nil {
		d.graves = 0 // the others have ended meanwhile
	}
	return d.graves > 0 || err != nil, err
}

// A deletionByID deletes the reserved jobs of a tube that have the smallest ids.
type deletionByID struct {
	survey *Survey // finds some of them
	found  bool    // the survey has; they are being put into order
	left   []listed
}

// next deletes some of them, or goes on with looking for them.
func (d *deletionByID) next(b *Bulk, out *reply.Output) (more bool, err error) {
	sh := b.shard
	t := sh.byName[b.tube]
	if t == nil || b.done >= b.most {
		return false, nil
	}
	for len(d.left) > 0 && !b.full() {
		r, j := sh.find(d.left[0].id)
		if j != nil && j.state == reserved && sh.tubes[j.tube] == t {
			if err := b.do(r, j, out); err != nil {
				return true, err
			}
			t = sh.byName[b.tube]
		} else {
			sh.by.spend(1)
		}
		d.left = d.left[1:]
	}
	switch {
	case len(d.left) > 0:
	case d.survey == nil:
		d.survey = newSurvey(sh, b.tube, reserved, min(b.most-b.done, maxFound))
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

// maxFound is how many jobs a survey finds for a deletion by id before these are deleted.
const maxFound = codec.MaxListJobs
