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
	} else {
		sh.arm(&t.timer, t.pausedUntil)
	}
	t.gate()
	sh.dispatch(t)
	out.reply(codec.ReplyPaused)
	sh.unlock(&s.loop.locks)
}
