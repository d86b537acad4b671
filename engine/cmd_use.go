package engine

import "trellis/codec"

func (s *Session) use(now Time, name []byte, out *Output) {
	if s.client.TubeUsed() != string(name) {
		if s.refuseToken(name, out) {
			return
		}
		if !s.loop.tx.Use(now, &s.client, name) {
			out.Reply(codec.ReplyOutOfMemory)
			return
		}
	}
	out.Buf = codec.AppendUsing(out.Buf, name)
}
