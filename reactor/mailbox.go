package reactor

import "sync"

// mailbox holds what other goroutines have for a loop. They post it, and then wake the loop,
// which takes it all, and deals with it bit by bit. The zero mailbox is empty.
type mailbox[T any] struct {
	mu     sync.Mutex
	posted []T // guarded by mu

	queue[T] // what was taken; of the loop's goroutine
}

// post puts v in. Any goroutine may call it.
func (m *mailbox[T]) post(v T) {
	m.mu.Lock()
	m.posted = append(m.posted, v)
	m.mu.Unlock()
}

// take puts what was posted into the queue.
func (m *mailbox[T]) take() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.push(m.posted...)
	clear(m.posted)
	m.posted = m.posted[:0]
}
