package engine

import (
	"slices"

	"trellis/binlog/journal"
)

// GiveNumbers returns the numbers of n loops of a member's process, which has made up the nonce: those
// that it was given before, which are not gone, and as many new ones as it lacks. No number is ever
// given twice. It may be told of them when the journal has committed pos; those of a process of that
// member before are gone then. What that one had under way has to have ended before: no loop has
// sessions of its numbers. Any goroutine may call it once the engine has loops.
func (e *Engine) GiveNumbers(member, nonce uint64, n int) (given []uint32, pos journal.Pos, err error) {
	switch {
	case e.holds == nil || !e.holds.RecordsHolds():
		return nil, 0, ErrNoHolds
	case member == 0 || nonce == 0:
		return nil, 0, ErrNoNumbers
	}
	given, ended, pos, err := e.numbers.give(e.holds, member, nonce, n)
	if err != nil {
		return nil, 0, err
	}
	e.endAbsent(ended, pos)
	if b := e.barrier; b != nil {
		pos = b.Barrier() // others may have given them to nobody any more
	}
	return given, pos, nil
}

// give is GiveNumbers, but for the absent sessions of numbers that are gone, which it returns.
func (g *numbers) give(log Holds, member, nonce uint64, n int) (given []uint32, ended []*reservationSet, pos journal.Pos, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	given = g.of(member, nonce)
	lacks := n - len(given)
	if lacks <= 0 {
		return given[:max(n, 0)], nil, 0, nil
	}
	x := journal.Numbers{First: max(g.next, 1), Count: uint32(lacks), Member: member, Nonce: nonce}
	if lacks >= 1<<journal.NumberBits || !x.Valid() {
		return nil, nil, 0, ErrNoNumbers
	}
	before := func(number uint32) bool {
		o := g.find(number)
		return o != nil && o.Member == member && o.Nonce != nonce
	}
	if g.anyPresent(before) {
		return nil, nil, 0, ErrSessionsLeft
	}
	if pos, err = log.Numbers(&x); err != nil {
		return nil, nil, 0, err
	}
	ended = g.dismiss(before)
	g.keep(&x)
	return g.of(member, nonce), ended, pos, nil
}

// EndNumber puts on record that a number is gone, up to pos: none of its sessions ever comes back, and
// what these hold becomes ready in turns. What is under way for them has to have ended before: no loop
// has one of them. There is nothing to be done, and pos is 0, if it was not given or is gone. Any
// goroutine may call it once the engine has loops.
func (e *Engine) EndNumber(number uint32) (pos journal.Pos, err error) {
	if e.holds == nil || !e.holds.RecordsHolds() {
		return 0, ErrNoHolds
	}
	ended, pos, err := e.numbers.end(e.holds, number)
	e.endAbsent(ended, pos)
	return pos, err
}

// end is EndNumber, but for the absent sessions, which it returns.
func (g *numbers) end(log Holds, number uint32) (ended []*reservationSet, pos journal.Pos, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := journal.Numbers{First: number, Count: 1}
	switch {
	case g.find(number) == nil:
		return nil, 0, nil
	case g.anyPresent(x.Has):
		return nil, 0, ErrSessionsLeft
	}
	if pos, err = log.Numbers(&x); err != nil {
		return nil, 0, err
	}
	ended = g.dismiss(x.Has)
	g.keep(&x)
	return ended, pos, nil
}

// NumberPresent tells whether a loop has a session of a number on record, or has still something to do for
// one that has ended. Any goroutine may call it.
func (e *Engine) NumberPresent(number uint32) bool {
	e.numbers.mu.Lock()
	defer e.numbers.mu.Unlock()
	return e.numbers.present[number] > 0
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

// NumberGone tells whether a number was given and is gone. Any goroutine may call it, also while a follower is fed.
func (e *Engine) NumberGone(number uint32) bool { return e.numbers.gone(number) }

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
