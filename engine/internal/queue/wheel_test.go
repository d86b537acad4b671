package queue

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const second = 1e9

// A firing is a timer under test and what it does.
type firing struct {
	timer Timer
	fired []int64
	then  func(now int64) (done bool) // nil for nothing more
	tick  int64                       // by which it is sorted
	turn  int                         // among those of its tick
}

func (f *firing) Expire(now int64) bool {
	f.fired = append(f.fired, now)
	return f.then == nil || f.then(now)
}

func newFiring() *firing {
	f := new(firing)
	f.timer.Owner = f
	return f
}

// unbounded is a budget that does not end.
func unbounded() *int {
	n := math.MaxInt
	return &n
}

// A wheelModel is a wheel beside a list of its timers.
type wheelModel struct {
	*rapid.T
	wheel   Wheel
	now     int64
	live    []*firing
	turn    int
	steady  bool // time has not gone on since Advance last came to its end
	refuse  int  // how many of the next expirers return false
	onFire  func(*firing)
	cascade []*firing // fired by one call
}

func (m *wheelModel) schedule(f *firing, at int64) {
	f.tick, f.turn = max(at>>tickBits, m.wheel.now), m.turn
	m.turn++
	m.wheel.Schedule(&f.timer, at)
	m.live = append(m.live, f)
}

func (m *wheelModel) forget(f *firing) {
	i := slices.Index(m.live, f)
	m.live = slices.Delete(m.live, i, i+1)
}

// add schedules a timer that checks that it is its turn when it fires.
func (m *wheelModel) add(at int64) {
	f := newFiring()
	f.then = func(now int64) bool {
		if now != m.now || now < f.timer.At() {
			m.Fatalf("the timer for %d fires at %d", f.timer.At(), now)
		}
		for _, g := range m.live {
			if g.timer.At() <= now && (g.tick < f.tick || m.steady && g.tick == f.tick && g.turn < f.turn) {
				m.Fatalf("the %d. timer, for %d, fires before the %d., for %d", f.turn, f.timer.At(), g.turn, g.timer.At())
			}
		}
		m.cascade = append(m.cascade, f)
		if m.refuse > 0 {
			m.refuse--
			f.turn = m.turn // it comes last
			m.turn++
			return false
		}
		m.forget(f)
		if m.onFire != nil {
			m.onFire(f)
		}
		return true
	}
	m.schedule(f, at)
}

func (m *wheelModel) soonest() int64 {
	soonest := Never
	for _, f := range m.live {
		soonest = min(soonest, f.timer.At())
	}
	return soonest
}

func (m *wheelModel) check() {
	if err := m.wheel.Check(); err != nil {
		m.Fatal(err)
	}
	n := 0
	for range m.wheel.All() {
		n++
	}
	if n != len(m.live) {
		m.Fatalf("%d timers are scheduled, want %d", n, len(m.live))
	}
	soonest := m.soonest()
	if due := m.wheel.Due(); due > max(soonest, m.now) || due == Never && n > 0 || due != Never && n == 0 {
		m.Fatalf("due at %d, the first of %d timers at %d", due, n, soonest)
	}
}

// advance advances the wheel to the present, with a budget.
func (m *wheelModel) advance(budget int) (all bool) {
	m.cascade = nil
	left := budget
	all = m.wheel.Advance(m.now, &left)
	if left < 0 || len(m.cascade) > budget-left {
		m.Fatalf("of a budget of %d is left %d, and %d timers have fired", budget, left, len(m.cascade))
	}
	if all {
		m.steady = true
		if m.soonest() <= m.now || m.wheel.Due() <= m.now {
			m.Fatalf("advanced to %d, and due are still %d and %d", m.now, m.soonest(), m.wheel.Due())
		}
	}
	return all
}

func (m *wheelModel) pass(n int64) {
	m.now += n
	// What an interrupted call has passed by may be due by now.
	m.steady = m.steady && m.wheel.pass == 0
}

