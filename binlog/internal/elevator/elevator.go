package elevator

import (
	"cmp"
	"slices"
	"time"

	"trellis/binlog/journal"
)

// Limits of reads, in bytes where nothing else is said.
const (
	MaxRead = 128 << 10 // the longest

	turn         = 64 << 10  // the longest for several urgent requests
	gap          = 32 << 10  // read although nobody has asked for it
	urgentBytes  = 256 << 10 // of all urgent reads at a time
	urgentReads  = 8
	urgentShared = 2 // while commits need the disk
)

// Elevator is what is wanted and what is being read. The zero Elevator has nothing to do. It is for one goroutine
// at a time.
type Elevator[T any] struct {
	written journal.Place // the end of what can be read
	refused error         // of all requests: it is closed
	failed  error         // of those that are not written and never will be

	ring  []*queue[T]          // those of the urgent that have requests, by turns
	turns map[uint64]*queue[T] // the same
	bulk  [lanes - 1]queue[T]  // of the other lanes
	next  int                  // of shares
	near  map[block][]*Request[T]

	unwritten, delayed, suspects []*Request[T]

	reads []*Read[T] // that have not returned, those that hang too
	disk  disk
}

const lanes = int(journal.Move) + 1

// shares are the other lanes in the order in which they are read from, as far as they have requests.
var shares = [...]journal.Lane{
	journal.Ahead, journal.Walk, journal.Ahead, journal.Move, journal.Ahead, journal.Walk, journal.Ahead,
}

// queue is what waits in one lane, or for one client, and some that has gone on.
type queue[T any] struct {
	requests []*Request[T]
	of       uint64 // the client
}

// first is the first that waits, nil if none does.
func (q *queue[T]) first() *Request[T] {
	for len(q.requests) > 0 && q.requests[0].phase != waiting {
		q.requests = q.requests[1:]
	}
	if len(q.requests) == 0 {
		q.requests = nil
		return nil
	}
	return q.requests[0]
}

// block is a part of a file that one read can hold, for one lane.
type block struct {
	lane journal.Lane
	file uint32
	at   int64
}

// span is what one read for several requests of that lane can hold.
func span(l journal.Lane) int64 {
	if l == journal.Urgent {
		return turn
	}
	return MaxRead
}

// block is where a request meets those that can share its read.
func (r *Request[T]) block() block { return block{r.Lane, r.Place.Segment, r.From / span(r.Lane)} }

// alone reports whether no other request may share its read: it is too long, or was in a read that has failed,
// perhaps for the sake of another one.
func (r *Request[T]) alone() bool { return r.tries > 0 || r.To-r.From > span(r.Lane) }

// Add takes requests. It returns those that have ended at once.
func (e *Elevator[T]) Add(rs []*Request[T], now time.Time) (ends []End[T]) {
	for _, r := range rs {
		r.next, r.due = r.From, now.Add(patience)
		r.phase = unwritten
		switch {
		case e.refused != nil:
			ends = r.end(ends, e.refused)
		case e.disk.rests(now):
			ends = r.end(ends, journal.ErrHangs)
		case e.readable(r):
			e.wait(r)
		case e.failed != nil:
			ends = r.end(ends, e.failed)
		default:
			e.unwritten = append(e.unwritten, r)
		}
	}
	return ends
}

func (r *Request[T]) end(ends []End[T], err error) []End[T] {
	r.phase = ended
	return append(ends, End[T]{r, err})
}

// readable reports whether the record of a request is written.
func (e *Elevator[T]) readable(r *Request[T]) bool {
	p, w := r.Place, e.written
	return p.Segment < w.Segment || p.Segment == w.Segment && p.Offset < w.Offset
}

// wait puts a request behind all others of its queue.
func (e *Elevator[T]) wait(r *Request[T]) {
	q := e.queue(r)
	q.requests = append(q.requests, r)
	r.phase = waiting
	if !r.alone() {
		if e.near == nil {
			e.near = map[block][]*Request[T]{}
		}
		e.near[r.block()] = append(e.near[r.block()], r)
	}
}

// queue is where a request waits.
func (e *Elevator[T]) queue(r *Request[T]) *queue[T] {
	if r.Lane != journal.Urgent {
		return &e.bulk[r.Lane-1]
	}
	q := e.turns[r.Turn]
	if q == nil {
		if e.turns == nil {
			e.turns = map[uint64]*queue[T]{}
		}
		q = &queue[T]{of: r.Turn}
		e.turns[r.Turn] = q
		e.ring = append(e.ring, q)
	}
	return q
}

