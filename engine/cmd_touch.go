package engine

import (
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// touch starts the time to run of a reserved job anew.
func (s *Session) touch(now Time, id uint64, out *Output) {
	err := s.loop.tx.Touch(now, id, &s.client, out)
	out.Answer(err, codec.ReplyTouched)
}

// touchingAll is a touch-all: it touches what the session has reserved when it begins.
type touchingAll struct{ shard.Work }

func (s *Session) touchAll(now Time, out *Output) Outcome {
	return touchingAll{s.loop.tx.TouchAll(now, &s.client, out)}.turn(s, now, out)
}

func (ta touchingAll) turn(s *Session, now Time, out *Output) Outcome {
	n, more, _ := ta.Turn(&s.loop.tx, now, out)
	if more {
		return s.yield(ta)
	}
	out.Buf = codec.AppendCount(out.Buf, "TOUCHED_ALL", uint64(n))
	return Done
}
