package engine

import (
	"errors"

	"trellis/binlog/journal"
)

var (
	// ErrConnections: the client's account has as many connections as it may have.
	ErrConnections = errors.New("the account has as many connections as it may have")
	// ErrSessionID: another session has that id.
	ErrSessionID = errors.New("there is a session of that id")
	// ErrNoHolds: the journal is read by servers that do not know of reservations.
	ErrNoHolds = errors.New("reservations cannot be on record yet")
)

// OpenAs starts a session of a client that is another member's, as [Loop.Open] does, or
// [Loop.OpenGranted] if g is not nil. Its id is one that no session has had before: [journal.NumberOf]
// it is that of its loop. If the journal has [Holds], what the session reserves is on record, what its
// commands change names them, and stays so. It opens none, and returns one of the errors above, or
// ErrNumberGone, if it may not.
func (l *Loop) OpenAs(s *Session, id uint64, g *Grant, now Time) error {
	records := l.engine.holds != nil
	if records {
		if !l.engine.holds.RecordsHolds() {
			return ErrNoHolds
		}
		if !l.engine.numbers.enter(id) {
			return ErrNumberGone
		}
	}
	if err := l.openUnder(s, id, g, now); err != nil {
		if records {
			l.engine.numbers.leave(id)
		}
		return err
	}
	if records {
		s.flags |= onRecord
		s.reservationSet().holder = &holder{id: id}
	}
	return nil
}

// openUnder opens a session under an id, off the record.
func (l *Loop) openUnder(s *Session, id uint64, g *Grant, now Time) error {
	s.id = id
	if g != nil {
		return l.openGranted(s, g, now)
	}
	if !l.open(s, l.engine.defaultTube, now) {
		return ErrSessionID
	}
	return nil
}

// CommandEnds says where in the input of a session that is on record the command ends that is
// executed next. It only grows.
func (s *Session) CommandEnds(offset uint64) {
	if s.flags&onRecord != 0 {
		h := s.reserved.holder
		h.offset, h.told = offset, false
	}
}

// origin is the command that is executed, if the session is on record.
func (s *Session) origin() (o journal.Origin) {
	if s.flags&onRecord != 0 {
		h := s.reserved.holder
		o = journal.Origin{Session: h.id, Offset: h.offset}
	}
	return o
}