// Each timer fires at the first step at or after its deadline, once, by ticks and
// within a tick in the order of scheduling, whatever is scheduled, cancelled, and
// interrupted around it.
func TestWheelIsLikeASortedList(t *testing.T) {
	spans := []int64{0, 1, 1 << 10, 1 << 16, 1 << 20, second, 100 * second, 1 << 45, 1 << 61}
	check(t, 1000, 80, func(t *rapid.T) {
		m := &wheelModel{T: t, steady: true}
		span := func(n int) int64 {
			return rapid.Int64Range(0, rapid.SampledFrom(spans[:n]).Draw(t, "span")).Draw(t, "time")
		}
		add := func() {
			if m.now < m.wheel.Due() {
				m.wheel.Skip(m.now)
			}
			m.add(max(0, m.now+span(len(spans))-rapid.SampledFrom([]int64{0, 0, 0, 1 << 17}).Draw(t, "late")))
		}
		t.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { m.check() },
			"schedule": func(*rapid.T) { add() },
			"schedule many for about the same time": func(t *rapid.T) {
				at, width := m.now+span(len(spans)), span(5)
				for range rapid.IntRange(1, 100).Draw(t, "timers") {
					m.add(at + rapid.Int64Range(0, width).Draw(t, "in"))
				}
			},
			"skip": func(*rapid.T) { m.wheel.Skip(m.now) },
			"cancel": func(t *rapid.T) {
				f := m.live[oneOf(t, len(m.live))]
				m.wheel.Cancel(&f.timer)
				m.forget(f)
			},
			"cancel many": func(t *rapid.T) {
				for range rapid.IntRange(0, len(m.live)).Draw(t, "timers") {
					f := m.live[rapid.IntRange(0, len(m.live)-1).Draw(t, "timer")]
					m.wheel.Cancel(&f.timer)
					m.forget(f)
				}
			},
			"time passes": func(*rapid.T) { m.pass(span(6)) },
			"time passes until something is due": func(t *rapid.T) {
				if due := m.wheel.Due(); due != Never {
					m.pass(max(0, due-m.now))
				}
			},
			"advance": func(t *rapid.T) {
				if !m.advance(math.MaxInt) {
					t.Fatal("interrupted")
				}
			},
			"advance a little": func(t *rapid.T) { m.advance(rapid.IntRange(0, 50).Draw(t, "budget")) },
			"advance with expirers that have more to do": func(t *rapid.T) {
				m.refuse = rapid.IntRange(1, 3).Draw(t, "expirers")
				all := m.advance(math.MaxInt)
				if all && m.refuse == 0 {
					t.Fatal("an expirer had more to do, and the wheel says that it was all")
				}
				m.refuse = 0
			},
			"advance with expirers that schedule and cancel": func(t *rapid.T) {
				m.onFire = func(*firing) {
					switch rapid.IntRange(0, 3).Draw(t, "what") {
					case 0:
						if len(m.live) < 1000 {
							m.add(m.now + span(6))
						}
					case 1:
						if len(m.live) > 0 {
							f := m.live[rapid.IntRange(0, len(m.live)-1).Draw(t, "timer")]
							m.wheel.Cancel(&f.timer)
							m.forget(f)
						}
					}
				}
				m.advance(200)
				m.onFire = nil
			},
		})
		for calls := 0; len(m.live) > 0; calls++ {
			if calls > 100_000 {
				t.Fatalf("%d timers do not fire", len(m.live))
			}
			m.pass(max(0, m.wheel.Due()-m.now))
			m.advance(100)
		}
		m.check()
	})
}

func TestATimerMayBeScheduledAgainWhileItFires(t *testing.T) {
	var w Wheel
	f := newFiring()
	f.then = func(now int64) bool {
		if len(f.fired) < 5 {
			w.Schedule(&f.timer, now+10*second)
		}
		return true
	}
	w.Schedule(&f.timer, second)
	for w.Due() != Never {
		w.Advance(w.Due(), unbounded())
	}
	want := []int64{second, 11 * second, 21 * second, 31 * second, 41 * second}
	if !slices.Equal(f.fired, want) {
		t.Fatalf("fired at %v, want %v", f.fired, want)
	}
}

func TestFiringMayCancelItsNeighbours(t *testing.T) {
	var w Wheel
	all := make([]*firing, 10)
	for i := range all {
		all[i] = newFiring()
		w.Schedule(&all[i].timer, second+int64(i%2))
	}
	all[0].then = func(int64) bool {
		for _, f := range all[1:] {
			w.Cancel(&f.timer)
		}
		return true
	}
	w.Advance(second, unbounded())
	if w.Due() != Never {
		t.Fatal("a cancelled timer is still scheduled")
	}
	w.Advance(2*second, unbounded())
	for i, f := range all {
		if len(f.fired) != 1-min(i, 1) {
			t.Fatalf("timer %d fired %d times", i, len(f.fired))
		}
	}
}

func TestAnExpirerWithMoreToDoComesLast(t *testing.T) {
	var w Wheel
	var order []int
	for i := range 3 {
		f := newFiring()
		f.then = func(int64) bool {
			order = append(order, i)
			return i != 0 || len(f.fired) == 3
		}
		w.Schedule(&f.timer, second)
	}
	calls := 1
	for ; !w.Advance(second, unbounded()); calls++ {
	}
	if want := []int{0, 1, 2, 0, 0}; !slices.Equal(order, want) || calls != 3 {
		t.Fatalf("fired %v in %d calls, want %v in 3", order, calls, want)
	}
}

