package gnetloop

import (
	"sync"
	"sync/atomic"
)

// waker makes a loop begin a round. A loop that is awake looks for itself before it sleeps, so
// that the system is asked only for one that sleeps.
type waker struct {
	woken atomic.Bool // Wake was called, and no round has begun since
	awake atomic.Bool // the loop looks at woken before it sleeps

	mu   sync.RWMutex
	open bool // the poller's descriptors may be used; guarded by mu
}

// Wake makes the loop begin a round with Round(true), unless it is being stopped. Any
// goroutine may call it; it does not block.
func (l *Loop) Wake() {
	w := &l.waker
	if w.woken.Load() || w.woken.Swap(true) {
		return
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.open && !w.awake.Load() {
		if err := l.poller.interrupt(); err != nil {
			// Sessions might sleep for ever.
			l.fatal("an event loop cannot be woken", "error", err)
		}
	}
}

// mayRest says that the loop is about to sleep. It reports false when the loop was woken before.
func (w *waker) mayRest() bool {
	w.awake.Store(false)
	return !w.woken.Load()
}

// close makes Wake do nothing from now on.
func (w *waker) close() {
	w.mu.Lock()
	w.open = false
	w.mu.Unlock()
}
