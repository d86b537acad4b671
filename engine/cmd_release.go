package engine

import "trellis/codec"

func (s *Session) release(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockReserved(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	var ch change
	what := sh.released(j, cmd, &ch)
	if sh.tubes[j.tube].buries(what) {
		sh.unlock(&s.loop.locks)
		return s.releaseDead(now, cmd, out)
	}
	s.loop.Spend(j.cost() - 1) // any command costs one
	err := sh.changeReleased(r, j, &ch, what, out)
	return s.changed(sh, err, cmd, out, codec.ReplyReleased)
}

// released sets ch to what a release makes of a job.
func (sh *shard) released(j *job, cmd *codec.Command, ch *change) fate {
	ch.pri, ch.counters = cmd.Pri, *sh.counters.At(j.counters)
	ch.counters.delay = cmd.Delay
	return sh.failed(j, ch, byRelease)
}

// changeReleased records and makes what released has told of a job that is not buried.
func (sh *shard) changeReleased(r ref, j *job, ch *change, what fate, out *Output) error {
	t := sh.tubes[j.tube]
	if what == expired {
		err := sh.deleteExpired(r, j, out)
		if err == nil {
			t.countFailure(byRelease, what)
		}
		return err
	}
	err := sh.change(r, j, ch, out)
	if err == nil {
		t.countFailure(byRelease, what)
	}
	sh.dispatch(t)
	return err
}

// releaseDead is release for a job that goes to the dead tube. While it has no lock, the
// job or the setting may change: it looks anew when it has those of both shards.
func (s *Session) releaseDead(now Time, cmd *codec.Command, out *Output) Outcome {
	var dead shardSet
	for {
		sh, r, j, locked := s.lockJobWith(dead, now, cmd.ID, out)
		if sh == nil {
			return Done
		}
		if !sh.reservedBy(s.reserved, j) {
			s.notFound(sh, out, codec.ReplyNotFound)
			s.unlockAll(locked)
			return Done
		}
		var ch change
		what := sh.released(j, cmd, &ch)
		var err error
		if !sh.tubes[j.tube].buries(what) {
			err = sh.changeReleased(r, j, &ch, what, out)
		} else {
			t := sh.tubes[j.tube]
			to := s.loop.engine.shardFor([]byte(t.deadTube()))
			if locked&to.self == 0 {
				s.unlockAll(locked)
				dead = to.self
				continue
			}
			s.loop.Spend(j.moveCost())
			if err = sh.buryDead(r, j, ch, what, to, out); err == nil {
				t.countFailure(byRelease, what)
			}
		}
		s.unlockAll(locked)
		return s.answerChange(err, cmd, out, codec.ReplyReleased)
	}
}
