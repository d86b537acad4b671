package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// A deletion deletes jobs of a tube, whoever has reserved them. First it takes them
// from the heads of queues; what it does not find there, a scan finds.
type deletion struct {
	scan
	reply   string
	heads   []state // the queues that are left
	most    int     // how many to delete
	newest  uint64  // the greatest id that goes
	scans   bool    // the scan finds the others
	of      state   // all that the scan deletes; 0 for any
	deleted int
	steps   int         // that were taken for jobs and tombstones
	pos     journal.Pos // in the journal that the reply depends on

	// Of a flush: it leaves no tombstones. Those of the tube's name go when the jobs have.
	flushes bool
	graves  int // how many of those are left to be looked at; -1 while there are jobs
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
	d := &deletion{
		scan: scanOf(sh, string(cmd.Tube)), reply: "FLUSHED", heads: []state{ready, delayed, buried},
		newest: s.loop.engine.lastID.Load(), flushes: true, graves: -1,
	}
	if t != nil {
		d.most = t.jobs()
	}
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
	d := &deletion{
		scan: scanOf(sh, t.name), reply: "DELETED", of: of,
		most: int(min(int64(cmd.Bound), int64(t.count(of)))), newest: ^uint64(0),
	}
	switch {
	case of != reserved:
		d.heads = []state{of}
	case d.most == t.reserved && t.limited == nil: // so that none is reserved meanwhile in place of another
		d.scans = true
	default:
		sh.unlock(&s.loop.locks)
		return (&deletionByID{deletion: d}).turn(s, now, out)
	}
	sh.unlock(&s.loop.locks)
	return d.turn(s, now, out)
}

// stateOf is the state that a command names.
func stateOf(in codec.State) state {
	return [...]state{codec.Ready: ready, codec.Reserved: reserved, codec.Delayed: delayed, codec.Buried: buried}[in]
}

// turn deletes as many jobs as the round's budget allows.
func (d *deletion) turn(s *Session, now Time, out *Output) Outcome {
	return d.run(s, now, out, d, d.slice)
}

// run calls slice until all is deleted. The task goes on when others had their turn.
func (d *deletion) run(s *Session, now Time, out *Output, t task, slice func(*Output) (bool, error)) Outcome {
	l, sh := s.loop, d.shard
	var changes Output // out depends on them no sooner than it has the reply
	for more := true; more; {
		before := d.steps
		sh.lock(&l.locks, now)
		var err error
		more, err = slice(&changes)
		sh.unlock(&l.locks)
		d.pos = max(d.pos, changes.Pos)
		left := l.Spend(d.steps - before + scanSteps)
		switch {
		case errors.Is(err, journal.ErrRoom):
			return s.awaitRoom(t)
		case err != nil && d.deleted == 0:
			out.refuse(err)
			return Done
		case err != nil:
			more = false
		}
		if !left && more {
			return s.yield(t)
		}
	}
	out.dependOn(d.pos)
	if d.deleted == 0 {
		out.dependOn(sh.vanished())
	}
	out.Buf = codec.AppendCount(out.Buf, d.reply, uint64(d.deleted))
	return Done
}

// slice deletes some jobs under the shard's lock. It returns false when all are gone.
func (d *deletion) slice(out *Output) (more bool, err error) {
	sh := d.shard
	t := sh.byName[d.tube]
	begin := d.steps - *sh.by.budget // of which the jobs' keys may take some
	full := func() bool { return d.steps-*sh.by.budget-begin >= scanSlice }
	for len(d.heads) > 0 {
		switch r := d.next(t); {
		case r == 0:
			d.scans = d.scans || d.of == 0 && t != nil && t.reserved > 0
		case full():
			return true, nil
		default:
			if err := d.delete(r, sh.job(r), out); err != nil {
				return true, err
			}
			t = sh.byName[d.tube]
		}
	}
	if !d.scans || d.done() || t == nil || d.deleted >= d.most {
		return d.eraseTombstones(out)
	}
	d.scan.slice(t, func(r ref, j *job) bool {
		switch {
		case err != nil || full():
			return false
		case d.deleted >= d.most || sh.byName[d.tube] != t:
			return true // the tube is gone, and so are its jobs
		}
		if j.ID <= d.newest && (d.of == 0 || j.state == d.of) {
			err = d.delete(r, j, out)
		}
		return err == nil
	})
	return !d.done() || d.flushes, err
}

// eraseTombstones erases those of a tube that is flushed, some under each lock.
func (d *deletion) eraseTombstones(out *Output) (more bool, err error) {
	if !d.flushes {
		return false, nil
	}
	sh := d.shard
	if d.graves < 0 {
		d.graves = 0
		if k := sh.keyspaceOf(d.tube); k != nil {
			d.graves = k.tombstones
		}
	}
	n, err := sh.eraseTombstones(d.tube, d.newest, min(d.graves, scanSlice/keyedSteps), out)
	d.steps += n * keyedSteps
	if d.graves -= n; n == 0 && err == nil {
		d.graves = 0 // the others have ended meanwhile
	}
	return d.graves > 0 || err != nil, err
}

// next is the next job from the head of a queue, 0 when there is none in the first of
// d.heads, which it then takes off.
func (d *deletion) next(t *tube) ref {
	if t != nil && d.deleted < d.most {
		if r := t.first(d.heads[0]); r != 0 {
			if t.shard.job(r).ID <= d.newest {
				return r
			}
			d.scans = true // what came later stands before others
		}
	}
	d.heads = d.heads[1:]
	return 0
}

func (d *deletion) delete(r ref, j *job, out *Output) error {
	steps, end := j.steps(), d.shard.delete
	if d.flushes {
		end = d.shard.remove
	}
	if err := end(r, j, out); err != nil {
		return err
	}
	d.deleted++
	d.steps += steps
	return nil
}

// deletionByID deletes the reserved jobs of a tube that have the smallest ids.
type deletionByID struct {
	*deletion
	survey *survey // finds some of them
	found  bool    // the survey has; they are being put into order
	left   []listed
}

func (d *deletionByID) turn(s *Session, now Time, out *Output) Outcome {
	return d.run(s, now, out, d, d.slice)
}

func (d *deletionByID) slice(out *Output) (more bool, err error) {
	sh := d.shard
	t := sh.byName[d.tube]
	if t == nil || d.deleted >= d.most {
		return false, nil
	}
	end := d.steps + scanSlice
	for n := 0; len(d.left) > 0 && n < scanSlice && d.steps < end; n++ {
		r, j := sh.find(d.left[0].id)
		if j != nil && j.state == reserved && sh.tubes[j.tube] == t {
			if err := d.delete(r, j, out); err != nil {
				return true, err
			}
			t = sh.byName[d.tube]
		}
		d.left = d.left[1:]
	}
	switch {
	case len(d.left) > 0:
	case d.survey == nil:
		d.survey = newSurvey(sh, d.tube, reserved, min(d.most-d.deleted, codec.MaxListJobs))
	case !d.found:
		d.found = d.survey.step(t)
		d.steps += d.survey.takeSteps()
	case d.survey.sort(sortSlice):
		d.steps += sortSlice
	case len(d.survey.found) == 0:
		return false, nil
	default:
		d.left, d.survey, d.found = d.survey.found, nil, false
	}
	return true, nil
}
