package reactor

import (
	"slices"

	"trellis/engine"
)

// What the loop does between two polls is counted in steps of about a quarter of a
// microsecond. The engine keeps the account: Refill begins a round with a budget
// of steps, Spend takes some off.
const (
	// connSteps is what it takes to deal with a connection, a read or a write included,
	// beside the commands that it has executed.
	connSteps = 32
	// lookSteps is what it takes to look at a connection's deadline.
	lookSteps = 2
	// overrun is how many commands a connection may have executed once the budget
	// is spent, so that a client that sends a few at a time never waits for its
	// turn, and overrunSteps how many steps they may take.
	overrun      = 32
	overrunSteps = 256
)

// bytesSteps is what it takes to copy n bytes.
func bytesSteps(n int) int { return n >> 10 }

// Round implements gnetloop.Handler.
func (l *loop) Round(woken bool) {
	l.newRound()
	if woken {
		l.wake()
	}
}

// Reported implements gnetloop.Handler. The numbers of listeners are negative, those of TLS
// handshakes are not.
func (l *loop) Reported(number int32, input, ended bool) {
	if number >= 0 {
		l.engine.Spend(connSteps)
		l.server.handshakes.reported(number, ended)
	} else if a := l.acceptors[number]; a != nil { // otherwise it is watched no longer
		a.reported(input)
	}
}

func (l *loop) newRound() {
	if hook := l.server.hooks.round; hook != nil {
		hook(l)
	}
	l.round++
	l.engine.Refill()
}

// wake does what the loop was woken for.
func (l *loop) wake() {
	defer l.recovered()
	l.takeMail()
	now := l.server.cfg.Now()
	if l.alarm.came(now) {
		l.nextLook = engine.MaxTime
	}
	if l.server.aborting.Load() {
		l.admitAll() // they are reset
		return
	}
	l.commit()
	l.serve(now)
}

// serve does what is to be done besides reading, a bit of each kind in turn, until
// nothing is left or the budget of the round is spent. In the latter case the bell
// rings, so that it goes on after the next poll, and up to half of what is left of the
// budget then goes to what is not the engine's. Every callback of gnet's ends with it, so
// that what commands hand over to sessions of the same loop reaches them without another
// way through the system.
func (l *loop) serve(now engine.Time) {
	if l.server.aborting.Load() {
		return
	}
	if l.serving {
		return // for a connection that it has just taken in: it goes on anyway
	}
	l.serving = true
	defer func() { l.serving = false }()
	defer l.recovered()
	if l.behind {
		// A session in a long command takes all that it gets.
		l.behind = false
		for half := l.engine.Left() / 2; l.engine.Left() > half && l.step(now); {
		}
	}
	for {
		o := l.nextSession(now)
		if o != nil {
			o.resume(now)
		}
		if l.engine.Left() <= 0 {
			break
		}
		if !l.step(now) && o == nil {
			l.askForDeadline()
			return
		}
	}
	// The engine rings for itself, if it has something left.
	for o := l.nextSession(now); o != nil; o = l.nextSession(now) {
		o.resume(now)
	}
	if l.left(now) {
		l.behind = true
		l.gnet.Wake()
	}
	l.askForDeadline()
}

// nextSession is the connection of a session that can go on, nil if there is none.
func (l *loop) nextSession(now engine.Time) *conn {
	if l.held {
		return nil
	}
	return connOf(l.engine.Next(now))
}

// step does one thing of each kind that is the reactor's own. It reports false
// when there was none.
func (l *loop) step(now engine.Time) (did bool) {
	if l.canRun() {
		l.run.pop().goOn(now)
		did = true
	}
	if !l.arrivals.empty() {
		l.admitNext()
		did = true
	}
	if !l.writable.empty() {
		l.writable.pop().takesOutput(now)
		did = true
	}
	if n := len(l.revoked); n > 0 {
		c := l.revoked[n-1]
		l.revoked = slices.Delete(l.revoked, n-1, n)
		c.revoke(now)
		did = true
	}
	if c := l.nextCommitted(); c != nil {
		c.committed(now)
		did = true
	}
	if d := l.deadlines.first(); d != nil && d.at <= now {
		d.conn.checkDeadline(now)
		did = true
	}
	return did
}

// canRun tells whether a connection in the run queue may go on.
func (l *loop) canRun() bool { return !l.run.empty() && !l.held }

// left tells whether step would do something.
func (l *loop) left(now engine.Time) bool {
	d := l.deadlines.first()
	return l.canRun() || !l.writable.empty() || !l.arrivals.empty() || len(l.revoked) > 0 || l.hasCommitted() || d != nil && d.at <= now
}

// askForDeadline sets the alarm for the first deadline.
func (l *loop) askForDeadline() {
	d := l.deadlines.first()
	if d != nil && d.at < l.nextLook {
		l.nextLook = d.at
		l.alarm.ask(deadlineAlarm, d.at)
	}
}
