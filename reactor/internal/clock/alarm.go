package clock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Alarm is a loop's only timer. It wakes the loop at the earliest of the times that it was asked for. A request
// replaces the one before of the same kind.
type Alarm struct {
	wake func()
	now  func() time.Duration

	wentOff atomic.Bool // since Came was called

	mu    sync.Mutex
	timer *time.Timer             // nil before the first request; guarded by mu
	asked [numKinds]time.Duration // MaxTime if for nothing; guarded by mu
	set   time.Duration           // when the timer goes off, MaxTime if it does not; guarded by mu
	off   bool                    // no more requests are taken; guarded by mu
}

// Never is later than everything.
const Never time.Duration = math.MaxInt64

// Kind is what an alarm is asked for.
type Kind uint8

// The kinds of requests.
const (
	Engine   Kind = iota // by the engine
	Deadline             // for a deadline of the loop's
	numKinds
)

// New returns an alarm that calls wake, on a goroutine of its own, at times of the clock now.
func New(wake func(), now func() time.Duration) *Alarm {
	a := &Alarm{wake: wake, now: now, set: Never}
	for i := range a.asked {
		a.asked[i] = Never
	}
	return a
}

// Ask wakes the loop at or soon after at. Any goroutine may call it.
func (a *Alarm) Ask(kind Kind, at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[kind] = at
	a.reset()
}

// Came forgets the requests whose time has come, and reports whether one for a deadline was among them. The loop
// calls it when it was woken.
func (a *Alarm) Came(now time.Duration) (deadline bool) {
	if !a.wentOff.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wentOff.Store(false)
	for kind, at := range a.asked {
		if at <= now {
			a.asked[kind] = Never
			deadline = deadline || Kind(kind) == Deadline
		}
	}
	a.reset()
	return deadline
}

// reset sets the timer for the earliest request. a.mu is held.
func (a *Alarm) reset() {
	at := Never
	for _, t := range a.asked {
		at = min(at, t)
	}
	if at == a.set || a.off {
		return
	}
	if a.set = at; at == Never {
		a.timer.Stop()
		return
	}
	in := max(0, at-a.now())
	if a.timer == nil {
		a.timer = time.AfterFunc(in, a.goOff)
		return
	}
	a.timer.Reset(in)
}

func (a *Alarm) goOff() {
	a.mu.Lock()
	a.set = Never
	a.wentOff.Store(true)
	a.mu.Unlock()
	a.wake()
}

// Stop keeps the alarm from going off any more.
func (a *Alarm) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
