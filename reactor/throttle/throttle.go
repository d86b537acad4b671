package throttle

import (
	"sync"
	"time"
)

// Interval is how often one kind of trouble is logged.
const Interval = 10 * time.Second

// Throttle is for one kind of trouble. Any goroutine may use it. The zero Throttle allows
// the first one.
type Throttle struct {
	mu         sync.Mutex
	next       time.Time // guarded by mu
	unreported int       // guarded by mu
}

// Allow tells whether the trouble is to be logged, and if so, how often it was not since
// it was logged last.
func (t *Throttle) Allow() (unreported int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.next) {
		t.unreported++
		return 0, false
	}
	t.next = now.Add(Interval)
	unreported, t.unreported = t.unreported, 0
	return unreported, true
}
