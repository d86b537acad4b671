package reactor

import "sync"

// mailbox holds what other goroutines leave for a loop before they ring its bell.
// The loop takes it when it hears the bell, and deals with it bit by bit. Its zero
// value is empty.
type mailbox[T any] struct {
	mu   sync.Mutex
	left []T // guarded by mu

	// Of the loop's goroutine: what was taken, from next on.
	taken []T
	next  int
}

// leave puts v in. Any goroutine may call it.
func (m *mailbox[T]) leave(v T) {
	m.mu.Lock()
	m.left = append(m.left, v)
	m.mu.Unlock()
}

// take makes what was left available to pop.
func (m *mailbox[T]) take() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.empty() {
		m.taken, m.left, m.next = m.left, m.taken[:0], 0
		return
	}
	// Under load there may always be something left: what was popped must not stay.
	if m.next > len(m.taken)/2 {
		n := copy(m.taken, m.taken[m.next:])
		clear(m.taken[n:])
		m.taken, m.next = m.taken[:n], 0
	}
	m.taken = append(m.taken, m.left...)
	clear(m.left)
	m.left = m.left[:0]
}

func (m *mailbox[T]) empty() bool { return m.next == len(m.taken) }

// pop takes out the first thing that was taken. There must be one.
func (m *mailbox[T]) pop() T {
	var zero T
	v := m.taken[m.next]
	m.taken[m.next] = zero
	m.next++
	return v
}
