package elevator

import (
	"slices"
	"time"

	"trellis/binlog/journal"
)

// How long what is waited for.
const (
	patience = 10 * time.Second // for the system, and for a record that is not written
	rest     = time.Second      // before a disk is asked again that gives nothing
)

// pauses are waited before what has failed is tried again.
var pauses = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond}

const (
	mostErrors = 3 // reads in a row that fail before the disk is doubted
	mostHung   = 8 // reads that hang before nothing is read
)

// disk is what is believed of it.
type disk struct {
	belief belief
	errors int       // reads in a row that the system has failed
	file   uint32    // of the last of them
	hung   int       // reads that hang
	until  time.Time // it rests
}

// belief is what is believed of a disk: trusted -> doubted (errors in a row) -> probed -> trusted.
type belief uint8

const (
	trusted belief = iota
	doubted        // a probe is to be read
	probed         // it is being read
)

// rests reports whether nothing is read.
func (d *disk) rests(now time.Time) bool { return now.Before(d.until) || d.hung >= mostHung }

// Returned says that the system has answered a read. It reports whether that still counts: then Ended
// has to follow.
func (e *Elevator[T]) Returned(read *Read[T]) bool {
	if read.state == hung {
		e.disk.hung--
		e.forget(read)
		return false
	}
	read.state = returned
	return true
}

func (e *Elevator[T]) forget(read *Read[T]) {
	e.reads = slices.DeleteFunc(e.reads, func(r *Read[T]) bool { return r == read })
}

// Ended says what a read has found, of each of its requests, or of a probe once. It returns the
// requests that have ended, which need not be those of the read.
func (e *Elevator[T]) Ended(read *Read[T], found []Outcome, now time.Time) (ends []End[T]) {
	e.forget(read)
	wrong := slices.Contains(found, Failed) || slices.Contains(found, Unopened)
	if read.Probe {
		e.disk.belief, e.disk.errors = trusted, 0
		if wrong {
			return e.giveUp(ends, now)
		}
		for _, r := range e.suspects {
			ends = r.end(ends, journal.ErrUnreadable)
		}
		e.suspects = nil
		return ends
	}
	if !wrong {
		e.disk.errors = 0
	} else if e.disk.errors++; e.disk.errors >= mostErrors && e.disk.belief == trusted {
		e.disk.belief, e.disk.file = doubted, read.File
	}
	for i, r := range read.Requests {
		ends = e.found(r, read, found[i], ends, now)
	}
	return ends
}

// found is what becomes of one request of a read.
func (e *Elevator[T]) found(r *Request[T], read *Read[T], o Outcome, ends []End[T], now time.Time) []End[T] {
	switch {
	case o == Gone:
		return r.end(ends, journal.ErrMoved)
	case o == Sound && read.To >= r.To:
		return r.end(ends, nil)
	case e.refused != nil:
		return r.end(ends, e.refused)
	case e.disk.rests(now):
		return r.end(ends, journal.ErrHangs)
	case o == Sound:
		r.next, r.phase = read.To, waiting
		q := e.queue(r)
		q.requests = slices.Insert(q.requests, 0, r)
		return ends
	}
	r.next = r.From
	if r.tries++; r.tries <= len(pauses) {
		r.phase, r.due = delayed, now.Add(pauses[r.tries-1])
		e.delayed = append(e.delayed, r)
		return ends
	}
	switch {
	case o == Unopened: // which says nothing of what is in the file
		return r.end(ends, journal.ErrHangs)
	case o == Failed && e.disk.belief != trusted:
		r.phase = suspect
		e.suspects = append(e.suspects, r)
		return ends
	}
	return r.end(ends, journal.ErrUnreadable)
}

// giveUp ends all that is not being read, and lets the disk rest.
func (e *Elevator[T]) giveUp(ends []End[T], now time.Time) []End[T] {
	e.disk.until = now.Add(rest)
	e.disk.errors = 0
	return e.endAll(ends, journal.ErrHangs)
}

// endAll ends all that is not being read.
func (e *Elevator[T]) endAll(ends []End[T], err error) []End[T] {
	all := [][]*Request[T]{e.unwritten, e.delayed, e.suspects}
	for i := range e.bulk {
		all = append(all, e.bulk[i].requests)
		e.bulk[i].requests = nil
	}
	for _, q := range e.ring {
		all = append(all, q.requests)
	}
	for _, rs := range all {
		for _, r := range rs {
			if r.phase != ended && r.phase != reading {
				ends = r.end(ends, err)
			}
		}
	}
	e.ring, e.turns, e.near = nil, nil, nil
	e.unwritten, e.delayed, e.suspects = nil, nil, nil
	return ends
}

// Tick does what time alone does. It returns the requests that have ended.
func (e *Elevator[T]) Tick(now time.Time) (ends []End[T]) {
	for _, read := range e.reads {
		if read.state != due || now.Sub(read.began) < patience {
			continue
		}
		read.state = hung
		e.disk.hung++
		if read.Probe {
			e.disk.belief = trusted
		}
		for _, r := range read.Requests {
			ends = r.end(ends, journal.ErrHangs)
		}
		ends = e.giveUp(ends, now)
	}
	for len(e.unwritten) > 0 && !now.Before(e.unwritten[0].due) {
		ends = e.unwritten[0].end(ends, journal.ErrHangs)
		e.unwritten = e.unwritten[1:]
	}
	return ends
}

// Wake is when Tick or Next has something to do, the zero time if that depends on other calls only.
func (e *Elevator[T]) Wake() (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, read := range e.reads {
		if read.state == due {
			sooner(read.began.Add(patience))
		}
	}
	if len(e.unwritten) > 0 {
		sooner(e.unwritten[0].due)
	}
	for _, r := range e.delayed {
		if e.disk.belief != probed { // whose end is waited for
			sooner(r.due)
		}
	}
	return at
}

// Fail says that nothing more will be written. It returns the requests that waited for that.
func (e *Elevator[T]) Fail(err error) (ends []End[T]) {
	e.failed = err
	for _, r := range e.unwritten {
		ends = r.end(ends, err)
	}
	e.unwritten = nil
	return ends
}

// Close refuses all further requests, and ends those that are not being read.
func (e *Elevator[T]) Close(err error) []End[T] {
	e.refused = err
	return e.endAll(nil, err)
}

// Busy reports whether a read is under way that may still count.
func (e *Elevator[T]) Busy() bool {
	return slices.ContainsFunc(e.reads, func(r *Read[T]) bool { return r.state != hung })
}
