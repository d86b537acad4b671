package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// A put is refused when its body does not end as it should, or in drain mode.
var (
	errUnterminated = errors.New("the body has no end of line behind it")
	errDraining     = errors.New("the server is in drain mode")
)

// refusal is why a put whose body has come is refused, nil if it is not.
func (s *Session) refusal(terminated bool) error {
	switch {
	case !terminated:
		return errUnterminated
	case s.loop.engine.draining.Load():
		return errDraining
	}
	return nil
}

// put accepts a job whose whole body is in hand.
func (s *Session) put(now Time, cmd *codec.Command, out *Output) Outcome {
	s.becomeProducer()
	id, rest, err := s.loop.tx.Put(now, &s.client, cmd, s.refusal(cmd.Terminated), out)
	if rest != nil {
		s.incoming = rest
	}
	return s.inserted(err, id, out)
}

// inserted ends a put, of which there may be more to do.
func (s *Session) inserted(err error, id uint64, out *Output) Outcome {
	switch {
	case err == nil && id != 0:
		out.Buf = codec.AppendInserted(out.Buf, id)
	case err == nil: // answered
	case errors.Is(err, journal.ErrRoom):
		return s.awaitRoom(putting{})
	case errors.Is(err, errUnterminated):
		out.Reply(codec.ReplyExpectedCRLF)
	case errors.Is(err, errDraining):
		out.Reply(codec.ReplyDraining)
	default:
		out.Answer(err, "")
	}
	s.incoming = nil
	return Done
}

// putting is a put whose record waits for room in the journal.
type putting struct{}

func (putting) turn(s *Session, now Time, out *Output) Outcome { return s.endPut(now, nil, out) }

// endPut makes a job of a put whose body has come, unless it is refused.
func (s *Session) endPut(now Time, refusal error, out *Output) Outcome {
	id, err := s.loop.tx.EndPut(now, &s.client, s.incoming, refusal, out)
	return s.inserted(err, id, out)
}

// putBegin begins a put whose body has not arrived.
func (s *Session) putBegin(now Time, cmd *codec.Command) {
	s.becomeProducer()
	s.incoming = s.loop.tx.BeginPut(now, &s.client, cmd)
}

// putChunk takes a piece of a body.
func (s *Session) putChunk(now Time, p []byte) { s.loop.tx.PutChunk(now, &s.client, s.incoming, p) }

func (s *Session) putEnd(now Time, terminated bool, out *Output) Outcome {
	return s.endPut(now, s.refusal(terminated), out)
}

// discardIncoming ends a put that is not to become a job. It reports false when the journal
// has no room for that at this moment.
func (s *Session) discardIncoming(now Time) (done bool) {
	in := s.incoming
	if in == nil {
		return true
	}
	if !s.loop.tx.DiscardPut(now, &s.client, in) {
		return false
	}
	s.incoming = nil
	return true
}

func (s *Session) becomeProducer() {
	if s.client.Flags&isProducer == 0 {
		s.client.Flags |= isProducer
		s.loop.counts.producers.Add(1)
	}
}
