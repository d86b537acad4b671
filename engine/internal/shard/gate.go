package shard

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/throttle"
	"trellis/engine/stats"
)

// A tube that is shut hands out no jobs: reserve takes those of other tubes, and clients that
// wait for this one go on waiting. All reasons for that are in one word, tube.shut, so that who
// looks for a job makes one comparison.
//
// The limits of a setting belong to the name of the tube, and so do the reservations that its rate counts: a tube
// that goes and comes again has no more of them.

// limitsOf are the limits of the tubes of a name, nil if it has none.
func (sh *shard) limitsOf(tube string) *throttle.Limits {
	if sh.shared.cfg.Stock {
		return nil
	}
	return sh.limits[tube]
}

// putLimitsInForce gives a tube the limits of its setting.
func (sh *shard) putLimitsInForce(x *journal.Setting) {
	l := sh.limits[x.Tube]
	switch {
	case throttle.Limited(&x.Policy):
		if l == nil {
			if sh.limits == nil {
				sh.limits = make(map[string]*throttle.Limits)
			}
			l = new(throttle.Limits)
			sh.limits[x.Tube] = l
		}
		l.Set(&x.Policy, sh.now)
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
		t.shut = max(t.shut, l.Opens(t.reserved))
		if l.Paused() {
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
	return t.limits == nil || t.limits.Opens(t.reserved) <= t.shard.now
}

// limit is why the tube is shut now, and for how long it will be at least, 0 if that is not
// known.
func (t *tube) limit() (by stats.Limit, left clock.Time) {
	left = max(0, t.pausedUntil-t.shard.now)
	l := t.limits
	switch {
	case left > 0 || l != nil && l.Paused():
		return stats.PauseLimit, left
	case l == nil:
	case l.Full(t.reserved):
		return stats.ReservedLimit, 0
	case !t.mayStart():
		return stats.RateLimit, l.Opens(t.reserved) - t.shard.now
	}
	return stats.NoLimit, 0
}
