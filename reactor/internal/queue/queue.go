package queue

import (
	"slices"
	"sync"
)

// Queue is first come, first served. The zero Queue is empty.
type Queue[T any] struct {
	items []T
	head  int // the index of the first
}

// Empty reports whether the queue is.
func (q *Queue[T]) Empty() bool { return q.head == len(q.items) }

// Len is how many are in the queue.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// First is the one that Pop takes out. There must be one.
func (q *Queue[T]) First() T { return q.items[q.head] }

// Push adds to the end of the queue.
func (q *Queue[T]) Push(v ...T) {
	// Under load the queue may never be empty: what was popped must not stay.
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v...)
}

// Pop takes out the first. There must be one.
func (q *Queue[T]) Pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	return v
}

// DeleteFunc takes out those for which del returns true.
func (q *Queue[T]) DeleteFunc(del func(T) bool) {
	q.items = slices.DeleteFunc(q.items[q.head:], del)
	q.head = 0
}

// Mailbox holds what other goroutines have for a loop. They post it, and then wake the loop,
// which takes it all, and deals with it bit by bit. The zero Mailbox is empty.
type Mailbox[T any] struct {
	mu     sync.Mutex
	posted []T // guarded by mu

	Queue[T] // what was taken; of the loop's goroutine
}

// Post puts v in. Any goroutine may call it.
func (m *Mailbox[T]) Post(v T) {
	m.mu.Lock()
	m.posted = append(m.posted, v)
	m.mu.Unlock()
}

// Take puts what was posted into the queue.
func (m *Mailbox[T]) Take() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Push(m.posted...)
	clear(m.posted)
	m.posted = m.posted[:0]
}
