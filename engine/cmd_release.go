package engine

import "trellis/codec"

func (s *Session) release(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.Release(now, cmd.ID, s.reserved, cmd.Pri, cmd.Delay, out)
	return s.changed(err, cmd, out, codec.ReplyReleased)
}
