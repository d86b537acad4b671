package account

import (
	"testing"

	"pgregory.net/rapid"

	"trellis/engine/internal/clock"
)

// In any span of time, no more commands are executed than come in it and were saved up
// before; and who waits until Ready finds some.
func TestARateIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int64{1, 3, 10, 5000, MaxRate}).Draw(t, "rate")
		r := Rate{account: New("a", Limits{Rate: limit})}
		depth := max(limit/10, 1)
		type step struct {
			at    clock.Time
			taken int64
		}
		var steps []step
		now := clock.Time(rapid.Int64Range(0, int64(clock.Second)).Draw(t, "start"))
		for range 50 {
			if rapid.Bool().Draw(t, "waits") {
				if now = r.Ready(now); r.Left(now) == 0 {
					t.Fatalf("nothing is left at %d", now)
				}
			} else {
				now += clock.Time(rapid.Int64Range(0, int64(clock.Second)/2).Draw(t, "later"))
			}
			n := min(r.Left(now), rapid.IntRange(0, 2*int(depth)).Draw(t, "commands"))
			r.Take(now, n)
			steps = append(steps, step{now, int64(n)})
		}
		for i := range steps {
			taken := int64(0)
			for _, s := range steps[i:] {
				taken += s.taken
				if span := s.at - steps[i].at; taken > depth+int64(span)*limit/int64(clock.Second)+1 {
					t.Fatalf("%d commands in %d ns at %d a second", taken, span, limit)
				}
			}
		}
	})
}

// What takes long is paid for later, by whoever comes next.
func TestADebtIsWaitedFor(t *testing.T) {
	r := Rate{account: New("a", Limits{Rate: 1000})}
	r.Take(0, 600)
	if at := r.Ready(0); at != clock.Second/2+5*clock.Second/1000 || r.Left(at-1) != 4 || r.Left(at) != 5 {
		t.Errorf("ready at %d with %d", at, r.Left(at))
	}
	r.account.SetLimits(Limits{})
	if r.Ready(1) != 1 || r.Left(1) < 1<<20 || r.Limited() {
		t.Error("it waits although there is no limit")
	}
}
