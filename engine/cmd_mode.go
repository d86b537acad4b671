package engine

import "trellis/codec"

// reserveMode says how the session's reserves choose among the tubes that it watches, from the
// next one on, whether their replies tell more of the job, and whether their waits end when the client sends more.
func (s *Session) reserveMode(cmd *codec.Command, out *Output) {
	s.client.Flags &^= isWeighted | isInformed | aborts
	switch cmd.Mode {
	case codec.Weighted, codec.WeightedFair:
		s.ownWeights().BeFair(cmd.Mode == codec.WeightedFair)
		s.client.Flags |= isWeighted
	}
	if cmd.Info {
		s.client.Flags |= isInformed
	}
	if cmd.Abort {
		s.client.Flags |= aborts
	}
	out.Buf = codec.AppendMode(out.Buf, cmd.Mode, cmd.Info, cmd.Abort)
}

// informed reports whether the client is told more of each job that it reserves.
func (s *Session) informed() bool { return s.client.Flags&isInformed != 0 }