// Written says that all before a place is written.
func (e *Elevator[T]) Written(end journal.Place) {
	e.written = end
	e.unwritten = slices.DeleteFunc(e.unwritten, func(r *Request[T]) bool {
		if e.readable(r) {
			e.wait(r)
		}
		return r.phase != unwritten
	})
}

// Awaits reports whether Written is awaited.
func (e *Elevator[T]) Awaits() bool { return len(e.unwritten) > 0 }

// Next is what is to be read now, nil if that is nothing.
func (e *Elevator[T]) Next(now time.Time, load Load) *Read[T] {
	switch e.disk.belief {
	case doubted:
		e.disk.belief = probed
		return e.begin(&Read[T]{File: e.disk.file, Probe: true}, now)
	case probed:
		return nil
	}
	e.delayed = slices.DeleteFunc(e.delayed, func(r *Request[T]) bool {
		if !now.Before(r.due) {
			e.wait(r)
		}
		return r.phase != delayed
	})
	read := e.nextUrgent(load.Commits)
	if read == nil {
		read = e.nextBulk(load.Compaction)
	}
	if read == nil {
		return nil
	}
	return e.begin(read, now)
}

func (e *Elevator[T]) nextUrgent(commits bool) *Read[T] {
	most, bytes := urgentReads, int64(0)
	if commits {
		most = urgentShared
	}
	for _, read := range e.reads {
		if read.Lane == journal.Urgent && read.state != hung && !read.Probe {
			most--
			bytes += read.To - read.From
		}
	}
	for len(e.ring) > 0 && most > 0 {
		q := e.ring[0]
		r := q.first()
		if r == nil {
			e.ring = e.ring[1:]
			delete(e.turns, q.of)
			continue
		}
		read := e.around(r)
		if bytes+read.To-read.From > urgentBytes {
			return nil
		}
		e.ring = append(e.ring[1:], q)
		return read
	}
	return nil
}

func (e *Elevator[T]) nextBulk(moves bool) *Read[T] {
	for _, read := range e.reads {
		if read.Lane != journal.Urgent && read.state != hung {
			return nil
		}
	}
	if r := e.bulk[journal.Move-1].first(); moves && r != nil {
		return e.around(r)
	}
	for range shares {
		r := e.bulk[shares[e.next]-1].first()
		if e.next = (e.next + 1) % len(shares); r != nil {
			return e.around(r)
		}
	}
	return nil
}

// around is the read that serves a request that waits, and those near it.
func (e *Elevator[T]) around(r *Request[T]) *Read[T] {
	read := &Read[T]{File: r.Place.Segment, From: r.next, To: r.To, Lane: r.Lane}
	if r.alone() {
		read.To = min(r.To, r.next+MaxRead)
		read.Requests = []*Request[T]{r}
		return read
	}
	rs := e.near[r.block()]
	slices.SortStableFunc(rs, func(a, b *Request[T]) int { return cmp.Compare(a.From, b.From) })
	first := slices.Index(rs, r)
	last := first
	joins := func(o *Request[T]) bool {
		from, to := min(read.From, o.From), max(read.To, o.To)
		if read.From-o.To > gap || o.From-read.To > gap || to-from > span(r.Lane) {
			return false
		}
		read.From, read.To = from, to
		return true
	}
	for first > 0 && joins(rs[first-1]) {
		first--
	}
	for last < len(rs)-1 && joins(rs[last+1]) {
		last++
	}
	read.Requests = slices.Clone(rs[first : last+1])
	return read
}

// begin takes what a read serves out of where it waits.
func (e *Elevator[T]) begin(read *Read[T], now time.Time) *Read[T] {
	for _, r := range read.Requests {
		r.phase = reading
	}
	if len(read.Requests) > 0 && !read.Requests[0].alone() {
		e.leave(read.Requests[0].block())
	}
	read.began = now
	e.reads = append(e.reads, read)
	return read
}

// leave takes those that do not wait any more out of a block.
func (e *Elevator[T]) leave(b block) {
	rs := slices.DeleteFunc(e.near[b], func(r *Request[T]) bool { return r.phase != waiting })
	if e.near[b] = rs; len(rs) == 0 {
		delete(e.near, b)
	}
}
