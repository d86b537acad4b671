package engine

import "trellis/binlog/journal"

// Record puts a session that was just opened on record, under an id that no other session has or
// had: from now on what it reserves is on record, and what its commands change names them. The
// journal must have [Holds] that RecordsHolds. A session stays on record.
func (s *Session) Record(id uint64) {
	s.flags |= onRecord
	s.reservationSet().holder = &holder{id: id}
}

// CommandEnds says where in the input of a session on record the command ends that is executed
// next. It only grows.
func (s *Session) CommandEnds(offset uint64) {
	h := s.reserved.holder
	h.offset, h.told = offset, false
}

// origin is the command that is executed, if the session is on record.
func (s *Session) origin() (o journal.Origin) {
	if s.flags&onRecord != 0 {
		h := s.reserved.holder
		o = journal.Origin{Session: h.id, Offset: h.offset}
	}
	return o
}
