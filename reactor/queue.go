package reactor

import "sync"

// queue is first come, first served. The zero queue is empty.
type queue[T any] struct {
	items []T
	head  int // the index of the first
}

func (q *queue[T]) empty() bool { return q.head == len(q.items) }

func (q *queue[T]) len() int { return len(q.items) - q.head }

// first is the one that pop takes out. There must be one.
func (q *queue[T]) first() T { return q.items[q.head] }

func (q *queue[T]) push(v ...T) {
	// Under load the queue may never be empty: what was popped must not stay.
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v...)
}

func (q *queue[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	return v
}

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
