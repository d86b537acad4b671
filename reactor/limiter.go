package reactor

import (
	"sync"
	"time"
)

// logEvery is how often one kind of trouble is logged.
const logEvery = 10 * time.Second

// limiter keeps repeated trouble from filling the log. Any goroutine may use it.
type limiter struct {
	mu   sync.Mutex
	next time.Time
	held int
}

// allow tells if the trouble is to be logged, and how often it was not since it
// was last.
func (l *limiter) allow() (unreported int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		l.held++
		return 0, false
	}
	l.next = now.Add(logEvery)
	unreported, l.held = l.held, 0
	return unreported, true
}
