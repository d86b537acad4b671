package engine

import (
	"trellis/codec"
	"trellis/engine/internal/shard"
)

func (s *Session) peek(now Time, id uint64, out *Output) {
	out.Answer(s.loop.tx.Peek(now, id, out), "")
}

// peekFirst shows the first job of the used tube in one of its queues.
func (s *Session) peekFirst(now Time, op codec.Op, out *Output) {
	of := codec.Buried
	switch op {
	case codec.OpPeekReady:
		of = codec.Ready
	case codec.OpPeekDelayed:
		of = codec.Delayed
	}
	_, err := s.loop.tx.PeekTube(now, &s.client, nil, of, out)
	out.Answer(err, "")
}

// peekTube shows the first job of a tube in one state, of the reserved ones that with
// the smallest id.
func (s *Session) peekTube(now Time, cmd *codec.Command, out *Output) Outcome {
	rest, err := s.loop.tx.PeekTube(now, &s.client, cmd.Tube, cmd.State, out)
	if rest != nil {
		return peekingReserved{rest}.turn(s, now, out)
	}
	out.Answer(err, "")
	return Done
}

// peekingReserved is a peek-tube of a tube's reserved jobs.
type peekingReserved struct{ shard.Work }

func (p peekingReserved) turn(s *Session, now Time, out *Output) Outcome {
	_, more, err := p.Turn(&s.loop.tx, now, out)
	if more {
		return s.yield(p)
	}
	out.Answer(err, "")
	return Done
}
