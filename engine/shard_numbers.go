package engine

import (
	"cmp"
	"slices"
	"sync"

	"trellis/binlog/journal"
)

// numbers are those of the loops of all members. With mu held no other lock of the engine is taken.
type numbers struct {
	mu       sync.Mutex
	next     uint32            // none from here on was ever given; 0 stands for 1
	list     []journal.Numbers // that were given and are not gone, by their First
	sessions map[uint32]int    // by number: how many have begun here under an id, and not ended
}

// of lists the numbers of a process. With mu held.
func (g *numbers) of(member, nonce uint64) (list []uint32) {
	for _, x := range g.list {
		if x.Member == member && x.Nonce == nonce {
			for i := range x.Count {
				list = append(list, x.First+i)
			}
		}
	}
	return list
}

// find returns the range that a number is in, nil if it was not given or is gone. With mu held.
func (g *numbers) find(number uint32) *journal.Numbers {
	for i := range g.list {
		if g.list[i].Has(number) {
			return &g.list[i]
		}
	}
	return nil
}

// take takes a record of numbers.
func (g *numbers) take(n *journal.Numbers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keep(n)
}

// keep is take, with mu held.
func (g *numbers) keep(n *journal.Numbers) {
	g.next = max(g.next, n.First+n.Count)
	g.remove(n) // also those that are given: the record may come twice
	if n.Nonce == 0 {
		return
	}
	g.list = slices.DeleteFunc(g.list, func(x journal.Numbers) bool { return x.Member == n.Member && x.Nonce != n.Nonce })
	at, _ := slices.BinarySearchFunc(g.list, n.First, func(x journal.Numbers, first uint32) int { return cmp.Compare(x.First, first) })
	g.list = slices.Insert(g.list, at, *n)
}

// remove takes a range out of the list. With mu held.
func (g *numbers) remove(n *journal.Numbers) {
	var kept []journal.Numbers
	for _, x := range g.list {
		end, gone := x.First+x.Count, n.First+n.Count
		if before := min(end, n.First); before > x.First {
			y := x
			y.Count = before - x.First
			kept = append(kept, y)
		}
		if after := max(x.First, gone); after < end {
			y := x
			y.First, y.Count = after, end-after
			kept = append(kept, y)
		}
	}
	g.list = kept
}

// gone tells whether a number was given and is gone.
func (g *numbers) gone(number uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isGone(number)
}

// isGone is gone, with mu held.
func (g *numbers) isGone(number uint32) bool {
	return number != 0 && number < g.next && g.find(number) == nil
}

// enter notes that a session begins. It returns false if the session's number is gone.
func (g *numbers) enter(session uint64) bool {
	number := journal.NumberOf(session)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isGone(number) {
		return false
	}
	if g.sessions == nil {
		g.sessions = make(map[uint32]int)
	}
	g.sessions[number]++
	return true
}

// leave notes that a session has ended, with all that was under way for it.
func (g *numbers) leave(session uint64) {
	number := journal.NumberOf(session)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[number]--; g.sessions[number] == 0 {
		delete(g.sessions, number)
	}
}
