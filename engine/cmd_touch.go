package engine

import "trellis/codec"

// touch starts the time to run of a reserved job anew. It is not on record, as
// reservations are not.
func (s *Session) touch(now Time, id uint64, out *Output) {
	sh, r, j := s.lockReserved(now, id, out)
	if sh == nil {
		return
	}
	h := sh.reservations[j.Next]
	h.jobs.Remove(sh.table, &j.Links)
	j.At = int64(now + seconds(j.ttr))
	h.add(r, j)
	sh.unlock(&s.loop.locks)
	out.reply(codec.ReplyTouched)
}
