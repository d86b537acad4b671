package engine

import "trellis/codec"

func (s *Session) bury(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.Bury(now, cmd.ID, s.reserved, cmd.Pri, out)
	return s.changed(err, cmd, out, codec.ReplyBuried)
}
