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
	err := sh.change(r, j, &ch, out)
	sh.dispatch(sh.tubes[j.tube])
	return s.changed(sh, err, cmd, out, codec.ReplyBuried)
}
