package engine

import (
	"sync"
	"sync/atomic"

	"trellis/codec"
)

// Bell lets the engine reach a loop's goroutine.
type Bell interface {
	// Ring asks for a call of Deliver on the loop's goroutine, soon. It is
	// called from any goroutine, never under a lock of the engine, and seldom
	// again before Deliver has run. It must not block.
	Ring()
	// Alarm asks for a call of Expire on the loop's goroutine at or soon after
	// at. It replaces an earlier request and is called on the loop's goroutine.
	Alarm(at Time)
}

// Loop is the engine's side of one event loop: the sessions that the loop
// serves, their time-outs, and the mailbox through which other goroutines tell
// it that one of them got a job. All methods are for the loop's goroutine,
// except where they say otherwise. Make one with [Engine.NewLoop].
type Loop struct {
	engine *Engine
	bell   Bell
	caller caller

	wheel wheel // of waiting sessions' time-outs
	due   Time
	armed Time // what Bell.Alarm was last asked for, MaxTime when it has come

	mail struct {
		mu   sync.Mutex
		list []*Session // claimed sessions, in the order of their claims
		rung bool       // the loop has been asked to Deliver, or will without being asked
	}
	hasMail atomic.Bool // mail.list is not empty
	taken   []*Session  // out of mail.list, not yet woken from next on
	next    int

	freeIncoming []*incoming
	scratch      []byte // for data whose length comes first

	counts loopCounts
}

// loopCounts are written by the loop, and waiting by whoever claims one of its
// sessions; anybody may read them.
type loopCounts struct {
	commands                                      [codec.NumCommands]atomic.Uint64
	opened, sessions, producers, workers, waiting atomic.Int64
}

// NewLoop adds an event loop to the engine. Any goroutine may call it.
func (e *Engine) NewLoop(bell Bell) *Loop {
	l := &Loop{engine: e, bell: bell, due: MaxTime, armed: MaxTime}
	l.caller.loop = l
	e.loopsMu.Lock()
	e.loops = append(e.loops, l)
	e.loopsMu.Unlock()
	return l
}

// Busy tells whether the loop's goroutine is inside a locked part of the
// engine. When it is found so after a panic, the engine's state may be broken
// and the process must not go on.
func (l *Loop) Busy() bool { return l.caller.locks > 0 }

// post tells the loop of a session that c has just claimed.
func (l *Loop) post(s *Session, c *caller) {
	l.mail.mu.Lock()
	l.mail.list = append(l.mail.list, s)
	ring := !l.mail.rung
	l.mail.rung = true
	l.hasMail.Store(true)
	l.mail.mu.Unlock()
	// The caller's own loop delivers when it is done with its commands.
	if ring && c.loop != l {
		c.bells = append(c.bells, l)
	}
}

// maxWakes is how many sessions at most are woken before others have their turn.
const maxWakes = 256

// Deliver wakes the owners of the sessions that were given a job. The loop's
// owner calls it when the bell has rung, and after it has called any other method
// of the loop or of its sessions, because what that handed over does not ring. It
// costs next to nothing when there is no mail. When there is very much, it rings
// for the rest.
func (l *Loop) Deliver(now Time) {
	for range maxWakes {
		if l.next == len(l.taken) && !l.takeMail() {
			return
		}
		s := l.taken[l.next]
		l.taken[l.next] = nil
		l.next++
		s.handed(now)
	}
	if l.next < len(l.taken) || l.hasMail.Load() {
		l.bell.Ring()
	}
}

// takeMail replaces what was taken, which is all woken, by what has come since.
func (l *Loop) takeMail() bool {
	if !l.hasMail.Load() {
		return false
	}
	l.mail.mu.Lock()
	l.taken, l.mail.list = l.mail.list, l.taken[:0]
	l.next = 0
	l.mail.rung = false
	l.hasMail.Store(false)
	l.mail.mu.Unlock()
	return true
}

// Expire ends the waits that have run out and wakes their owners.
func (l *Loop) Expire(now Time) {
	l.armed = MaxTime
	l.wheel.advance(now)
	l.due = l.wheel.due()
	l.alarm()
}

func (l *Loop) schedule(t *timer, at, now Time) {
	if now < l.due {
		l.wheel.skip(now)
	}
	l.wheel.schedule(t, at)
	if at < l.due {
		l.due = at
		l.alarm()
	}
}

func (l *Loop) alarm() {
	if l.due < l.armed {
		l.armed = l.due
		l.bell.Alarm(l.due)
	}
}
