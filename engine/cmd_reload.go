package engine

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

func (r *reloading) turn(s *Session, now Time, out *Output) Outcome {
	return listingText(r.text, 0).turn(s, now, out)
}
