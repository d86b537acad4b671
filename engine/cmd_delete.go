package engine

import "trellis/codec"

func (s *Session) delete(now Time, cmd *codec.Command, out *Output) Outcome {
	c := &s.loop.locks
	sh, r, j := s.loop.engine.lockJob(c, cmd.ID, now)
	if sh == nil {
		s.notFound(nil, out, codec.ReplyNotFound)
		return Done
	}
	if !sh.reservedBy(s.reserved, j) && (j.state == reserved || s.onlyWorks()) {
		sh.unlock(c)
		s.notFound(sh, out, codec.ReplyNotFound)
		return Done
	}
	s.loop.Spend(j.cost() - 1) // any command costs one
	err := sh.delete(r, j, out)
	return s.changed(sh, err, cmd, out, codec.ReplyDeleted)
}
