package engine

import "trellis/codec"

// reserveMode says how the session's reserves choose among the tubes that it watches, from the
// next one on, and whether their replies tell more of the job.
func (s *Session) reserveMode(cmd *codec.Command, out *Output) {
	s.flags &^= isWeighted | isInformed
	switch cmd.Mode {
	case codec.Weighted, codec.WeightedFair:
		s.ownWeights().BeFair(cmd.Mode == codec.WeightedFair)
		s.flags |= isWeighted
	}
	if cmd.Info {
		s.flags |= isInformed
	}
	out.Buf = codec.AppendMode(out.Buf, cmd.Mode, cmd.Info)
}
