package queue

// Ready holds a tube's ready jobs in their order, counts them, and knows their ages.
//
// A record may be withheld: it counts as ready, and is not in the order. Withhold takes a
// record out of the order and Restore puts it back; PushWithheld and RemoveWithheld add and
// remove one that is withheld. The owner remembers which records are, and may use Prev and
// Next of their Links meanwhile.
//
// The zero Ready is empty. Its owner's lock guards it.
type Ready struct {
	ByPriority // those that are not withheld
	ages       Ages
	count      int // of records in the order and withheld ones
	urgent     int // of count, those with a priority under UrgentBelow
}

// UrgentBelow is the first priority that statistics do not call urgent.
const UrgentBelow = 1024

// Len is the number of jobs, withheld ones included.
func (q *Ready) Len() int { return q.count }

// Urgent is the number of jobs with a priority under UrgentBelow.
func (q *Ready) Urgent() int { return q.urgent }

// Oldest is how many nanoseconds the job that became ready first has been ready, 0 if
// there is none. See [Ages] for how exact it is.
func (q *Ready) Oldest(now int64) int64 { return q.ages.Oldest(now) }

// Push adds the record r, whose links are l, with a priority. l.At is when it became
// ready, and must not be less than that of a record pushed before.
func (q *Ready) Push(t Table, pri uint32, r Ref, l *Links) {
	q.PushWithheld(pri, l)
	q.ByPriority.Push(t, pri, r, l)
}

// Restore puts the withheld record r, whose links are l, into the order.
func (q *Ready) Restore(t Table, pri uint32, r Ref, l *Links) { q.ByPriority.Push(t, pri, r, l) }

// PushWithheld adds a withheld record, whose links are l, with a priority. The same holds
// for l.At as in Push.
func (q *Ready) PushWithheld(pri uint32, l *Links) {
	q.count++
	if pri < UrgentBelow {
		q.urgent++
	}
	q.ages.Add(l.At)
}

// Remove takes out the record whose links are l and which was pushed with pri.
func (q *Ready) Remove(t Table, pri uint32, l *Links) {
	q.RemoveWithheld(pri, l)
	q.ByPriority.Remove(t, pri, l)
}

// Withhold takes the record whose links are l, which was pushed with pri, out of the order.
func (q *Ready) Withhold(t Table, pri uint32, l *Links) { q.ByPriority.Remove(t, pri, l) }

// RemoveWithheld takes out the withheld record whose links are l.
func (q *Ready) RemoveWithheld(pri uint32, l *Links) {
	q.count--
	if pri < UrgentBelow {
		q.urgent--
	}
	q.ages.Remove(l.At)
}
