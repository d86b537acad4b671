package queue

// ByPriority holds jobs in the order (priority, id). The least number is the most urgent
// priority.
//
// Jobs come mostly in the order of their ids and with few different
// priorities, so ByPriority keeps a run for each of a few priorities, ascending by
// id, which costs nothing but the links that a record has anyway. A job that fits
// at neither end of its priority's run, or finds all runs taken, goes to a heap.
//
// The zero ByPriority is empty. Its owner's lock guards it.
type ByPriority struct {
	runs []priorityRun // at most maxRuns, none of them empty, the most urgent last
	heap Heap          // by priority
}

type priorityRun struct {
	pri uint32
	run
}

const maxRuns = 8

// Empty reports whether there is no record.
func (q *ByPriority) Empty() bool { return len(q.runs) == 0 && len(q.heap.small) == 0 }

// Room is the capacity of the heap in records. Changing it takes time, most of it the garbage
// collector's.
func (q *ByPriority) Room() int { return q.heap.room() }

// Trim gives back the spare room of a small queue. It is for owners of many queues,
// each of which holds little.
func (q *ByPriority) Trim() {
	q.heap.trim()
	if q.Empty() && cap(q.runs) > 1 {
		q.runs = nil
	}
}

// Push adds the record r, whose links are l, with a priority.
func (q *ByPriority) Push(t Table, pri uint32, r Ref, l *Links) {
	i, found := q.find(pri)
	if !found {
		if len(q.runs) == maxRuns {
			q.pushHeap(t, pri, r, l)
			return
		}
		l.Prev, l.Next = 0, 0
		q.insert(i, priorityRun{pri, run{r, r}})
		return
	}
	switch u := &q.runs[i].run; {
	case t.at(u.tail).ID < l.ID:
		u.append(t, r, l)
	case l.ID < t.at(u.head).ID:
		u.prepend(t, r, l)
	default:
		q.pushHeap(t, pri, r, l)
	}
}

func (q *ByPriority) pushHeap(t Table, pri uint32, r Ref, l *Links) {
	l.Next = inHeap
	q.heap.Push(t, uint64(pri), r, l)
}

// Headmost returns the first record that stands in no heap, 0 if there is none.
func (q *ByPriority) Headmost() Ref {
	if n := len(q.runs); n > 0 {
		return q.runs[n-1].head
	}
	return 0
}

// Behind returns the record that follows one in the order, but for those in the heap; 0 if there is none. The links of
// that are l, and it was pushed with pri.
func (q *ByPriority) Behind(pri uint32, l *Links) Ref {
	switch i, _ := q.find(pri); {
	case l.InHeap():
		return q.Headmost()
	case l.Next != 0:
		return l.Next
	case i > 0:
		return q.runs[i-1].head
	}
	return 0
}

// InHeap is the number of records in the heap.
func (q *ByPriority) InHeap() int { return q.heap.Len() }

// AtHeap returns the record at an index of the heap, from 0 to InHeap()-1. Each comes to index 0 through lower ones.
func (q *ByPriority) AtHeap(i int) Ref { return q.heap.At(i).Ref }

// Remove takes out the record whose links are l and which was pushed with pri.
func (q *ByPriority) Remove(t Table, pri uint32, l *Links) {
	if l.Next == inHeap {
		q.heap.Remove(t, l)
		return
	}
	t.setNext(l.Prev, l.Next)
	t.setPrev(l.Next, l.Prev)
	if l.inside() {
		return
	}
	i, _ := q.find(pri)
	if l.Prev != l.Next {
		q.runs[i].setEnds(l, l.Next, l.Prev)
		return
	}
	last := len(q.runs) - 1 // the run has no other
	for ; i < last; i++ {
		q.runs[i] = q.runs[i+1]
	}
	q.runs = q.runs[:last]
}

// insert makes room for a run at index i. There are few, too few for a copy by
// the runtime to pay.
func (q *ByPriority) insert(i int, u priorityRun) {
	q.runs = append(q.runs, u)
	for k := len(q.runs) - 1; k > i; k-- {
		q.runs[k], q.runs[k-1] = q.runs[k-1], u
	}
}

// Moved tells the queue that the record with the links l, which was pushed with
// pri, is now named r.
func (q *ByPriority) Moved(t Table, pri uint32, r Ref, l *Links) {
	if l.Next == inHeap {
		q.heap.Moved(r, l)
		return
	}
	t.setNext(l.Prev, r)
	t.setPrev(l.Next, r)
	if !l.inside() {
		i, _ := q.find(pri)
		q.runs[i].setEnds(l, r, r)
	}
}

// find returns the index of a priority's run, or that where it would go.
func (q *ByPriority) find(pri uint32) (i int, found bool) {
	i = len(q.runs)
	for i > 0 && q.runs[i-1].pri < pri {
		i--
	}
	if i > 0 && q.runs[i-1].pri == pri {
		return i - 1, true
	}
	return i, false
}

// First returns the record that is to be reserved first, 0 if there is none in the order.
func (q *ByPriority) First(t Table) Ref {
	if n := len(q.runs); n > 0 && len(q.heap.small) == 0 {
		return q.runs[n-1].head
	}
	return q.firstOfBoth(t)
}

// firstOfBoth is First when there may be records in the heap.
func (q *ByPriority) firstOfBoth(t Table) Ref {
	if q.heap.Len() == 0 {
		return 0
	}
	top := &q.heap.small[0]
	if len(q.runs) == 0 {
		return top.Ref
	}
	u := &q.runs[len(q.runs)-1]
	if pri := uint64(u.pri); top.Key < pri || top.Key == pri && top.ID < t.at(u.head).ID {
		return top.Ref
	}
	return u.head
}
