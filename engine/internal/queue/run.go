package queue

// A run is a linked list of records in ascending order. The owner of the run
// knows the order and which of the two ends a record belongs to. The zero run is
// empty.
type run struct{ head, tail Ref }

// append adds a record behind the last.
func (u *run) append(t Table, r Ref, l *Links) {
	l.Prev, l.Next = u.tail, 0
	t.setNext(u.tail, r)
	if u.tail == 0 {
		u.head = r
	}
	u.tail = r
}

// prepend adds a record before the first. The run must not be empty.
func (u *run) prepend(t Table, r Ref, l *Links) {
	l.Prev, l.Next = 0, u.head
	t.at(u.head).Prev = r
	u.head = r
}

// setNext makes next the neighbour behind r, which may be 0.
func (t Table) setNext(r, next Ref) {
	if r != 0 {
		t.at(r).Next = next
	}
}

// setPrev makes prev the neighbour before r, which may be 0.
func (t Table) setPrev(r, prev Ref) {
	if r != 0 {
		t.at(r).Prev = prev
	}
}

// inside reports whether a record of a run has neighbours on both sides, so that
// its run need not know that it goes or moves.
func (l *Links) inside() bool { return l.Prev != 0 && l.Next != 0 }

// setEnds makes head the run's first record if l is it, and tail the last.
func (u *run) setEnds(l *Links, head, tail Ref) {
	if l.Prev == 0 {
		u.head = head
	}
	if l.Next == 0 {
		u.tail = tail
	}
}
