package engine

import "trellis/codec"

func (s *Session) use(now Time, name []byte, out *Output) {
	c := &s.loop.locks
	old := s.used
	if old.name == string(name) {
		out.Buf = codec.AppendUsing(out.Buf, name)
		return
	}
	if s.refuseToken(name, out) {
		return
	}
	e := s.loop.engine
	sh := e.shardFor(name)
	sh.lock(c, now)
	t := sh.tube(name, true)
	if t == nil {
		sh.unlock(c)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	t.using++
	s.used = t
	sh.unlock(c)
	out.Buf = codec.AppendUsing(out.Buf, name)
	old.shard.lock(c, now)
	old.using--
	old.shard.removeIfUnused(old)
	old.shard.unlock(c)
}
