package engine

import "trellis/codec"

func (s *Session) pauseTube(now Time, name []byte, delay uint32, out *Output) {
	sh, t := s.lockTube(now, name, out)
	if t == nil {
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
	sh.unlock(&s.loop.locks)
}
