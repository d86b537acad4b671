package reactor

import (
	"sync"
	"time"
)

// logEvery is how often one kind of trouble is logged.
const logEvery = 10 * time.Second

// throttle keeps repeated trouble from filling the log. Any goroutine may use it.
type throttle struct {
	mu         sync.Mutex
	next       time.Time
	unreported int
}

// allow tells if the trouble is to be logged, and how often it was not since it
// was last.
func (t *throttle) allow() (unreported int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.next) {
		t.unreported++
		return 0, false
	}
	t.next = now.Add(logEvery)
	unreported, t.unreported = t.unreported, 0
	return unreported, true
}
