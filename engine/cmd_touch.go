package engine

import "trellis/codec"

// touch starts the time to run of a reserved job anew. It is on record if the reservation is.
func (s *Session) touch(now Time, id uint64, out *Output) {
	sh, r, j := s.lockReserved(now, id, out)
	if sh == nil {
		return
	}
	err := sh.touch(sh.reservations[j.Next], r, j, now+seconds(j.ttr), out)
	sh.unlock(&s.loop.locks)
	if err != nil {
		out.refuse(err)
		return
	}
	out.reply(codec.ReplyTouched)
}
