package load

import (
	"sync"

	"trellis/bench"
)

const (
	bookStripes = 64
	pageSize    = 256 // ids
)

type jobState uint8

const (
	jobInserted  jobState = 1 << iota // the put was acknowledged
	jobReserved                       // a connection of ours has it reserved
	jobHandedOut                      // it was reserved at least once
	jobDeleted
)

// An entry is what is known of one id.
type entry struct {
	at    int64 // when the put was sent; until that is known, when the job was first reserved
	seq   uint64
	tag   uint32 // what the driver wants to know of the job later
	state jobState
}

// A page holds the entries of pageSize successive ids.
type page struct {
	done    int // entries that are inserted and deleted
	entries [pageSize]entry
}

// closedPage stands for a page whose jobs are all deleted.
var closedPage = new(page)

// A stripe holds every bookStripes-th page.
type stripe struct {
	mu          sync.Mutex // taken only when several workers share the book
	pages       map[uint64]*page
	closedPages map[uint64]uint64 // a bit for each page of the stripe whose jobs are all deleted, 64 to an entry
	lastNo      uint64
	last        *page
	free        []*page
}

// A book records every job of a run by the id that the server gave it: put once, handed out to one at a time, deleted
// once. When all jobs of a page are deleted, the page is used again and one bit of it is kept, so that the book's
// memory depends on the jobs in the server and hardly on the length of the run. A page in which some ids belong to
// another client's jobs is kept (8 KB), because a put that is not answered yet may have one of these ids.
type book struct {
	*violations
	bodies  *bodies
	shared  bool
	stripes [bookStripes]stripe
}

func newBook(v *violations, b *bodies, shared bool) *book {
	k := &book{violations: v, bodies: b, shared: shared}
	for i := range k.stripes {
		k.stripes[i].pages, k.stripes[i].closedPages = make(map[uint64]*page), make(map[uint64]uint64)
	}
	return k
}

func (k *book) lock(id uint64) *stripe {
	s := &k.stripes[id/pageSize%bookStripes]
	if k.shared {
		s.mu.Lock()
	}
	return s
}

func (k *book) unlock(s *stripe) {
	if k.shared {
		s.mu.Unlock()
	}
}

func (s *stripe) page(id uint64) *page {
	no := id / pageSize
	if s.last != nil && s.lastNo == no {
		return s.last
	}
	p := s.pages[no]
	if p == nil {
		if entry, bit := closedBit(no); s.closedPages[entry]&bit != 0 {
			return closedPage
		}
		if n := len(s.free); n > 0 {
			p, s.free = s.free[n-1], s.free[:n-1]
			*p = page{}
		} else {
			p = new(page)
		}
		s.pages[no] = p
	}
	s.last, s.lastNo = p, no
	return p
}

// finish counts an entry of p as done.
func (s *stripe) finish(id uint64, p *page) {
	if p.done++; p.done == pageSize {
		no := id / pageSize
		entry, bit := closedBit(no)
		s.closedPages[entry] |= bit
		delete(s.pages, no)
		s.last = nil
		s.free = append(s.free, p)
	}
}

// closedBit returns where a stripe notes that a page is closed.
func closedBit(no uint64) (entry, bit uint64) {
	nth := no / bookStripes
	return nth / 64, 1 << (nth % 64)
}

// inserted records the acknowledgement of a put that was sent, or due, at the given time. When another connection has
// reserved the job already, it returns the time from the put to that, and otherwise a negative number.
func (k *book) inserted(id, seq uint64, tag uint32, sent int64) int64 {
	s := k.lock(id)
	defer k.unlock(s)
	p := s.page(id)
	e := &p.entries[id%pageSize]
	if p == closedPage || e.state&jobInserted != 0 {
		k.add(bench.ViolationDuplicate, "id %d was given to two jobs", id)
		return -1
	}
	took := int64(-1)
	if e.state&jobHandedOut != 0 {
		took = e.at - sent
		if e.seq != noSeq && e.seq != seq {
			k.add(bench.ViolationCorrupt, "job %d came with the body of another job", id)
		}
	}
	e.at, e.seq, e.tag = sent, seq, tag
	e.state |= jobInserted
	if e.state&jobDeleted != 0 {
		s.finish(id, p)
	}
	return took
}

