// Package settings lists the settings of all tubes, by the names of these, for whoever wants to see all: a snapshot
// costs no copy of the list, because pages that it shares are copied before they change. What a setting does is for
// shards.
package settings

import (
	"cmp"
	"slices"
	"sync"

	"trellis/binlog/journal"
)

// Max is how many settings there may be at a time.
const Max = 100_000

// A List has the settings of all tubes. Any goroutine may call its methods. A setting does not change;
// another one replaces it. The list lies in pages, as a roster does.
type List struct {
	mu        sync.Mutex // taken last, under a shard's lock
	pages     []*page    // by tube; none is empty
	count     int
	coming    int         // settings that are about to be added
	snapshots uint64      // that were ever made
	pos       journal.Pos // behind the last setting on record
}

// pageLen is how many settings a page has at most.
const pageLen = 256

// page is a part of the list.
type page struct {
	list  []*journal.Setting
	since uint64 // List.snapshots when it was made or copied
}

func (p *page) compare(tube string) int { return cmp.Compare(p.list[0].Tube, tube) }

// MakeRoom makes sure that there may be one more setting.
func (g *List) MakeRoom() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count+g.coming >= Max {
		return false
	}
	g.coming++
	return true
}

// Cancel undoes MakeRoom.
func (g *List) Cancel() {
	g.mu.Lock()
	g.coming--
	g.mu.Unlock()
}

// Keep adds a setting, replaces that of the same tube, or removes it. room says that MakeRoom has
// made room for it.
func (g *List) Keep(x *journal.Setting, room bool, pos journal.Pos) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if room {
		g.coming--
	}
	g.pos = max(g.pos, pos)
	at, first := slices.BinarySearchFunc(g.pages, x.Tube, (*page).compare)
	if !first && at > 0 {
		at--
	}
	if at == len(g.pages) {
		if x.IsDefault() {
			return
		}
		g.pages = append(g.pages, &page{since: g.snapshots})
	}
	p := g.own(at)
	i, found := slices.BinarySearchFunc(p.list, x.Tube, func(s *journal.Setting, tube string) int {
		return cmp.Compare(s.Tube, tube)
	})
	switch {
	case found && x.IsDefault():
		p.list = slices.Delete(p.list, i, i+1)
		if g.count--; len(p.list) == 0 {
			g.pages = slices.Delete(g.pages, at, at+1)
		}
	case found:
		p.list[i] = x
	case !x.IsDefault():
		g.count++
		p.list = slices.Insert(p.list, i, x)
		if n := len(p.list); n > pageLen {
			g.pages = slices.Insert(g.pages, at+1, &page{slices.Clone(p.list[n/2:]), g.snapshots})
			p.list = slices.Delete(p.list, n/2, n)
		}
	}
}

// own returns a page that no snapshot has. With mu held.
func (g *List) own(at int) *page {
	if p := g.pages[at]; p.since != g.snapshots {
		g.pages[at] = &page{slices.Clone(p.list), g.snapshots}
	}
	return g.pages[at]
}

// A Cursor is what is left of a list of settings.
type Cursor struct {
	pages []*page
	at    int // in the first of pages
}

// Next is the next setting of the list, nil at its end.
func (l *Cursor) Next() *journal.Setting {
	if len(l.pages) == 0 {
		return nil
	}
	x := l.pages[0].list[l.at]
	if l.at++; l.at == len(l.pages[0].list) {
		l.pages, l.at = l.pages[1:], 0
	}
	return x
}

// One is a list of one setting.
func One(x *journal.Setting) Cursor {
	return Cursor{pages: []*page{{list: []*journal.Setting{x}}}}
}

// Snapshot returns all settings by the names of their tubes, and the position in the
// journal that they depend on. The list does not change.
func (g *List) Snapshot() (Cursor, journal.Pos) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.snapshots++
	return Cursor{pages: slices.Clone(g.pages)}, g.pos
}

// Recorded is the position in the journal behind the last setting.
func (g *List) Recorded() journal.Pos {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pos
}

// Size is how many settings there are.
func (g *List) Size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}
