package shard

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/stats"
)

// A tube that is shut hands out no jobs: reserve takes those of other tubes, and clients that
// wait for this one go on waiting. All reasons for that are in one word, tube.shut, so that who
// looks for a job makes one comparison.

// limits are what a tube's setting says of when it hands out jobs. They belong to the name of
// the tube, and so do the reservations that its rate counts: a tube that goes and comes again
// has no more of them. The shard's lock guards them.
type limits struct {
	paused bool
	most   int // jobs that are reserved at once; 0 for no limit

	// The rate is a token bucket, kept as the generic cell rate algorithm does (ITU-T I.371): a
	// job may start burst-1 intervals before due, and each start moves due on by one. A tube
	// without a rate has no interval.
	interval, early, due clock.Time
}

// limited reports whether a policy shuts its tube at times.
func limited(p *journal.Policy) bool { return p.Rate > 0 || p.MaxReserved > 0 || p.Paused }

// set makes the limits those of a policy. What was started counts on; a bucket of another size
// is not emptier than empty.
func (l *limits) set(p *journal.Policy, now clock.Time) {
	l.paused, l.most = p.Paused, int(p.MaxReserved)
	var interval, early clock.Time
	if p.Rate > 0 {
		interval = (clock.Seconds(p.Per) + clock.Time(p.Rate) - 1) / clock.Time(p.Rate)
		early = clock.Time(p.BurstInForce()-1) * interval
	}
	switch {
	case interval == 0:
		l.due = 0
	case interval != l.interval || early != l.early:
		l.due = min(l.due, now+early+interval)
	}
	l.interval, l.early = interval, early
}

// started counts a job that is reserved.
func (l *limits) started(now clock.Time) {
	if l.interval > 0 {
		l.due = max(l.due, now) + l.interval
	}
}

// full reports whether no more jobs may be reserved while so many are.
func (l *limits) full(reserved int) bool { return l.most > 0 && reserved >= l.most }

// opens is when the rate and the number of reserved jobs let a job start. MaxTime means that
// another one has to end first.
func (l *limits) opens(reserved int) clock.Time {
	if l.full(reserved) {
		return clock.MaxTime
	}
	return l.due - l.early
}

// limitsOf are those of the tubes of a name, nil if it has none.
func (sh *shard) limitsOf(tube string) *limits {
	if sh.shared.cfg.Stock {
		return nil
	}
	return sh.limits[tube]
}

// putLimitsInForce gives a tube the limits of its setting.
func (sh *shard) putLimitsInForce(x *journal.Setting) {
	l := sh.limits[x.Tube]
	switch {
	case limited(&x.Policy):
		if l == nil {
			if sh.limits == nil {
				sh.limits = make(map[string]*limits)
			}
			l = new(limits)
			sh.limits[x.Tube] = l
		}
		l.set(&x.Policy, sh.now)
	case l != nil:
		delete(sh.limits, x.Tube)
	default:
		return
	}
	if t := sh.byName[x.Tube]; t != nil {
		t.limits = sh.limitsOf(x.Tube)
		t.classify()
		t.gate()
		sh.dispatch(t)
	}
}

// isShut reports whether the tube hands out no jobs now. Time is that of the shard, which may be
// later than a command's own: by it, the timer of the tube was armed.
func (t *tube) isShut() bool { return t.shut > t.shard.now }

// gate finds out for how long the tube is shut. It is called whenever a reason comes, changes
// or goes; if the tube may be open by it, a dispatch follows.
func (t *tube) gate() {
	t.shut = t.pausedUntil
	if l := t.limits; l != nil {
		t.shut = max(t.shut, l.opens(t.reserved))
		if l.paused {
			t.shut = clock.MaxTime
		}
	}
	t.awaitOpening()
}

// awaitOpening makes a tube that is shut while somebody waits there look when it opens.
func (t *tube) awaitOpening() {
	if t.firstWaiting != nil && t.isShut() {
		t.shard.arm(&t.timer, t.shut)
	}
}

// Pause shuts the tube of that name for so many seconds, or opens it if that is 0.
func (c *Tx) Pause(now clock.Time, name []byte, delay uint32, out *reply.Output) error {
	sh, t := c.lockTube(now, name, out)
	if t == nil {
		return reply.ErrNotFound
	}
	t.pauses++
	t.pause, t.pausedUntil = delay, now+clock.Seconds(delay)
	if delay == 0 {
		t.pausedUntil = 0
	} else {
		sh.arm(&t.timer, t.pausedUntil)
	}
	t.gate()
	sh.dispatch(t)
	sh.unlock(c)
	return nil
}

// mayStart reports whether the tube's limits let a job be reserved, although the tube may be
// paused.
func (t *tube) mayStart() bool {
	return t.limits == nil || t.limits.opens(t.reserved) <= t.shard.now
}

// limit is why the tube is shut now, and for how long it will be at least, 0 if that is not
// known.
func (t *tube) limit() (by stats.Limit, left clock.Time) {
	left = max(0, t.pausedUntil-t.shard.now)
	l := t.limits
	switch {
	case left > 0 || l != nil && l.paused:
		return stats.PauseLimit, left
	case l == nil:
	case l.full(t.reserved):
		return stats.ReservedLimit, 0
	case !t.mayStart():
		return stats.RateLimit, l.opens(t.reserved) - t.shard.now
	}
	return stats.NoLimit, 0
}
