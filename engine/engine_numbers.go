package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/numbers"
)

var (
	// ErrSessionID: another session has that id, or it has not ended yet.
	ErrSessionID = numbers.ErrSessionID
	// ErrNumberGone: the number of the session's loop is gone, and so are all its sessions.
	ErrNumberGone = numbers.ErrNumberGone
	// ErrSessionsLeft: numbers would be gone while there are sessions of them.
	ErrSessionsLeft = numbers.ErrSessionsLeft
	// ErrNoNumbers: there are no more numbers to be given, or not to such a process.
	ErrNoNumbers = numbers.ErrNoNumbers
	// ErrNoHolds: the journal is read by servers that do not know of reservations.
	ErrNoHolds = errors.New("reservations cannot be on record yet")
)

// GiveNumbers returns the numbers of n loops of a member's process, which has made up the nonce: those
// that it was given before, which are not gone, and as many new ones as it lacks. No number is ever
// given twice. It may be told of them when the journal has committed pos; those of a process of that
// member before are gone then. What that one had under way has to have ended before: no loop has
// sessions of its numbers. Any goroutine may call it once the engine has loops.
func (e *Engine) GiveNumbers(member, nonce uint64, n int) (given []uint32, pos journal.Pos, err error) {
	log := e.Log()
	if !log.RecordsHolds() {
		return nil, 0, ErrNoHolds
	}
	if e.Lingers() {
		for _, former := range e.LoopNumbers.Former(member, nonce) {
			e.CloseAbsent(former) // which leaves orphans, before the numbers are gone
		}
	}
	given, ended, pos, err := e.LoopNumbers.Give(member, nonce, n, log.Holds.Numbers)
	if err != nil {
		return nil, 0, err
	}
	e.endAbsent(ended, pos)
	if b := log.Barrier(); b != 0 {
		pos = b // others may have given them to nobody any more
	}
	return given, pos, nil
}

// EndNumber puts on record that a number is gone, up to pos: none of its sessions ever comes back, and
// what these hold becomes ready in turns. What is under way for them has to have ended before: no loop
// has one of them. There is nothing to be done, and pos is 0, if it was not given or is gone. Any
// goroutine may call it once the engine has loops.
func (e *Engine) EndNumber(number uint32) (pos journal.Pos, err error) {
	log := e.Log()
	if !log.RecordsHolds() {
		return 0, ErrNoHolds
	}
	if e.Lingers() {
		e.CloseAbsent(number) // which leaves orphans, before the number is gone
	}
	ended, pos, err := e.LoopNumbers.End(number, log.Holds.Numbers)
	e.endAbsent(ended, pos)
	return pos, err
}

// NumberPresent reports whether a loop has a session of a number on record, or has still something to do for
// one that has ended. Any goroutine may call it.
func (e *Engine) NumberPresent(number uint32) bool { return e.LoopNumbers.Present(number) }

// NumberOf tells to which process of which member a loop's number was given. The nonce is 0 if it
// was not, or is gone. Any goroutine may call it.
func (e *Engine) NumberOf(number uint32) (member, nonce uint64) { return e.LoopNumbers.Of(number) }

// NumberGone reports whether a number was given and is gone. Any goroutine may call it, also while a follower is fed.
func (e *Engine) NumberGone(number uint32) bool { return e.LoopNumbers.Gone(number) }

// Numbers calls f for the numbers of loops that were given and are not gone, and then, with an
// empty range, for the first that was never given. An error of f's ends it and is returned. Any
// goroutine may call it, also while a follower is fed.
func (e *Engine) Numbers(f func(*journal.Numbers) error) error { return e.LoopNumbers.Each(f) }
