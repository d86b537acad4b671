package engine

import "trellis/codec"

func (s *Session) release(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockReserved(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	ch := sh.present(j)
	ch.to, ch.pri = ready, cmd.Pri
	ch.counters.delay = cmd.Delay
	ch.counters.releases++
	if cmd.Delay > 0 {
		ch.to, ch.at = delayed, now+seconds(cmd.Delay)
	}
	err := sh.change(r, j, &ch, out)
	return s.changed(sh, err, cmd, out, codec.ReplyReleased)
}
