package engine

import "trellis/binlog/journal"

// GiveNumbers returns the numbers of n loops of a member's process, which has made up the nonce: those
// that it was given before, which are not gone, and as many new ones as it lacks. No number is ever
// given twice. It may be told of them when the journal has committed pos; those of a process of that
// member before are gone then. What that one had under way has to have ended before: no loop has
// sessions of its numbers. Any goroutine may call it once the engine has loops.
func (e *Engine) GiveNumbers(member, nonce uint64, n int) (given []uint32, pos journal.Pos, err error) {
	given, ended, pos, err := e.shared.GiveNumbers(member, nonce, n)
	if err != nil {
		return nil, 0, err
	}
	e.endAbsent(ended, pos)
	if b := e.barrierPos(); b != 0 {
		pos = b // others may have given them to nobody any more
	}
	return given, pos, nil
}

// EndNumber puts on record that a number is gone, up to pos: none of its sessions ever comes back, and
// what these hold becomes ready in turns. What is under way for them has to have ended before: no loop
// has one of them. There is nothing to be done, and pos is 0, if it was not given or is gone. Any
// goroutine may call it once the engine has loops.
func (e *Engine) EndNumber(number uint32) (pos journal.Pos, err error) {
	ended, pos, err := e.shared.EndNumber(number)
	e.endAbsent(ended, pos)
	return pos, err
}
