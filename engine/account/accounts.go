package account

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Accounts are the accounts of a server: which there are, and which tubes are whose. They
// outlive engines, each of which counts in its [Book] what they hold. The zero Accounts are none. Any
// goroutine may call the methods.
type Accounts struct {
	mu    sync.Mutex // held while accounts change
	list  []Tubes
	books []*Book // those that are open
}

// Tubes says which tubes are an account's: names, and beginnings of names with a *
// behind them.
type Tubes struct {
	Account *Account
	Tubes   []string
}

// Set replaces all accounts. No two have the same pattern. Tubes that go over to another
// account take along what is counted for them; while Set goes over them, some are counted
// there already, and others are not. It holds a shard's lock for as long as it takes to look
// at some hundred tubes, whatever they hold.
func (a *Accounts) Set(list []Tubes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.Clone(list)
	for _, b := range a.books {
		b.set(a.list)
	}
}

// Open begins a book of what an engine's tubes hold. recount assigns each tube, and the keys of each tube's name, to
// the account that the book has for them by then: the book calls it after the accounts have changed, one call at a
// time. The accounts may be nil for none.
func (b *Book) Open(a *Accounts, recount func()) {
	if a == nil {
		return
	}
	b.accounts, b.recount = a, recount
	a.mu.Lock()
	defer a.mu.Unlock()
	a.books = append(a.books, b)
	b.set(a.list)
}

// Close ends the book: changes of the accounts do not reach it any more.
func (b *Book) Close() {
	a := b.accounts
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.books = slices.DeleteFunc(a.books, func(o *Book) bool { return o == b })
}

// A Book is what one engine counts of all accounts. The zero Book knows none. Any goroutine may call its methods, but
// Open and Close, of which one call each is made.
type Book struct {
	accounts  *Accounts // of which it is one book; nil for none
	recount   func()
	directory atomic.Pointer[directory] // nil while there are no accounts
}

// set puts accounts in force. With the accounts' mu held.
func (b *Book) set(list []Tubes) {
	old := b.directory.Load()
	if old == nil && len(list) == 0 {
		return
	}
	var all []*Tally
	for _, x := range list {
		t := old.tallyOf(x.Account)
		if t == nil {
			t = &Tally{account: x.Account}
			t.rate.account = x.Account
		}
		t.patterns.Store(&x.Tubes)
		all = append(all, t)
	}
	b.directory.Store(newDirectory(all))
	b.recount()
}

// Of returns what is counted of the account whose the tube of that name is, nil if it is nobody's.
func (b *Book) Of(tube string) *Tally { return b.directory.Load().of(tube) }

// Named returns what is counted of the account of that name, nil if there is none.
func (b *Book) Named(name string) *Tally { return b.directory.Load().named(name) }

// Snapshots returns a snapshot of each account, in the order of [Accounts.Set]. It takes no lock.
func (b *Book) Snapshots() (list []Snapshot) {
	d := b.directory.Load()
	if d == nil {
		return nil
	}
	for _, t := range d.all {
		list = append(list, Snapshot{
			Name: t.account.name, Tubes: *t.patterns.Load(), Limits: *t.account.limits.Load(),
			Holds: Limits{
				Jobs: t.jobs.Load(), Memory: t.memory.Load(), Tubes: t.tubes.Load(), Keys: t.keys.Load(),
				Connections: t.connections.Load(),
			},
			RefusedJobs: t.refusedJobs.Load(), RefusedMemory: t.refusedMemory.Load(), RefusedTubes: t.refusedTubes.Load(),
			RefusedKeys: t.refusedKeys.Load(), RefusedConnections: t.refusedConnections.Load(), Waits: t.rate.waits.Load(),
		})
	}
	return list
}
