package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type firing struct {
	timer timer
	fired []Time
	again func(f *firing, now Time)
}

func (f *firing) expire(now Time) bool {
	f.fired = append(f.fired, now)
	if f.again != nil {
		f.again(f, now)
	}
	return true
}

func newFiring() *firing {
	f := new(firing)
	f.timer.owner = f
	return f
}

// Each timer fires at the first step at or after its deadline, once, whatever
// is set and cancelled around it.
func TestTimersFireOnceAndNeverEarly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 50 {
		var w wheel
		var now Time
		live := map[*firing]Time{}
		spans := []Time{1, 1 << 10, 1 << 16, 1 << 20, second, 100 * second, 1 << 45, 1 << 61}
		for range 2000 {
			switch rnd.IntN(4) {
			case 0, 1:
				f := newFiring()
				at := now + Time(rnd.Int64N(int64(spans[rnd.IntN(len(spans))])))
				w.skip(min(now, w.due()))
				w.schedule(&f.timer, at)
				live[f] = at
			case 2:
				for f := range live {
					w.cancel(&f.timer)
					delete(live, f)
					break
				}
			case 3:
				due := w.due()
				switch soonest := slices.MinFunc(append(values(live), MaxTime), earlier); {
				case due > soonest:
					t.Fatalf("round %d: due at %d, but a timer is due at %d", round, due, soonest)
				case due != MaxTime && rnd.IntN(2) == 0:
					now = max(now, due)
				default:
					now += Time(rnd.Int64N(int64(spans[rnd.IntN(6)])))
				}
				w.advance(now)
			}
			for f, at := range live {
				if len(f.fired) > 0 != (at <= now) && at <= now {
					if w.due() > now {
						t.Fatalf("round %d: timer for %d has not fired at %d", round, at, now)
					}
				}
				if len(f.fired) > 1 || len(f.fired) == 1 && f.fired[0] < at {
					t.Fatalf("round %d: timer for %d fired at %v", round, at, f.fired)
				}
				if len(f.fired) == 1 {
					delete(live, f)
				}
			}
		}
	}
}

func earlier(a, b Time) int { return int(min(1, max(-1, a-b))) }

func values(m map[*firing]Time) []Time {
	var v []Time
	for _, at := range m {
		v = append(v, at)
	}
	return v
}

func TestATimerMayBeSetAgainWhileItFires(t *testing.T) {
	var w wheel
	f := newFiring()
	f.again = func(f *firing, now Time) {
		if len(f.fired) < 5 {
			w.schedule(&f.timer, now+10*second)
		}
	}
	w.schedule(&f.timer, second)
	var now Time
	for w.due() != MaxTime {
		now = w.due()
		w.advance(now)
	}
	want := []Time{second, 11 * second, 21 * second, 31 * second, 41 * second}
	if !slices.Equal(f.fired, want) {
		t.Fatalf("fired at %v, want %v", f.fired, want)
	}
}

func TestFiringMayCancelItsNeighbours(t *testing.T) {
	var w wheel
	all := make([]*firing, 10)
	for i := range all {
		all[i] = newFiring()
		w.schedule(&all[i].timer, second+Time(i%2))
	}
	all[0].again = func(*firing, Time) {
		for _, f := range all[1:] {
			w.cancel(&f.timer)
		}
	}
	w.advance(second)
	if w.due() != MaxTime {
		t.Fatal("a cancelled timer is still set")
	}
	w.advance(2 * second)
	for i, f := range all {
		if len(f.fired) != 1-min(i, 1) {
			t.Fatalf("timer %d fired %d times", i, len(f.fired))
		}
	}
}

func BenchmarkWheelScheduleAndCancel(b *testing.B) {
	var w wheel
	var timers [1024]firing
	for i := range timers {
		timers[i].timer.owner = &timers[i]
		w.schedule(&timers[i].timer, Time(i)*second/7)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		t := &timers[i&1023].timer
		w.cancel(t)
		w.schedule(t, Time(i&0xffff)*second/3)
		i++
	}
}
