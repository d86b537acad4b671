package engine

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"trellis/binlog/journal"
)

// numbers are those of the loops of all members, and the sessions on record that they have. With mu
// held no other lock of the engine is taken.
type numbers struct {
	mu   sync.Mutex
	next uint32            // none from here on was ever given; 0 stands for 1
	list []journal.Numbers // that were given and are not gone, by their First

	// sessions has nil for each that a loop of this engine has, by id, until all that is under way for it
	// has ended; and what each holds that none has, which is absent.
	sessions map[uint64]*reservationSet
	// present is how many sessions of each number a loop has.
	present map[uint32]int
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

var (
	// ErrSessionID: another session has that id, or it has not ended yet.
	ErrSessionID = errors.New("there is a session of that id")
	// ErrNumberGone: the number of the session's loop is gone, and so are all its sessions.
	ErrNumberGone = errors.New("the number of the loop is gone")
	// ErrSessionsLeft: numbers would be gone while there are sessions of them.
	ErrSessionsLeft = errors.New("sessions of the member's process before have not ended")
	// ErrNoNumbers: there are no more numbers to be given, or not to such a process.
	ErrNoNumbers = errors.New("there are no numbers for the loops")
)

// enter notes that a session begins, or that an absent one goes on, which returns what that holds.
func (g *numbers) enter(session uint64, again bool) (*reservationSet, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isGone(journal.NumberOf(session)) {
		return nil, ErrNumberGone
	}
	held, known := g.sessions[session]
	if known && (held == nil || !again) {
		return nil, ErrSessionID
	}
	g.come(session)
	return held, nil
}

// come notes that a loop has a session. With mu held.
func (g *numbers) come(session uint64) {
	if g.sessions == nil {
		g.sessions = make(map[uint64]*reservationSet)
	}
	if g.present == nil {
		g.present = make(map[uint32]int)
	}
	g.sessions[session] = nil
	g.present[journal.NumberOf(session)]++
}

// leave notes that no loop has a session any more: it has ended, or is absent and holds that.
func (g *numbers) leave(session uint64, held *reservationSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if held != nil {
		g.sessions[session] = held
	} else {
		delete(g.sessions, session)
	}
	number := journal.NumberOf(session)
	if g.present[number]--; g.present[number] == 0 {
		delete(g.present, number)
	}
}

// anyPresent tells whether a loop has a session of those numbers. With mu held.
func (g *numbers) anyPresent(among func(number uint32) bool) bool {
	for number := range g.present {
		if among(number) {
			return true
		}
	}
	return false
}

// dismiss takes the absent sessions of those numbers, by their ids: they go to loops to give back what they
// hold. With mu held.
func (g *numbers) dismiss(of func(number uint32) bool) (held []*reservationSet) {
	for id, set := range g.sessions {
		if set != nil && of(journal.NumberOf(id)) {
			held = append(held, set)
			g.come(id)
		}
	}
	slices.SortFunc(held, func(a, b *reservationSet) int { return cmp.Compare(a.holder.id, b.holder.id) })
	return held
}
