package shard

import (
	"slices"
	"sync"
)

// registry lists the tubes of all shards in the order that list-tubes shows:
// by creation, but the last takes the place of one that disappears.
//
// The list lies in pages. A snapshot shares them: a page that is older than the latest
// snapshot is copied before it changes.
type registry struct {
	mu        sync.Mutex // taken last, under a shard's lock
	pages     []*page
	count     int
	bytes     int    // of all names
	snapshots uint64 // that were ever made
}

const pageTubes = 256

// page is a part of the list. Only the last one is not full.
type page struct {
	tubes [pageTubes]*tube
	since uint64 // registry.snapshots when it was made or copied
}

// add lists a tube, unless there are limit tubes already. A limit of 0 is none.
func (g *registry) add(t *tube, limit int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if limit != 0 && g.count >= limit {
		return false
	}
	if g.count == len(g.pages)*pageTubes {
		g.pages = append(g.pages, &page{since: g.snapshots})
	}
	g.set(g.count, t)
	g.count++
	g.bytes += len(t.name)
	return true
}

func (g *registry) remove(t *tube) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	g.bytes -= len(t.name)
	last := g.pages[g.count/pageTubes].tubes[g.count%pageTubes]
	g.set(g.count, nil)
	if last != t {
		g.set(t.listed, last)
	}
	if pages := (g.count + pageTubes - 1) / pageTubes; pages < len(g.pages) {
		g.pages = slices.Delete(g.pages, pages, len(g.pages))
	}
}

// set makes a tube, or nothing, the i-th of the list.
func (g *registry) set(i int, t *tube) {
	p := g.pages[i/pageTubes]
	if p.since != g.snapshots {
		p = &page{tubes: p.tubes, since: g.snapshots}
		g.pages[i/pageTubes] = p
	}
	p.tubes[i%pageTubes] = t
	if t != nil {
		t.listed = i
	}
}

func (g *registry) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// snapshot returns the tubes as they are now, their number, and the bytes of all names.
func (g *registry) snapshot() (pages []*page, count, bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.snapshots++
	return slices.Clone(g.pages), g.count, g.bytes
}

// clear removes all tubes.
func (g *registry) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pages, g.count, g.bytes = nil, 0, 0
}

// TubeNames returns the names of the tubes as they are now, their number, and the bytes of all of them.
func (e *Shards) TubeNames() (name func(i int) string, count, bytes int) {
	pages, count, bytes := e.registry.snapshot()
	return func(i int) string { return pages[i/pageTubes].tubes[i%pageTubes].name }, count, bytes
}
