package engine

import "trellis/codec"

func (s *Session) peek(now Time, id uint64, out *Output) {
	sh, _, j := s.lockJob(now, id, out)
	if sh == nil {
		return
	}
	out.dependOn(sh.dependsOn(sh.now))
	out.appendFound(sh, j)
	sh.unlock(&s.loop.locks)
}

// peekFirst shows the first job of the used tube in one of its queues.
func (s *Session) peekFirst(now Time, op codec.Op, out *Output) {
	c := &s.loop.locks
	t := s.used
	sh := t.shard
	sh.lock(c, now)
	defer sh.unlock(c)
	of := buried
	switch op {
	case codec.OpPeekReady:
		of = ready
	case codec.OpPeekDelayed:
		of = delayed
	}
	r := t.firstShown(of)
	if r == 0 {
		s.notFound(sh, out, codec.ReplyNotFound)
		return
	}
	out.dependOn(sh.dependsOn(sh.now))
	out.appendFound(sh, sh.job(r))
}
