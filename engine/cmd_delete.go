package engine

import "trellis/codec"

func (s *Session) delete(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.Delete(now, cmd.ID, s.reserved, s.onlyWorks(), out)
	return s.changed(err, cmd, out, codec.ReplyDeleted)
}
