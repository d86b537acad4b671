package queue

// A run is a linked list of records in ascending order. The owner of the run
// knows the order and which of the two ends a record belongs to. The zero run is
// empty.
type run struct{ head, tail Ref }

// append adds a record behind the last.
func (u *run) append(t Table, r Ref, l *Links) {
	l.Prev, l.Next = u.tail, 0
	if u.tail != 0 {
		t.at(u.tail).Next = r
	} else {
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

// link writes before and after into the neighbours of a record: its own name
// twice when the record has moved, those of each other when it goes. It reports
// whether the record is the first or the last of its run, so that the run must
// be told, too.
func link(t Table, l *Links, before, after Ref) (end bool) {
	if l.Prev != 0 {
		t.at(l.Prev).Next = after
	}
	if l.Next != 0 {
		t.at(l.Next).Prev = before
	}
	return l.Prev == 0 || l.Next == 0
}

// setEnds makes head the run's first record if l is it, and tail the last.
func (u *run) setEnds(l *Links, head, tail Ref) {
	if l.Prev == 0 {
		u.head = head
	}
	if l.Next == 0 {
		u.tail = tail
	}
}
