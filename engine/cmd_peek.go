package engine

import "trellis/codec"

func (s *Session) peek(now Time, id uint64, out *Output) {
	c := &s.loop.locks
	sh, _, j := s.loop.engine.lockJob(c, id, now)
	if sh == nil {
		s.notFound(nil, out, codec.ReplyNotFound)
		return
	}
	out.dependOn(sh.dependsOn(sh.now))
	out.appendFound(sh, j)
	sh.unlock(c)
}

// peekFirst shows the first job of the used tube in one of its queues.
func (s *Session) peekFirst(now Time, op codec.Op, out *Output) {
	c := &s.loop.locks
	t := s.used
	sh := t.shard
	sh.lock(c, now)
	defer sh.unlock(c)
	var r ref
	switch {
	case op == codec.OpPeekReady:
		r = t.firstReady()
	case op == codec.OpPeekDelayed && t.delayed.Len() > 0:
		r = t.delayed.First().Ref
	case op == codec.OpPeekBuried:
		r = t.buried.First(sh.table)
	}
	if r == 0 {
		s.notFound(sh, out, codec.ReplyNotFound)
		return
	}
	out.dependOn(sh.dependsOn(sh.now))
	out.appendFound(sh, sh.job(r))
}
