// Package roster is a list in the order in which its entries came, but for the last, which takes the place of one that
// goes. It lies in pages, which snapshots share: a page that is older than the latest snapshot is copied before it
// changes. So a snapshot costs a list of pages, however many entries there are.
package roster

import (
	"slices"
	"sync"
)

// A Roster is such a list. The zero Roster is empty. Any goroutine may use it.
type Roster[E any, P Entry[E]] struct {
	mu        sync.Mutex // taken last
	pages     []*page[P]
	count     int
	bytes     int    // of all names
	snapshots uint64 // that were ever made
}

// Entry is what a Roster asks of its entries.
type Entry[E any] interface {
	*E
	// Name does not change.
	Name() string
	// Place is where the Roster notes the entry's place. Its lock guards that.
	Place() *int
}

// PageLen is how many entries a page has.
const PageLen = 256

// page is a part of the list. Only the last one is not full.
type page[P any] struct {
	entries [PageLen]P
	since   uint64 // Roster.snapshots when it was made or copied
}

// Add lists an entry, unless there are limit entries already. A limit of 0 is none.
func (r *Roster[E, P]) Add(x P, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if limit != 0 && r.count >= limit {
		return false
	}
	if r.count == len(r.pages)*PageLen {
		r.pages = append(r.pages, &page[P]{since: r.snapshots})
	}
	r.set(r.count, x)
	r.count++
	r.bytes += len(x.Name())
	return true
}

// Remove takes an entry off the list.
func (r *Roster[E, P]) Remove(x P) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count--
	r.bytes -= len(x.Name())
	last := r.pages[r.count/PageLen].entries[r.count%PageLen]
	r.set(r.count, nil)
	if last != x {
		r.set(*x.Place(), last)
	}
	if pages := (r.count + PageLen - 1) / PageLen; pages < len(r.pages) {
		r.pages = slices.Delete(r.pages, pages, len(r.pages))
	}
}

// set makes an entry, or nothing, the i-th of the list.
func (r *Roster[E, P]) set(i int, x P) {
	p := r.pages[i/PageLen]
	if p.since != r.snapshots {
		p = &page[P]{entries: p.entries, since: r.snapshots}
		r.pages[i/PageLen] = p
	}
	p.entries[i%PageLen] = x
	if x != nil {
		*x.Place() = i
	}
}

// Len is the number of entries.
func (r *Roster[E, P]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Snapshot returns the entries as they are now, by their places, their number, and the bytes of all names.
func (r *Roster[E, P]) Snapshot() (at func(i int) P, count, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshots++
	pages := slices.Clone(r.pages)
	return func(i int) P { return pages[i/PageLen].entries[i%PageLen] }, r.count, r.bytes
}

// Clear removes all entries.
func (r *Roster[E, P]) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages, r.count, r.bytes = nil, 0, 0
}
