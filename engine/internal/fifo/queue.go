// Package fifo is a queue, first in, first out.
package fifo

// A Queue gives its elements back in the order in which they came. The zero Queue is empty. It is for one goroutine
// at a time.
type Queue[T any] struct {
	list []T
	head int
}

// MaxCap is the capacity that an empty queue keeps.
const MaxCap = 1024

// Empty reports whether there is no element.
func (q *Queue[T]) Empty() bool { return q.head == len(q.list) }

// All are the elements, in their order, until the queue changes.
func (q *Queue[T]) All() []T { return q.list[q.head:] }

// First is the element that Pop returns next.
func (q *Queue[T]) First() T { return q.list[q.head] }

// Push adds an element.
func (q *Queue[T]) Push(x T) {
	if n := len(q.list); n == cap(q.list) && q.head > n/2 {
		rest := copy(q.list, q.list[q.head:])
		clear(q.list[rest:])
		q.list, q.head = q.list[:rest], 0
	}
	q.list = append(q.list, x)
}

// Pop takes the first element out. There is one.
func (q *Queue[T]) Pop() T {
	var none T
	x := q.list[q.head]
	q.list[q.head] = none
	q.head++
	switch {
	case q.head < len(q.list):
	case cap(q.list) > MaxCap:
		q.list, q.head = nil, 0
	default:
		q.list, q.head = q.list[:0], 0
	}
	return x
}
