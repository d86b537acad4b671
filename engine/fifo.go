package engine

// A fifo is a queue, first in, first out. The zero fifo is empty.
type fifo[T any] struct {
	list []T
	head int
}

// maxQueueCap is the capacity that an empty queue keeps, and how many puts that are not
// finished a loop has memory ready for.
const maxQueueCap = 1024

func (q *fifo[T]) empty() bool { return q.head == len(q.list) }

// first is the element that pop returns.
func (q *fifo[T]) first() T { return q.list[q.head] }

func (q *fifo[T]) push(x T) {
	if n := len(q.list); n == cap(q.list) && q.head > n/2 {
		rest := copy(q.list, q.list[q.head:])
		clear(q.list[rest:])
		q.list, q.head = q.list[:rest], 0
	}
	q.list = append(q.list, x)
}

func (q *fifo[T]) pop() T {
	var none T
	x := q.list[q.head]
	q.list[q.head] = none
	q.head++
	switch {
	case q.head < len(q.list):
	case cap(q.list) > maxQueueCap:
		q.list, q.head = nil, 0
	default:
		q.list, q.head = q.list[:0], 0
	}
	return x
}
