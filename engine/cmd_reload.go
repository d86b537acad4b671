package engine

import "trellis/codec"

// reload has the server load files again, and waits for what comes of it.
func (s *Session) reload() Outcome {
	c := &rollCall{asker: s} // of nobody: the asker goes on when it comes back
	s.waiter().task = (*reloading)(c)
	answer := func(text []byte) {
		c.text = text
		c.goOn(nil)
	}
	if load := s.loop.engine.config.Reload; load != nil {
		load(answer)
	} else {
		answer(nil)
	}
	return Wait
}

// reloading is a reload that is under way elsewhere.
type reloading rollCall

func (r *reloading) turn(_ *Session, _ Time, out *Output) Outcome {
	out.Buf = codec.AppendOKLine(out.Buf, len(listHead)+len(r.text))
	out.Buf = append(out.Buf, listHead...)
	out.Buf = append(out.Buf, r.text...)
	out.Buf = append(out.Buf, "\r\n"...)
	return Done
}
