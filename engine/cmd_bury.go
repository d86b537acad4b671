package engine

import "trellis/codec"

func (s *Session) bury(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockReserved(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	ch := sh.present(j)
	ch.to, ch.pri, ch.at = buried, cmd.Pri, Time(sh.buries+1)
	ch.counters.buries++
	t := sh.tubes[j.tube]
	err := sh.change(r, j, &ch, out)
	if err == nil {
		t.totals().buries++
	}
	sh.dispatch(t)
	return s.changed(sh, err, cmd, out, codec.ReplyBuried)
}
