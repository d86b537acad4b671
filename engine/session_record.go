package engine

import (
	"errors"
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/engine/internal/shard"
)

// ErrConnections: the client's account has as many connections as it may have.
var ErrConnections = errors.New("the account has as many connections as it may have")

// OpenAs starts a session of a client that is another member's, as [Loop.Open] does, or
// [Loop.OpenGranted] if g is not nil. Its id is one that no session has had before: [journal.NumberOf]
// it is that of its loop. If the journal has [Holds], what the session reserves is on record, what its
// commands change names them, and stays so. It opens none, and returns one of the errors above, or
// ErrNumberGone, if it may not.
func (l *Loop) OpenAs(s *Session, id uint64, g *Grant, now Time) error {
	return l.openAs(s, id, g, false, now)
}

// openAs is OpenAs, also for a session that was absent if it goes on again.
func (l *Loop) openAs(s *Session, id uint64, g *Grant, again bool, now Time) (err error) {
	var held *shard.ReservationSet
	log := l.engine.Log()
	records := log.Holds != nil
	if records {
		if !log.RecordsHolds() {
			return ErrNoHolds
		}
		if held, err = l.engine.LoopNumbers.Enter(id, again); err != nil {
			return err
		}
	}
	if err := l.openUnder(s, id, g, again, now); err != nil {
		if records {
			l.engine.LoopNumbers.Leave(id, held)
		}
		return err
	}
	if !records {
		return nil
	}
	s.client.Flags |= onRecord
	if s.client.GoOnRecord(id, held); held != nil {
		s.becomeWorker()
	}
	return nil
}

// Number says that the loop has that number: ids of sessions that are opened on it without one are of that
// number, behind those of as many sessions as had one before.
func (l *Loop) Number(number uint32, sessions uint64) { l.number, l.sessions = number, sessions }

// newID is the id of the next session of the loop's number.
func (l *Loop) newID() uint64 {
	l.sessions++
	return uint64(l.number)<<(64-journal.NumberBits) | l.sessions
}

// Sessions is how many sessions have had ids of the loop's number that the loop has given.
func (l *Loop) Sessions() uint64 { return l.sessions }

// openUnder opens a session under an id, off the record.
func (l *Loop) openUnder(s *Session, id uint64, g *Grant, goesOn bool, now Time) error {
	s.id = id
	if g != nil {
		return l.openGranted(s, g, goesOn, now)
	}
	if !l.open(s, true, now) {
		return ErrSessionID
	}
	return nil
}

// Record puts a session on record, under its id, with all that it has reserved, in an engine that is held (see
// [Engine.Hold]): it is going on at another server. One that was opened before its loop had a number gets another
// id. It reports false, and leaves the session off the record, if the loop has no number, the records take more
// bytes than room has, from which they are taken, or this server was replaced.
func (s *Session) Record(room *atomic.Int64, now Time) bool {
	e := s.loop.engine
	if s.client.Flags&onRecord != 0 {
		return true
	}
	if !e.Log().RecordsHolds() || journal.NumberOf(s.id) == 0 && s.loop.number == 0 {
		return false
	}
	if journal.NumberOf(s.id) == 0 {
		e.roll.remove(s)
		s.id = s.loop.newID()
		e.roll.add(s) // nobody else has the id
	}
	if !s.loop.tx.RecordAll(now, &s.client, s.id, room) {
		return false
	}
	s.client.Flags |= onRecord
	return true
}

// CommandEnds says where in the input of a session that is on record the command ends that is
// executed next. It only grows.
func (s *Session) CommandEnds(offset uint64) {
	if s.client.Flags&onRecord != 0 {
		s.executes(offset, false)
	}
}

// executes says where in the input of a session on record the command ends that is executed next, or, if records name
// it, was executed last.
func (s *Session) executes(offset uint64, recorded bool) {
	by := s.client.Source()
	by.Offset, by.Recorded = offset, recorded
}
