// Package throttle says when a tube may hand out another job, by its setting and what it has handed out.
package throttle

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// Limits are what a tube's setting says of when it hands out jobs, and the starts that its rate counts. The lock of the
// tube's shard guards them.
type Limits struct {
	paused bool
	most   int // jobs that are reserved at once; 0 for no limit

	// The rate is a token bucket, kept as the generic cell rate algorithm does (ITU-T I.371): a
	// job may start burst-1 intervals before due, and each start moves due on by one. A tube
	// without a rate has no interval.
	interval, early, due clock.Time
}

// Limited reports whether a policy shuts its tube at times.
func Limited(p *journal.Policy) bool { return p.Rate > 0 || p.MaxReserved > 0 || p.Paused }

// Set makes the limits those of a policy. What was started counts on; a bucket of another size
// is not emptier than empty.
func (l *Limits) Set(p *journal.Policy, now clock.Time) {
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

// Start counts a job that is reserved.
func (l *Limits) Start(now clock.Time) {
	if l.interval > 0 {
		l.due = max(l.due, now) + l.interval
	}
}

// Paused reports whether the tube hands out no job until its setting says otherwise.
func (l *Limits) Paused() bool { return l.paused }

// Full reports whether no more jobs may be reserved while so many are.
func (l *Limits) Full(reserved int) bool { return l.most > 0 && reserved >= l.most }

// Opens is when the rate and the number of reserved jobs let a job start. MaxTime means that
// another one has to end first.
func (l *Limits) Opens(reserved int) clock.Time {
	if l.Full(reserved) {
		return clock.MaxTime
	}
	return l.due - l.early
}
