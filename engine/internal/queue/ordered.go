package queue

// Ordered holds records in the order (Links.At, Links.ID). Buried jobs stand in
// one, with the order of burying as the key.
//
// Records come almost always in that order and stand in one run. One that comes
// late and fits at neither end of the run goes to a heap, so that a log may be
// replayed in any order.
//
// The zero Ordered is empty. Its owner's lock guards it.
type Ordered struct {
	run   run
	heap  Heap
	count int
}

// Len is the number of records.
func (q *Ordered) Len() int { return q.count }

// Push adds the record r, whose links are l.
func (q *Ordered) Push(t Table, r Ref, l *Links) {
	q.count++
	switch {
	case q.run.tail == 0 || t.at(q.run.tail).before(l):
		q.run.append(t, r, l)
	case l.before(t.at(q.run.head)):
		q.run.prepend(t, r, l)
	default:
		l.Next = inHeap
		q.heap.Push(t, uint64(l.At), r, l)
	}
}

// Remove takes out the record whose links are l.
func (q *Ordered) Remove(t Table, l *Links) {
	q.count--
	if l.Next == inHeap {
		q.heap.Remove(t, l)
		return
	}
	t.setNext(l.Prev, l.Next)
	t.setPrev(l.Next, l.Prev)
	q.run.setEnds(l, l.Next, l.Prev)
}

// Moved tells the queue that the record with the links l is now named r.
func (q *Ordered) Moved(t Table, r Ref, l *Links) {
	if l.Next == inHeap {
		q.heap.Moved(r, l)
		return
	}
	t.setNext(l.Prev, r)
	t.setPrev(l.Next, r)
	q.run.setEnds(l, r, r)
}

// First returns the least record, 0 if there is none.
func (q *Ordered) First(t Table) Ref {
	if len(q.heap.small) == 0 {
		return q.run.head
	}
	return q.firstOfBoth(t)
}

// firstOfBoth is First when there are records in the heap.
func (q *Ordered) firstOfBoth(t Table) Ref {
	top := q.heap.small[0].Ref
	if q.run.head != 0 && t.at(q.run.head).before(t.at(top)) {
		return q.run.head
	}
	return top
}

func (l *Links) before(m *Links) bool {
	return l.At < m.At || l.At == m.At && l.ID < m.ID
}
