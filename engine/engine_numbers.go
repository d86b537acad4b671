package engine

import (
	"errors"
	"slices"

	"trellis/binlog/journal"
)

var (
	// ErrNumberGone: the number of the session's loop is gone, and so are all its sessions.
	ErrNumberGone = errors.New("the number of the loop is gone")
	// ErrSessionsLeft: numbers would be gone while there are sessions of them.
	ErrSessionsLeft = errors.New("sessions of the member's process before have not ended")
	// ErrNoNumbers: there are no more numbers to be given.
	ErrNoNumbers = errors.New("all numbers of loops were given")
)

// GiveNumbers returns the numbers of n loops of a member's process, which has made up the nonce: those
// that it was given before, which are not gone, and as many new ones as it lacks. No number is ever
// given twice. It may be told of them when the journal has committed pos; those of a process of that
// member before are gone then. What that one had under way has to have ended before: there are no
// sessions of its numbers. Any goroutine may call it once the engine serves.
func (e *Engine) GiveNumbers(member, nonce uint64, n int) (given []uint32, pos journal.Pos, err error) {
	if e.holds == nil || !e.holds.RecordsHolds() {
		return nil, 0, ErrNoHolds
	}
	g := &e.numbers
	g.mu.Lock()
	defer g.mu.Unlock()
	given = g.of(member, nonce)
	if lacks := n - len(given); lacks > 0 {
		x := journal.Numbers{First: max(g.next, 1), Count: uint32(lacks), Member: member, Nonce: nonce}
		if lacks >= 1<<journal.NumberBits || !x.Valid() {
			return nil, 0, ErrNoNumbers
		}
		for number := range g.sessions {
			if o := g.find(number); o != nil && o.Member == member && o.Nonce != nonce {
				return nil, 0, ErrSessionsLeft
			}
		}
		if pos, err = e.holds.Numbers(&x); err != nil {
			return nil, 0, err
		}
		g.keep(&x)
		given = g.of(member, nonce)
	}
	if b := e.barrier; b != nil {
		pos = b.Barrier() // others may have given them to nobody any more
	}
	return given[:max(n, 0)], pos, nil
}

// NumberOf tells to which process of which member a loop's number was given. The nonce is 0 if it
// was not, or is gone. Any goroutine may call it.
func (e *Engine) NumberOf(number uint32) (member, nonce uint64) {
	e.numbers.mu.Lock()
	defer e.numbers.mu.Unlock()
	if x := e.numbers.find(number); x != nil {
		return x.Member, x.Nonce
	}
	return 0, 0
}

// Numbers calls f for the numbers of loops that were given and are not gone, and then, with an
// empty range, for the first that was never given. An error of f's ends it and is returned. Any
// goroutine may call it, also while a follower is fed.
func (e *Engine) Numbers(f func(*journal.Numbers) error) error {
	e.numbers.mu.Lock()
	list, next := slices.Clone(e.numbers.list), e.numbers.next
	e.numbers.mu.Unlock()
	for i := range list {
		if err := f(&list[i]); err != nil {
			return err
		}
	}
	if next == 0 {
		return nil
	}
	return f(&journal.Numbers{First: next})
}
