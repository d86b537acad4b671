package engine

import "trellis/codec"

func (s *Session) release(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockReserved(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	ch := sh.present(j)
	ch.release(cmd, now)
	if sh.tubes[j.tube].exhausts(&ch) {
		sh.unlock(&s.loop.locks)
		return s.releaseDead(now, cmd, out)
	}
	s.loop.Spend(j.cost() - 1) // any command costs one
	err := sh.change(r, j, &ch, out)
	sh.dispatch(sh.tubes[j.tube])
	return s.changed(sh, err, cmd, out, codec.ReplyReleased)
}

// release turns the change that leaves a job as it is into that of a release.
func (ch *change) release(cmd *codec.Command, now Time) {
	ch.to, ch.pri = ready, cmd.Pri
	ch.counters.delay = cmd.Delay
	ch.counters.releases++
	ch.counters.attempts++
	if cmd.Delay > 0 {
		ch.to, ch.at = delayed, now+seconds(cmd.Delay)
	}
}

// releaseDead is release for a job that has used up its attempts. While it has no lock, the
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
		ch := sh.present(j)
		ch.release(cmd, now)
		var err error
		if t := sh.tubes[j.tube]; !t.exhausts(&ch) {
			err = sh.change(r, j, &ch, out)
			sh.dispatch(t)
		} else {
			to := s.loop.engine.shardFor([]byte(t.dead.DeadTube))
			if locked&to.self == 0 {
				s.unlockAll(locked)
				dead = to.self
				continue
			}
			s.loop.Spend(j.moveCost())
			err = sh.buryDead(r, j, ch, to, out)
		}
		s.unlockAll(locked)
		return s.answerChange(err, cmd, out, codec.ReplyReleased)
	}
}
