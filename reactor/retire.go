package reactor

import "time"

// retire ends the connection as soon as it may retire, and in any case at the time latest, 0 for
// never. Until then it has a backlog, so that everything which happens to it ends with conclude.
func (c *conn) retire(now time.Duration, why retirement, latest time.Duration) {
	l := c.loop
	defer l.recovered()
	l.engine.Spend(connCost)
	if c.phase == authenticating || c.phase >= draining {
		return
	}
	if c.deadline == nil {
		c.deadline = &deadline{conn: c, active: now, index: -1}
	}
	x, d := c.needBacklog(), c.deadline
	if !c.retired() || latest > 0 && (d.old == 0 || latest < d.old) {
		d.old = latest
	}
	x.retired = max(x.retired, why)
	if c.conclude(now); c.phase < draining {
		l.deadlines.set(d, c.endsAt(now))
	}
}

// checkDeadline ends a connection whose deadline has come, or puts it off.
func (c *conn) checkDeadline(now time.Duration) {
	l := c.loop
	defer l.recovered()
	l.engine.Spend(lookCost)
	d := c.deadline
	if c.retired() && c.phase < draining && (d.old == 0 || now < d.old) {
		if c.conclude(now); c.phase >= draining {
			return
		}
	}
	if at := c.endsAt(now); at > now {
		l.deadlines.set(d, at)
		return
	}
	s := l.server
	switch {
	case c.phase == authenticating:
		c.countRefusal(RefusedSilent)
	case c.phase == lingering: // it need not have known better
	case c.awaitsLeader():
		l.counts.unserved.Add(1)
		c.resetOnClose()
		c.fail()
	case d.ending:
		c.fail() // it is not told that this was all
		l.counts.cut.Add(1)
		if n, ok := s.cuts.Allow(); ok {
			s.log.Warn("a client that has sent its last takes no replies; its connection is cut", "unreported", n)
		}
	case d.old > 0 && d.old <= now && !c.retired():
		c.retire(now, tooOld, 0)
		return
	case d.old > 0 && d.old <= now:
		c.leave()
		c.conclude(now)
		return
	default:
		l.counts.idle.Add(1)
		if n, ok := s.idles.Allow(); ok {
			s.log.Info("an idle connection is closed", "idle", now-d.active, "unreported", n)
		}
	}
	c.end(now)
}