// reserved records that a connection of the run got the job. It returns the job's tag, 0 until its put is acknowledged,
// and the time from put to now. That is negative unless the job is reserved for the first time and its put is
// acknowledged.
func (k *book) reserved(id uint64, body []byte, now int64) (tag uint32, took int64) {
	seq, intact := k.bodies.check(body)
	s := k.lock(id)
	defer k.unlock(s)
	p := s.page(id)
	e := &p.entries[id%pageSize]
	took = -1
	switch {
	case p == closedPage || e.state&jobDeleted != 0:
		k.add(bench.ViolationDuplicate, "job %d was handed out after it was deleted", id)
		return 0, -1
	case e.state&jobReserved != 0:
		k.add(bench.ViolationDuplicate, "job %d was handed out while it was reserved", id)
	case !intact:
		k.add(bench.ViolationCorrupt, "the body of job %d (%d bytes) is not the one that was put", id, len(body))
	case e.state&jobInserted != 0:
		if seq != noSeq && seq != e.seq {
			k.add(bench.ViolationCorrupt, "job %d came with the body of another job", id)
		} else if seq == noSeq && len(body) != k.bodies.size(e.seq) {
			k.add(bench.ViolationCorrupt, "the body of job %d has %d bytes, put with %d", id, len(body), k.bodies.size(e.seq))
		}
		if e.state&jobHandedOut == 0 {
			took = now - e.at
		}
	case e.state&jobHandedOut == 0:
		e.at, e.seq = now, seq
	}
	e.state |= jobReserved | jobHandedOut
	return e.tag, took
}

// release records that a release or a bury of the job is about to be sent. From then on another may get it.
func (k *book) release(id uint64) {
	s := k.lock(id)
	defer k.unlock(s)
	if p := s.page(id); p != closedPage {
		p.entries[id%pageSize].state &^= jobReserved
	}
}

// releaseAll records that all connections of the run are closed, which gives back what they held.
// The workers must have ended.
func (k *book) releaseAll() {
	for i := range k.stripes {
		for _, p := range k.stripes[i].pages {
			for j := range p.entries {
				p.entries[j].state &^= jobReserved
			}
		}
	}
}

func (k *book) deleted(id uint64) {
	s := k.lock(id)
	defer k.unlock(s)
	p := s.page(id)
	e := &p.entries[id%pageSize]
	if p == closedPage || e.state&jobDeleted != 0 {
		k.add(bench.ViolationDuplicate, "job %d was deleted twice", id)
		return
	}
	e.state = e.state&^jobReserved | jobDeleted
	if e.state&jobInserted != 0 {
		s.finish(id, p)
	}
}

// close ends the book: what has not been deleted by now is lost, and what was handed out without having been put is a
// duplicate. The workers must have ended. keep allows jobs to remain.
func (k *book) close(keep bool) {
	for i := range k.stripes {
		for no, p := range k.stripes[i].pages {
			for j := range p.entries {
				e := &p.entries[j]
				id := no*pageSize + uint64(j)
				switch {
				case e.state&(jobHandedOut|jobDeleted) != 0 && e.state&jobInserted == 0:
					k.add(bench.ViolationDuplicate, "job %d was handed out, but no put was given that id", id)
				case e.state != 0 && e.state&jobDeleted == 0 && !keep:
					k.add(bench.ViolationLost, "job %d was put and never came back", id)
				}
			}
		}
	}
}

// ids calls f with the id of every job that was put and not deleted, in no order.
func (k *book) ids(f func(id uint64)) {
	for i := range k.stripes {
		for no, p := range k.stripes[i].pages {
			for j := range p.entries {
				if p.entries[j].state&(jobInserted|jobDeleted) == jobInserted {
					f(no*pageSize + uint64(j))
				}
			}
		}
	}
}
