package numbers

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"sync"

	"trellis/binlog/journal"
)

// A Table has the numbers of the loops of all members, and the sessions on record that they have. H is what an absent
// session holds. The zero Table is empty. Any goroutine may call its methods. With mu held no other lock of the engine
// is taken.
type Table[H any] struct {
	mu   sync.Mutex
	next uint32            // none from here on was ever given; 0 stands for 1
	list []journal.Numbers // that were given and are not gone, by their First

	// sessions has nil for each that a loop of this engine has, by id, until all that is under way for it
	// has ended; and what each holds that none has, which is absent.
	sessions map[uint64]*H
	// present is how many sessions of each number a loop has.
	present map[uint32]int
}

// A Record puts numbers on record that were given, or are gone, up to the position that it returns.
type Record func(n *journal.Numbers) (journal.Pos, error)

// of lists the numbers of a process. With mu held.
func (g *Table[H]) of(member, nonce uint64) []uint32 {
	return g.all(func(x *journal.Numbers) bool { return x.Member == member && x.Nonce == nonce })
}

// Former lists the numbers of other processes of a member than the one with that nonce.
func (g *Table[H]) Former(member, nonce uint64) []uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all(func(x *journal.Numbers) bool { return x.Member == member && x.Nonce != nonce })
}

// all lists the numbers of the wanted ranges. With mu held.
func (g *Table[H]) all(wanted func(x *journal.Numbers) bool) (list []uint32) {
	for i := range g.list {
		if x := &g.list[i]; wanted(x) {
			for n := range x.Count {
				list = append(list, x.First+n)
			}
		}
	}
	return list
}

// find returns the range that a number is in, nil if it was not given or is gone. With mu held.
func (g *Table[H]) find(number uint32) *journal.Numbers {
	for i := range g.list {
		if g.list[i].Has(number) {
			return &g.list[i]
		}
	}
	return nil
}

// Take takes a record of numbers.
func (g *Table[H]) Take(n *journal.Numbers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keep(n)
}

// keep is Take, with mu held.
func (g *Table[H]) keep(n *journal.Numbers) {
	g.next = max(g.next, n.First+n.Count)
	g.remove(n) // also those that are given: the record may come twice
	if n.Nonce == 0 {
		return
	}
	g.list = slices.DeleteFunc(g.list, func(x journal.Numbers) bool { return x.Member == n.Member && x.Nonce != n.Nonce })
	at, _ := slices.BinarySearchFunc(g.list, n.First, func(x journal.Numbers, first uint32) int {
		return cmp.Compare(x.First, first)
	})
	g.list = slices.Insert(g.list, at, *n)
}

// remove takes a range out of the list. With mu held.
func (g *Table[H]) remove(n *journal.Numbers) {
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

// Gone reports whether a number was given and is gone.
func (g *Table[H]) Gone(number uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isGone(number)
}

// isGone is Gone, with mu held.
func (g *Table[H]) isGone(number uint32) bool {
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

// Enter notes that a session on record begins, or that an absent one goes on, and returns what that holds.
func (g *Table[H]) Enter(session uint64, again bool) (*H, error) {
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
func (g *Table[H]) come(session uint64) {
	if g.sessions == nil {
		g.sessions = make(map[uint64]*H)
	}
	if g.present == nil {
		g.present = make(map[uint32]int)
	}
	g.sessions[session] = nil
	g.present[journal.NumberOf(session)]++
}

// Leave notes that no loop has a session on record any more: it has ended, or is absent and holds that.
func (g *Table[H]) Leave(session uint64, held *H) {
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

// Restore adds sessions that are absent, when no session has begun. They are the table's from then on.
func (g *Table[H]) Restore(absent map[uint64]*H) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions = absent
}

// Absent yields the absent sessions, and what each holds. No method may be called meanwhile.
func (g *Table[H]) Absent() iter.Seq2[uint64, *H] {
	return func(yield func(uint64, *H) bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for id, held := range g.sessions {
			if held != nil && !yield(id, held) {
				return
			}
		}
	}
}

// anyPresent reports whether a loop has a session of those numbers. With mu held.
func (g *Table[H]) anyPresent(among func(number uint32) bool) bool {
	for number := range g.present {
		if among(number) {
			return true
		}
	}
	return false
}

// Dismiss takes what the absent sessions of a number hold, to be given back.
func (g *Table[H]) Dismiss(number uint32) []*H {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dismiss(func(n uint32) bool { return n == number })
}

// dismiss takes the absent sessions of those numbers, by their ids: they go to loops to give back what they
// hold. With mu held.
func (g *Table[H]) dismiss(of func(number uint32) bool) (held []*H) {
	var ids []uint64
	for id, x := range g.sessions {
		if x != nil && of(journal.NumberOf(id)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		held = append(held, g.sessions[id])
		g.come(id)
	}
	return held
}

// Give returns n numbers of a process of a member, of which it records those that are new up to pos. What absent
// sessions hold of its former process, whose numbers are gone then, is to be given back.
func (g *Table[H]) Give(member, nonce uint64, n int, record Record) (
	given []uint32, ended []*H, pos journal.Pos, err error,
) {
	if member == 0 || nonce == 0 {
		return nil, nil, 0, ErrNoNumbers
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	given = g.of(member, nonce)
	lacks := n - len(given)
	if lacks <= 0 {
		return given[:max(n, 0)], nil, 0, nil
	}
	x := journal.Numbers{First: max(g.next, 1), Count: uint32(lacks), Member: member, Nonce: nonce}
	if lacks >= 1<<journal.NumberBits || !x.Valid() {
		return nil, nil, 0, ErrNoNumbers
	}
	before := func(number uint32) bool {
		o := g.find(number)
		return o != nil && o.Member == member && o.Nonce != nonce
	}
	if g.anyPresent(before) {
		return nil, nil, 0, ErrSessionsLeft
	}
	if pos, err = record(&x); err != nil {
		return nil, nil, 0, err
	}
	ended = g.dismiss(before)
	g.keep(&x)
	return g.of(member, nonce), ended, pos, nil
}

// End records that a number is gone, up to pos. What its absent sessions hold is to be given back.
func (g *Table[H]) End(number uint32, record Record) (ended []*H, pos journal.Pos, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := journal.Numbers{First: number, Count: 1}
	switch {
	case g.find(number) == nil:
		return nil, 0, nil
	case g.anyPresent(x.Has):
		return nil, 0, ErrSessionsLeft
	}
	if pos, err = record(&x); err != nil {
		return nil, 0, err
	}
	ended = g.dismiss(x.Has)
	g.keep(&x)
	return ended, pos, nil
}

// Present reports whether a loop has a session of a number, or has still something to do for one that has ended.
func (g *Table[H]) Present(number uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.present[number] > 0
}

// Of returns the member, and the nonce of its process, to which a number was given. The nonce is 0 if it was not, or is
// gone.
func (g *Table[H]) Of(number uint32) (member, nonce uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.find(number); x != nil {
		return x.Member, x.Nonce
	}
	return 0, 0
}

// Each calls f for the numbers that were given and are not gone, and then, with an empty range, for the first that was
// never given. An error of f's ends it and is returned.
func (g *Table[H]) Each(f func(*journal.Numbers) error) error {
	g.mu.Lock()
	list, next := slices.Clone(g.list), g.next
	g.mu.Unlock()
	for i := range list {
		if err := f(&list[i]); err != nil {
			return err
		}
	}
	if next == 0 {
		return nil
	}
	return f(&journal.Numbers{First: next})
}
