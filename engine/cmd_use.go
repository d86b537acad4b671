package engine

import "trellis/codec"

func (s *Session) use(now Time, name []byte, out *Output) {
	c, old := &s.loop.tx, s.used
	if old.Name() == string(name) {
		out.Buf = codec.AppendUsing(out.Buf, name)
		return
	}
	if s.refuseToken(name, out) {
		return
	}
	t := c.Enter(now, name, 1, 0, true)
	if t == nil {
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	s.used = t
	out.Buf = codec.AppendUsing(out.Buf, name)
	c.Attend(now, old, -1, 0)
}
