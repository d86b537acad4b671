package reactor

// runQueue holds the connections that can go on, in the order in which they
// became able to. It belongs to the loop's goroutine. Its zero value is empty.
type runQueue struct{ first, last *conn }

func (q *runQueue) empty() bool { return q.first == nil }

// push puts a connection, which has a backlog, at the end, unless it stands in
// the queue already.
func (q *runQueue) push(c *conn) {
	if c.x.queued {
		return
	}
	c.x.queued, c.x.next = true, nil
	if q.last == nil {
		q.first = c
	} else {
		q.last.x.next = c
	}
	q.last = c
}

// pop takes the first connection out. The queue must not be empty.
func (q *runQueue) pop() *conn {
	c := q.first
	if q.first = c.x.next; q.first == nil {
		q.last = nil
	}
	c.x.queued, c.x.next = false, nil
	return c
}
