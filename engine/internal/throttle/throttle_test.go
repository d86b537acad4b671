package throttle

import (
	"testing"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// Jobs start as fast as they are asked for until the bucket is empty, and then at the rate.
func TestABurstIsFollowedByTheRate(t *testing.T) {
	var l Limits
	l.Set(&journal.Policy{Rate: 2, Per: 10, Burst: 3}, 0)
	now := 100 * clock.Second
	for i, want := range []clock.Time{0, 0, 0, 5, 10, 15} {
		at := max(now, l.Opens(0))
		if at != now+want*clock.Second {
			t.Fatalf("job %d starts %v later, want %d seconds", i, at-now, want)
		}
		l.Start(at)
	}
}

// A setting that is made again gives no tokens, and a smaller bucket takes none that it never had.
func TestAnotherSettingCountsOn(t *testing.T) {
	var l Limits
	p := journal.Policy{Rate: 1, Per: 10, Burst: 5}
	l.Set(&p, 0)
	for range 5 {
		l.Start(0)
	}
	if l.Set(&p, 0); l.Opens(0) != 10*clock.Second {
		t.Errorf("the same setting opens the tube at %v", l.Opens(0))
	}
	p.Burst = 1
	if l.Set(&p, 0); l.Opens(0) != 10*clock.Second {
		t.Errorf("an empty bucket that is smaller opens the tube at %v", l.Opens(0))
	}
	if l.Set(&journal.Policy{MaxReserved: 2, Paused: true}, 0); !l.Paused() || l.Opens(1) > 0 || !l.Full(2) || l.Opens(2) != clock.MaxTime {
		t.Errorf("limits are %+v", l)
	}
}

func TestAPolicyWithoutThemHasNoLimits(t *testing.T) {
	if Limited(&journal.DefaultPolicy) || !Limited(&journal.Policy{Paused: true}) || !Limited(&journal.Policy{Rate: 1, Per: 1}) {
		t.Error("a policy is not known by its limits")
	}
}
