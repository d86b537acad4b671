package reactor

import (
	"slices"
	"time"

	"trellis/reactor/internal/clock"
)

// wake does what the loop was woken for.
func (l *loop) wake() {
	defer l.recovered()
	l.takeMail()
	now := l.server.now()
	if l.alarm.Came(now) {
		l.nextLook = clock.Never
	}
	if l.server.aborting.Load() {
		l.admitAll() // they are reset
		return
	}
	l.commit()
	l.serve(now)
}

// serve does what is to be done besides reading, a bit of each kind in turn, until
// nothing is left or the budget of the round is spent. In the latter case the loop
// is woken, so that it goes on after the next poll, and up to half of what is left of the
// budget then goes to what is not the engine's. Every callback of gnet's ends with it, so
// that what commands hand over to sessions of the same loop reaches them without another
// way through the system.
func (l *loop) serve(now time.Duration) {
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
		for half := l.engine.Left() / 2; l.engine.Left() > half && l.turn(now); {
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
		if !l.turn(now) && o == nil {
			l.askForDeadline()
			return
		}
	}
	// The engine wakes the loop itself, if it has something left.
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
func (l *loop) nextSession(now time.Duration) *conn {
	if !l.resumes() || l.gateway != nil {
		return nil
	}
	return connOf(l.engine.Next(l.time(now)))
}

// turn does one thing of each kind that is the reactor's own. It reports false
// when there was none.
func (l *loop) turn(now time.Duration) (did bool) {
	if l.canRun() {
		c := l.run.Pop()
		c.backlogOrNil().queued = false
		c.goOn(now)
		did = true
	}
	if !l.held {
		if c := l.throttled.next(l.time(now)); c != nil {
			l.goOnThrottled(c, now)
			did = true
		}
	}
	if l.canAdmit() {
		l.admitNext()
		did = true
	}
	if l.canResume() {
		l.resumeNext(now)
		did = true
	}
	if c := connOfStream(l.streams.NextWritable()); c != nil {
		c.takesOutput(now)
		did = true
	}
	if g := l.gateway; g != nil {
		did = g.turn(now) || did
	}
	if c := takeLast(&l.revoked); c != nil {
		c.revoke(now)
		did = true
	}
	if c := takeLast(&l.unverified); c != nil {
		c.retire(now, uncertified, now+l.server.cfg.Grace)
		did = true
	}
	if l.relief.Load() {
		l.closeLargest(now)
		did = true
	}
	if l.links.HasWork(now) {
		l.engine.Spend(connCost)
		l.links.Turn(now)
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

// takeLast takes the last connection out of a list, nil if there is none.
func takeLast(list *[]*conn) *conn {
	n := len(*list)
	if n == 0 {
		return nil
	}
	c := (*list)[n-1]
	*list = slices.Delete(*list, n-1, n)
	return c
}

// canRun reports whether a connection in the run queue may go on.
func (l *loop) canRun() bool { return !l.run.Empty() && !l.held }

// canAdmit reports whether a connection that has arrived may begin.
func (l *loop) canAdmit() bool { return !l.arrivals.Empty() && !l.held }

// left reports whether turn would do something.
func (l *loop) left(now time.Duration) bool {
	d := l.deadlines.first()
	return l.canRun() || l.throttledAt() <= now || l.streams.HasWritable() || l.canAdmit() || l.canResume() ||
		len(l.revoked) > 0 || len(l.unverified) > 0 || l.gateway.hasWork(now) || l.relief.Load() ||
		l.links.HasWork(now) || l.hasCommitted() || d != nil && d.at <= now
}

// askForDeadline sets the alarm for the first deadline.
func (l *loop) askForDeadline() {
	at := min(l.throttledAt(), l.links.NextTurn(), l.gateway.nextTurn())
	if d := l.deadlines.first(); d != nil {
		at = min(at, d.at)
	}
	if at < l.nextLook {
		l.nextLook = at
		l.alarm.Ask(clock.Deadline, at)
	}
}

// takeMail takes what others have left, and makes the calls.
func (l *loop) takeMail() {
	l.arrivals.Take()
	if l.effects.full.Load() && l.gateway != nil {
		l.gateway.takeApplied()
	}
	for l.calls.Take(); !l.calls.Empty(); {
		l.calls.Pop()(l)
	}
}

// throttledAt is when the alarm is to go off for those who are throttled.
func (l *loop) throttledAt() time.Duration {
	if l.held {
		return clock.Never // nothing is executed
	}
	return l.duration(l.throttled.at)
}
