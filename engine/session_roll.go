package engine

import (
	"slices"
	"sort"
	"sync"
)

// roll lists the open sessions of all loops by their ids. The lock is taken when a session is
// opened or closed, and by lists.
//
// The list lies in pages, which are never empty. A full page in whose midst a session is opened
// becomes two. When two neighbours have become half a page together they become one,
// so that a list of many that have come and gone takes no more than four times its size.
type roll struct {
	mu     sync.Mutex
	pages  []*rollPage
	spare  *rollPage // an empty one, to be the next page
	lastID uint64    // that was given here
}

const rollPageLen = 128

// rollPage is a part of the list.
type rollPage struct {
	n        int
	sessions [rollPageLen]*Session // the first n are there
}

// add puts a session on the list. One that has no id gets the next of 1, 2, 3, ... It returns false
// if there is another one of its id.
func (r *roll) add(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.id == 0 {
		r.lastID++
		s.id = r.lastID
	}
	i, at := r.search(s.id)
	switch {
	case i < len(r.pages) && r.pages[i].sessions[at].id == s.id:
		return false
	case at == 0 && i > 0 && r.pages[i-1].n < rollPageLen:
		i, at = i-1, r.pages[i-1].n
	case i == len(r.pages) || at == 0 && r.pages[i].n == rollPageLen:
		r.insertPage(i)
	case r.pages[i].n == rollPageLen:
		if r.split(i); at > rollPageLen/2 {
			i, at = i+1, at-rollPageLen/2
		}
	}
	p := r.pages[i]
	copy(p.sessions[at+1:p.n+1], p.sessions[at:p.n])
	p.sessions[at] = s
	p.n++
	return true
}

// insertPage puts an empty page on the list, as number i.
func (r *roll) insertPage(i int) {
	if r.spare == nil {
		r.spare = new(rollPage)
	}
	r.pages, r.spare = slices.Insert(r.pages, i, r.spare), nil
}

// split puts half of page i, which is full, into a new one behind it.
func (r *roll) split(i int) {
	r.insertPage(i + 1)
	p, q := r.pages[i], r.pages[i+1]
	p.n, q.n = rollPageLen/2, copy(q.sessions[:], p.sessions[rollPageLen/2:])
	clear(p.sessions[p.n:])
}

// remove takes a session off the list.
func (r *roll) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, at := r.search(s.id)
	p := r.pages[i]
	copy(p.sessions[at:p.n], p.sessions[at+1:p.n])
	p.n--
	p.sessions[p.n] = nil
	switch {
	case p.n == 0:
		r.pages, r.spare = slices.Delete(r.pages, i, i+1), p
	case i+1 < len(r.pages) && p.n+r.pages[i+1].n <= rollPageLen/2:
		r.join(i)
	case i > 0 && p.n+r.pages[i-1].n <= rollPageLen/2:
		r.join(i - 1)
	}
}

// clear removes all sessions.
func (r *roll) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages, r.spare = nil, nil
}

// join puts the sessions of page i+1 into page i.
func (r *roll) join(i int) {
	p, q := r.pages[i], r.pages[i+1]
	p.n += copy(p.sessions[p.n:], q.sessions[:q.n])
	r.pages = slices.Delete(r.pages, i+1, i+2)
}

// search is where the first session is whose id is not less than id. It is behind the last
// page if there is none.
func (r *roll) search(id uint64) (page, at int) {
	page = sort.Search(len(r.pages), func(i int) bool {
		p := r.pages[i]
		return p.sessions[p.n-1].id >= id
	})
	if page < len(r.pages) {
		p := r.pages[page]
		at = sort.Search(p.n, func(i int) bool { return p.sessions[i].id >= id })
	}
	return page, at
}

// appendFrom appends up to n sessions to list: those with the least ids from id on.
func (r *roll) appendFrom(list []*Session, id uint64, n int) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	page, at := r.search(id)
	for ; n > 0 && page < len(r.pages); page, at = page+1, 0 {
		p := r.pages[page]
		some := p.sessions[at:min(p.n, at+n)]
		list = append(list, some...)
		n -= len(some)
	}
	return list
}

// find returns the session with an id, nil if there is none.
func (r *roll) find(id uint64) *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	page, at := r.search(id)
	if page == len(r.pages) || r.pages[page].sessions[at].id != id {
		return nil
	}
	return r.pages[page].sessions[at]
}