// However many timers share a slot, a call does no more than its budget allows.
func TestAdvanceKeepsToItsBudget(t *testing.T) {
	const budget = 50
	n := int64(300)
	if proof {
		n = 1000
	}
	for name, at := range map[string]func(i int) int64{
		"one moment":                     func(int) int64 { return 100 * second },
		"one tick":                       func(i int) int64 { return 100*second>>tickBits<<tickBits + int64(i) },
		"one slot of the second level":   func(i int) int64 { return 100*second + int64(i)*100 },
		"one slot of a high level":       func(i int) int64 { return 1<<50 + int64(i)*second },
		"one tick, the last comes first": func(i int) int64 { return 100*second>>tickBits<<tickBits + n - int64(i) },
	} {
		t.Run(name, func(t *testing.T) {
			var w Wheel
			fired := int64(0)
			timers := make([]firing, n)
			places := make([]int16, n)
			last := int64(0)
			for i := range timers {
				f := &timers[i]
				f.timer.Owner = f
				f.then = func(int64) bool {
					fired++
					return true
				}
				w.Schedule(&f.timer, at(i))
				last = max(last, at(i))
			}
			calls := int64(0)
			for now := int64(0); fired < n; now = max(now, w.Due()) {
				for all := false; !all; calls++ {
					for i := range timers {
						places[i] = timers[i].timer.slot
					}
					left := budget
					all = w.Advance(now, &left)
					changed := 0
					for i := range timers {
						if places[i] != timers[i].timer.slot {
							changed++
						}
					}
					if changed > budget || left < 0 || !all && left != 0 {
						t.Fatalf("%d timers have changed, %d of the budget are left, all: %v", changed, left, all)
					}
					if calls > 100*n {
						t.Fatal("it does not come to its end")
					}
				}
			}
			if w.Due() != Never {
				t.Fatal("a timer is left")
			}
		})
	}
}

func TestSkipMovesFewTimersAtATime(t *testing.T) {
	const n = 5000
	var w Wheel
	timers := make([]firing, n)
	for i := range timers {
		timers[i].timer.Owner = &timers[i]
		w.Schedule(&timers[i].timer, 100*second+int64(i)*1000)
	}
	for range 2 * n {
		places := make([]int16, n)
		for i := range timers {
			places[i] = timers[i].timer.slot
		}
		w.Skip(100 * second)
		changed := 0
		for i := range timers {
			if places[i] != timers[i].timer.slot {
				changed++
			}
		}
		if changed > skipSteps {
			t.Fatalf("%d timers have moved", changed)
		}
		if changed == 0 {
			return
		}
	}
	t.Fatal("it does not come to its end")
}

// A timer that is scheduled while its slot moves down does not overtake those that
// were scheduled before.
func TestTimersKeepTheirOrderWhileTheirSlotMovesDown(t *testing.T) {
	var w Wheel
	var order []int
	add := func(i int) {
		f := newFiring()
		f.then = func(int64) bool {
			order = append(order, i)
			return true
		}
		w.Schedule(&f.timer, 100*second)
	}
	const n = 1000
	now := int64(0)
	for i := range n {
		add(i)
		if i >= n/2 {
			if i == n/2 {
				now = w.Due()
			}
			one := 1
			w.Advance(now, &one)
		}
	}
	for w.Due() != Never {
		now = max(now, w.Due())
		w.Advance(now, unbounded())
	}
	if !slices.IsSorted(order) || len(order) != n {
		t.Fatalf("fired %v", order)
	}
}

func TestAWheelIsEmptyWhenItsTimersAreCancelledInTheMiddleOfWork(t *testing.T) {
	for name, interrupt := range map[string]func(w *Wheel, budget *int){
		"while their slot moves down": func(w *Wheel, budget *int) { w.Advance(w.Due(), budget) },
		"while their slot is looked through": func(w *Wheel, budget *int) {
			for w.Due() < second {
				w.Advance(w.Due(), unbounded())
			}
			w.Advance(second+50, budget)
		},
		"after some were left that are not due": func(w *Wheel, budget *int) {
			for w.Due() < second {
				w.Advance(w.Due(), unbounded())
			}
			w.Advance(second, budget)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w Wheel
			timers := make([]firing, 100)
			for i := range timers {
				timers[i].timer.Owner = &timers[i]
				w.Schedule(&timers[i].timer, second+int64(i))
			}
			budget := 30
			if interrupt(&w, &budget); budget != 0 {
				t.Fatal("the wheel was not interrupted")
			}
			for i := range timers {
				w.Cancel(&timers[i].timer)
				w.Cancel(&timers[i].timer)
			}
			if due := w.Due(); due != Never {
				t.Fatalf("due at %d", due)
			}
			late := newFiring()
			w.Schedule(&late.timer, 2*second)
			if due := w.Due(); due > 2*second {
				t.Fatalf("due at %d", due)
			}
			for w.Due() != Never {
				w.Advance(w.Due(), unbounded())
			}
			if !slices.Equal(late.fired, []int64{2 * second}) {
				t.Fatalf("fired at %v", late.fired)
			}
		})
	}
}

func TestATimerOfThePresentTickIsDueToTheNanosecond(t *testing.T) {
	var w Wheel
	first, second := newFiring(), newFiring()
	w.Schedule(&first.timer, 10)
	if due := w.Due(); due != 10 {
		t.Errorf("due at %d, want 10", due)
	}
	w.Advance(10, unbounded())
	w.Schedule(&second.timer, 30)
	if due := w.Due(); due != 30 {
		t.Errorf("due at %d, want 30", due)
	}
	w.Schedule(&first.timer, 20)
	if due := w.Due(); due != 20 {
		t.Errorf("due at %d, want 20", due)
	}
	w.Advance(20, unbounded())
	if due := w.Due(); due != 30 {
		t.Errorf("due at %d, want 30", due)
	}
}
