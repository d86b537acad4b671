package engine

import "trellis/codec"

func (s *Session) delete(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockJob(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	if !sh.reservedBy(s.reserved, j) && (j.state == reserved || s.onlyWorks()) {
		return s.refuseJob(sh, out)
	}
	s.loop.Spend(j.cost() - 1) // any command costs one
	t := sh.tubes[j.tube]
	err := sh.delete(r, j, out)
	if err == nil {
		t.deletes++
	}
	return s.changed(sh, err, cmd, out, codec.ReplyDeleted)
}
