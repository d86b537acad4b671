package reactor

import "time"

// retirement is why a connection is to end as soon as that can be in order.
type retirement uint8

const (
	notRetired  retirement = iota
	tooOld                 // Config.MaxConnectionAge
	uncertified            // the client's certificate is not accepted any more
)

// retirePause is between two looks at a retired connection whose client does nothing.
const retirePause = time.Second

func (c *conn) retired() bool {
	x := c.backlogOrNil()
	return x != nil && x.retired != notRetired
}

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

// mayRetire tells whether nobody loses anything if the connection ends now: the client has sent
// no part of a command, has all replies, and has no job. A reserve that waits may be
// ended, or a worker could stay for ever.
func (c *conn) mayRetire(now time.Duration) bool {
	idle := c.phase == serving || c.phase == waiting && !c.takesLong()
	return idle && !c.loop.held && c.decoder.AtStart() && !c.session.Reserves(c.loop.time(now)) &&
		c.loop.streams.Quiet(&c.Stream)
}

// leave ends the session of a retired connection. What the client has reserved is given back.
func (c *conn) leave() {
	counts := &c.loop.counts
	if c.backlogOrNil().retired == uncertified {
		counts.unverified.Add(1)
	} else {
		counts.aged.Add(1)
	}
	c.enter(draining)
}
