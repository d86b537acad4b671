package queue

// Ready holds a tube's ready jobs in the order (priority, id). The least number
// is the most urgent priority.
//
// Jobs come mostly in the order of their ids and with few different
// priorities, so Ready keeps a run for each of a few priorities, ascending by
// id, which costs nothing but the links that a record has anyway. A job that fits
// at neither end of its priority's run, or finds all runs taken, goes to a heap.
//
// A record may be withheld: it counts as ready, and is not in the order. Withhold and
// Restore take records out of the order and back, PushWithheld and RemoveWithheld add and
// remove them. Their owner knows which they are, and their Links are the owner's meanwhile.
//
// The zero Ready is empty. Its owner's lock guards it.
type Ready struct {
	runs   []priorityRun // never empty ones; at most maxRuns; the most urgent is the last
	heap   Heap          // by priority
	ages   Ages
	count  int // of records in the order and withheld ones
	urgent int // of count, those with a priority under UrgentBelow
}

type priorityRun struct {
	pri uint32
	run
}

const maxRuns = 8

// UrgentBelow is the first priority that statistics do not call urgent.
const UrgentBelow = 1024

// Len is the number of jobs, withheld ones included.
func (q *Ready) Len() int { return q.count }

// Urgent is the number of jobs with a priority under UrgentBelow.
func (q *Ready) Urgent() int { return q.urgent }

// Oldest is how many nanoseconds the job has been ready that became ready first,
// 0 if there is none. See [Ages] for how exact it is.
func (q *Ready) Oldest(now int64) int64 { return q.ages.Oldest(now) }

// Push adds the record r, whose links are l, with a priority. l.At is since when it
// is ready, and must not be less than that of a record pushed before.
func (q *Ready) Push(t Table, pri uint32, r Ref, l *Links) { q.push(t, pri, r, l, true) }

// Restore puts the withheld record r, whose links are l, into the order.
func (q *Ready) Restore(t Table, pri uint32, r Ref, l *Links) { q.push(t, pri, r, l, false) }

// PushWithheld adds a withheld record, whose links are l, with a priority. The same holds
// for l.At as in Push.
func (q *Ready) PushWithheld(pri uint32, l *Links) {
	q.count++
	if pri < UrgentBelow {
		q.urgent++
	}
	q.ages.Add(l.At)
}

// push puts a record into the order, and counts it if it is new.
func (q *Ready) push(t Table, pri uint32, r Ref, l *Links, isNew bool) {
	if isNew {
		q.PushWithheld(pri, l)
	}
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

func (q *Ready) pushHeap(t Table, pri uint32, r Ref, l *Links) {
	l.Next = inHeap
	q.heap.Push(t, uint64(pri), r, l)
}

// Remove takes out the record whose links are l and which was pushed with pri.
func (q *Ready) Remove(t Table, pri uint32, l *Links) { q.remove(t, pri, l, true) }

// Withhold takes the record whose links are l, which was pushed with pri, out of the order.
func (q *Ready) Withhold(t Table, pri uint32, l *Links) { q.remove(t, pri, l, false) }

// RemoveWithheld takes out the withheld record whose links are l.
func (q *Ready) RemoveWithheld(pri uint32, l *Links) {
	q.count--
	if pri < UrgentBelow {
		q.urgent--
	}
	q.ages.Remove(l.At)
}

// remove takes a record out of the order, and counts it off if it goes.
func (q *Ready) remove(t Table, pri uint32, l *Links, goes bool) {
	if goes {
		q.RemoveWithheld(pri, l)
	}
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

// insert makes room for a run at place i. There are few, too few for a copy by
// the runtime to pay.
func (q *Ready) insert(i int, u priorityRun) {
	q.runs = append(q.runs, u)
	for k := len(q.runs) - 1; k > i; k-- {
		q.runs[k], q.runs[k-1] = q.runs[k-1], u
	}
}

// Moved tells the queue that the record with the links l, which was pushed with
// pri, is now named r.
func (q *Ready) Moved(t Table, pri uint32, r Ref, l *Links) {
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

// find returns the place of a priority's run, or the place where it would go.
func (q *Ready) find(pri uint32) (i int, found bool) {
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
func (q *Ready) First(t Table) Ref {
	if n := len(q.runs); n > 0 && len(q.heap.small) == 0 {
		return q.runs[n-1].head
	}
	return q.firstOfBoth(t)
}

// firstOfBoth is First when there may be records in the heap.
func (q *Ready) firstOfBoth(t Table) Ref {
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
