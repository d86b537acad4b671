package relay

// line is clients in the order in which they came. A client stands in one line at most. The zero line is empty.
type line struct {
	first, last *Client
	len         int
}

func (q *line) empty() bool { return q.first == nil }

func (q *line) push(f *Client) {
	if f.queued = true; q.first == nil {
		q.first = f
	} else {
		q.last.next = f
	}
	q.last = f
	q.len++
}

func (q *line) pop() *Client {
	f := q.first
	q.first = f.next
	f.next, f.queued = nil, false
	q.len--
	return f
}
