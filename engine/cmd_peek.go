package engine

import (
	"bytes"

	"trellis/codec"
	"trellis/engine/internal/shard"
)

// A peeking is a peek of the first job of a tube in one state, which may have to wait for the job's body.
type peeking struct {
	op    codec.Op
	tube  []byte // nil for the tube that the client uses
	state codec.State
	id    uint64 // the job that was the first when the command came, 0 before that is known
}

func (s *Session) peek(now Time, cmd *codec.Command, out *Output) Outcome {
	return s.changed(now, s.loop.tx.Peek(now, &s.client, cmd.ID, out), cmd, out, "")
}

// peekFirst shows the first job of the used tube in one of its queues.
func (s *Session) peekFirst(now Time, op codec.Op, out *Output) Outcome {
	p := peeking{op: op, state: codec.Buried}
	switch op {
	case codec.OpPeekReady:
		p.state = codec.Ready
	case codec.OpPeekDelayed:
		p.state = codec.Delayed
	}
	return p.turn(s, now, out)
}

// peekTube shows the first job of a tube in one state, of the reserved ones that with
// the smallest id.
func (s *Session) peekTube(now Time, cmd *codec.Command, out *Output) Outcome {
	return peeking{op: cmd.Op, tube: cmd.Tube, state: cmd.State}.turn(s, now, out)
}

func (p peeking) turn(s *Session, now Time, out *Output) Outcome {
	rest, err := s.loop.tx.PeekTube(now, &s.client, p.tube, p.state, &p.id, out)
	if rest != nil {
		return peekingReserved{rest}.turn(s, now, out)
	}
	if load := awaited(err); load != nil {
		again := p
		again.tube = bytes.Clone(p.tube) // its memory is the command's
		return s.park(now, &again, load)
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
	if load := awaited(err); load != nil {
		return s.park(now, p, load)
	}
	out.Answer(err, "")
	return Done
}
