package reactor

import (
	"sync"

	"trellis/reactor/internal/writable"
)

// watcher waits for clients to take more output, which gnet cannot: it tells
// only of input. It has one goroutine for all connections, which does nothing
// but ring their loops.
type watcher struct {
	poll *writable.Poll
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	closed bool          // guarded by mu
	conns  map[int]*conn // by descriptor; guarded by mu
}

func newWatcher() (*watcher, error) {
	p, err := writable.Open()
	if err != nil {
		return nil, err
	}
	w := &watcher{poll: p, done: make(chan struct{}), conns: make(map[int]*conn)}
	go w.run()
	return w, nil
}

// arm asks that c's loop be rung, once, when c's descriptor can be written to
// or is broken. A ring may come without cause. forget must be called before the
// descriptor is closed.
func (w *watcher) arm(c *conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return writable.ErrClosed
	}
	_, known := w.conns[int(c.fd)]
	if err := w.poll.Arm(int(c.fd), known); err != nil {
		return err
	}
	w.conns[int(c.fd)] = c
	return nil
}

// forget ends the interest in a descriptor.
func (w *watcher) forget(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.conns[fd]; known && !w.closed {
		delete(w.conns, fd)
		w.poll.Forget(fd)
	}
}

func (w *watcher) run() {
	defer close(w.done)
	var fds []int
	for {
		var err error
		if fds, err = w.poll.Wait(fds[:0]); err != nil {
			return
		}
		for _, fd := range fds {
			w.mu.Lock()
			c := w.conns[fd]
			w.mu.Unlock()
			// Another connection may have got the number since; to ring it
			// without cause does no harm.
			if c != nil {
				c.loop.leaveWritable(c)
			}
		}
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.poll.Wake()
	<-w.done
	w.poll.Close()
}
