package engine

import "trellis/codec"

func (s *Session) pauseTube(now Time, name []byte, delay uint32, out *Output) {
	err := s.loop.tx.Pause(now, name, delay, out)
	out.Answer(err, codec.ReplyPaused)
}
