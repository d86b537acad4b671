package engine

import "trellis/codec"

// touch starts the time to run of a reserved job anew.
func (s *Session) touch(now Time, id uint64, out *Output) {
	err := s.loop.tx.Touch(now, id, &s.client, out)
	out.Answer(err, codec.ReplyTouched)
}

// touchingAll is a touch-all: it touches what the session has reserved when it begins.
type touchingAll struct{ touches }

func (s *Session) touchAll(now Time, out *Output) Outcome {
	return (&touchingAll{touchesOf(&s.client, now, out)}).turn(s, now, out)
}

func (ta *touchingAll) turn(s *Session, now Time, out *Output) Outcome {
	if ta.Turn(&s.loop.tx, now, out) {
		return s.yield(ta)
	}
	out.Buf = codec.AppendCount(out.Buf, "TOUCHED_ALL", ta.Touched())
	return Done
}
