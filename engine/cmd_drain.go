package engine

import "trellis/codec"

// drain turns drain mode on or off, or tells what it is. It is not on record.
func (s *Session) drain(op codec.Op, out *Output) {
	e := s.loop.engine
	if op != codec.OpDrainStatus {
		e.Drain(op == codec.OpDrain)
	}
	if e.draining.Load() {
		out.Reply(codec.ReplyDraining)
	} else {
		out.Reply(codec.ReplyNotDraining)
	}
}
