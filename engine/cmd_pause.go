package engine

import "trellis/codec"

func (s *Session) pauseTube(now Time, name []byte, delay uint32, out *Output) {
	c := &s.loop.locks
	sh := s.loop.engine.shardFor(name)
	sh.lock(c, now)
	t := sh.byName[string(name)]
	if t == nil {
		sh.unlock(c)
		s.notFound(sh, out, codec.ReplyNotFound)
		return
	}
	t.pauses++
	t.pause, t.pausedUntil = delay, now+seconds(delay)
	if delay == 0 {
		t.pausedUntil = 0
		sh.dispatch(t)
	} else {
		sh.arm(&t.timer, t.pausedUntil)
	}
	out.reply(codec.ReplyPaused)
	sh.unlock(c)
}
