package engine

import "trellis/codec"

// Commands that change one job.

func (s *Session) delete(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.Delete(now, cmd.ID, &s.client, s.onlyWorks(), out)
	return s.changed(now, err, cmd, out, codec.ReplyDeleted)
}

func (s *Session) release(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.Release(now, cmd.ID, &s.client, cmd.Pri, cmd.Delay, out)
	return s.changed(now, err, cmd, out, codec.ReplyReleased)
}

func (s *Session) bury(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.Bury(now, cmd.ID, &s.client, cmd.Pri, out)
	return s.changed(now, err, cmd, out, codec.ReplyBuried)
}

func (s *Session) kickJob(now Time, cmd *codec.Command, out *Output) Outcome {
	err := s.loop.tx.KickJob(now, cmd.ID, out)
	return s.changed(now, err, cmd, out, codec.ReplyKicked)
}
