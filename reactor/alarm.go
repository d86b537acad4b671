package reactor

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// alarm is a loop's only timer. It wakes the loop at the earliest of the
// times that it was asked for: one by the engine, and one for the loop's own
// deadlines. A request replaces the one before of the same kind.
type alarm struct {
	wake func()
	now  func() time.Duration

	wentOff atomic.Bool // since came was called

	mu    sync.Mutex
	timer *time.Timer              // nil before the first request; guarded by mu
	asked [numAlarms]time.Duration // MaxTime if for nothing; guarded by mu
	set   time.Duration            // when the timer goes off, MaxTime if it does not; guarded by mu
	off   bool                     // no more requests are taken; guarded by mu
}

// never is later than everything.
const never time.Duration = math.MaxInt64

const (
	engineAlarm = iota
	deadlineAlarm
	numAlarms
)

func newAlarm(wake func(), now func() time.Duration) *alarm {
	a := &alarm{wake: wake, now: now, set: never}
	for i := range a.asked {
		a.asked[i] = never
	}
	return a
}

// ask has the loop woken at or soon after at. Any goroutine may call it.
func (a *alarm) ask(kind int, at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[kind] = at
	a.reset()
}

// came forgets the requests whose time has come, and tells whether one for a
// deadline was among them. The loop calls it when it was woken.
func (a *alarm) came(now time.Duration) (deadline bool) {
	if !a.wentOff.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wentOff.Store(false)
	for kind, at := range a.asked {
		if at <= now {
			a.asked[kind] = never
			deadline = deadline || kind == deadlineAlarm
		}
	}
	a.reset()
	return deadline
}

// reset sets the timer for the earliest request. a.mu is held.
func (a *alarm) reset() {
	at := never
	for _, t := range a.asked {
		at = min(at, t)
	}
	if at == a.set || a.off {
		return
	}
	if a.set = at; at == never {
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

func (a *alarm) goOff() {
	a.mu.Lock()
	a.set = never
	a.wentOff.Store(true)
	a.mu.Unlock()
	a.wake()
}

// stop keeps the alarm from going off any more.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
