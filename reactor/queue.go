package reactor

// queue is first come, first served. The zero queue is empty.
type queue[T any] struct {
	items []T
	head  int // the index of the first
}

func (q *queue[T]) empty() bool { return q.head == len(q.items) }

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
