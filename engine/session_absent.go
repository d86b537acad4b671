package engine

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/shard"
)

// A session on record may be absent: no loop has it, and its jobs stay reserved. It goes on when its client
// is heard of again, through another connection of its member or at another server, which Loop.Attach
// is told of; or it ends, if it was not named when all were that are left, or with its number.

// Part ends a session as Close does, but its end is not on record, and what it has reserved is that of an
// absent session of its id. If it is off the record, Part is Close.
func (s *Session) Part(now Time) (done bool) {
	if s.client.Flags&(isOpen|onRecord) == isOpen|onRecord {
		s.client.Flags |= parts
	}
	return s.Close(now)
}

// CloseAbsent ends the absent sessions of a loop's number, whose clients have left: what they hold becomes
// ready in turns. Any goroutine may call it once the engine has loops.
func (e *Engine) CloseAbsent(number uint32) {
	e.endAbsent(e.LoopNumbers.Dismiss(number), 0)
}

// endAbsent hands absent sessions to loops, which give back what they have reserved. Their end is on record up to
// pos, or is to be recorded if that is 0.
func (e *Engine) endAbsent(held []*shard.ReservationSet, pos journal.Pos) {
	if len(held) == 0 {
		return
	}
	var c shard.Tx
	c.Begin(&e.Shards, nil, nil)
	e.loopsMu.Lock()
	loops := e.loops
	e.loopsMu.Unlock()
	for i, set := range held {
		l := loops[i%len(loops)]
		s := &Session{loop: l}
		s.id = c.Inherit(&s.client, set, pos)
		s.client.Flags = onRecord | isGhost | isClosing
		l.revive(s)
	}
}

// revive gives the loop a closed session that nobody carries, to be ended. Any goroutine may call it.
func (l *Loop) revive(s *Session) {
	l.mail.mu.Lock()
	l.mail.list = append(l.mail.list, s)
	if l.unlockMail() {
		l.waker.Wake()
	}
}
