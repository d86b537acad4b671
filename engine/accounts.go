package engine

import (
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Accounts are the accounts of a server: which there are, and which tubes are whose. They
// outlive engines, which know them by [Config].Accounts. The zero Accounts are none. Any
// goroutine may call the methods.
type Accounts struct {
	mu      sync.Mutex // held while accounts change
	list    []AccountTubes
	engines []*shared // those that are not discarded
}

// AccountTubes says which tubes are an account's: names, and beginnings of names with a *
// behind them.
type AccountTubes struct {
	Account *Account
	Tubes   []string
}

// Set replaces all accounts. No two have the same pattern. Tubes that go over to another
// account take along what is counted for them; while Set goes over them, some are counted
// there already, and others are not. It holds a shard's lock for as long as it takes to look
// at some hundred tubes, whatever they hold.
func (a *Accounts) Set(list []AccountTubes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.Clone(list)
	for _, e := range a.engines {
		e.setAccounts(a.list)
	}
}

// add has an engine know the accounts.
func (a *Accounts) add(e *shared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engines = append(a.engines, e)
	e.setAccounts(a.list)
}

// remove undoes add.
func (a *Accounts) remove(e *shared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engines = slices.DeleteFunc(a.engines, func(o *shared) bool { return o == e })
}

// setAccounts puts accounts in force. One caller at a time.
func (e *shared) setAccounts(list []AccountTubes) {
	old := e.accounts.Load()
	if old == nil && len(list) == 0 {
		return
	}
	var all []*tally
	for _, x := range list {
		t := old.tallyOf(x.Account)
		if t == nil {
			t = &tally{account: x.Account}
			t.rate.account = x.Account
		}
		t.patterns.Store(&x.Tubes)
		all = append(all, t)
	}
	e.accounts.Store(newAccountDirectory(all))
	for _, sh := range e.shards {
		for rc := (recount{shard: sh}); rc.slice(); {
			runtime.Gosched() // who waits for the lock gets it
		}
	}
}

// accountDirectory tells whose a tube is. It does not change.
type accountDirectory struct {
	all      []*tally
	names    map[string]*tally
	prefixes map[string]*tally
	lengths  []int // of prefixes, each once, the longest first
}

// newAccountDirectory makes a directory of accounts, which have different patterns.
func newAccountDirectory(all []*tally) *accountDirectory {
	d := &accountDirectory{all: all, names: make(map[string]*tally), prefixes: make(map[string]*tally)}
	for _, a := range all {
		for _, p := range *a.patterns.Load() {
			prefix, ok := strings.CutSuffix(p, "*")
			if !ok {
				d.names[p] = a
				continue
			}
			d.prefixes[prefix] = a
			d.lengths = append(d.lengths, len(prefix))
		}
	}
	slices.Sort(d.lengths)
	slices.Reverse(d.lengths)
	d.lengths = slices.Compact(d.lengths)
	return d
}

// of returns the account of the tube of that name, nil if it is nobody's.
func (d *accountDirectory) of(tube string) *tally {
	if d == nil {
		return nil
	}
	if a := d.names[tube]; a != nil {
		return a
	}
	for _, n := range d.lengths {
		if n <= len(tube) {
			if a := d.prefixes[tube[:n]]; a != nil {
				return a
			}
		}
	}
	return nil
}

// recountSlice is how many tubes, or unique keys' names, are looked at under one lock when
// accounts change.
const recountSlice = 256

// A recount gives what a shard holds to the accounts of a new directory, a slice under each
// lock. What comes into being meanwhile goes by that directory from the start.
type recount struct {
	shard  *shard
	tubes  int // those below it are done
	spaces bool
}

// slice does some of it. It returns false at the end.
func (rc *recount) slice() (more bool) {
	sh := rc.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d := sh.shared.accounts.Load()
	if end := min(rc.tubes+recountSlice, len(sh.tubes)); rc.tubes < end {
		for _, t := range sh.tubes[rc.tubes:end] {
			if t != nil {
				t.assign(d.of(t.name), 1, int64(t.jobs()), t.sharedKeys())
			}
		}
		rc.tubes = end
		return true
	}
	if !rc.spaces {
		rc.spaces, sh.recounting = true, sh.spaces
	}
	for range recountSlice {
		s := sh.recounting
		if s == nil {
			return false
		}
		s.assign(d.of(s.name), 0, 0, int64(s.holders))
		sh.recounting = s.after
	}
	return true
}

// tallyOf returns what is counted of an account, nil if the directory does not have it.
func (d *accountDirectory) tallyOf(a *Account) *tally {
	if d != nil {
		for _, t := range d.all {
			if t.account == a {
				return t
			}
		}
	}
	return nil
}

// named returns what is counted of the account of that name, nil if there is none.
func (d *accountDirectory) named(name string) *tally {
	if d != nil && name != "" {
		for _, t := range d.all {
			if t.account.name == name {
				return t
			}
		}
	}
	return nil
}

// accountNamed returns what is counted of the account of that name, nil if there is none.
func (e *shared) accountNamed(name string) *tally { return e.accounts.Load().named(name) }

// AccountSnapshot is what an account holds, and what it may hold.
type AccountSnapshot struct {
	Name   string
	Tubes  []string // patterns
	Limits AccountLimits
	Holds  AccountLimits // but for Rate, which is 0

	// What was refused because of each limit, and how often a client had to wait because of
	// the rate, since the engine knows the account.
	RefusedJobs, RefusedMemory, RefusedTubes, RefusedKeys, RefusedConnections, Waits uint64
}

// An AccountAmount is one of the amounts that an account may have a limit of.
type AccountAmount struct {
	What         string
	Holds, Limit int64
	Refused      uint64
}

// Amounts are all of them, each at the same place of every snapshot.
func (a *AccountSnapshot) Amounts() [5]AccountAmount {
	return [...]AccountAmount{
		{"jobs", a.Holds.Jobs, a.Limits.Jobs, a.RefusedJobs},
		{"memory", a.Holds.Memory, a.Limits.Memory, a.RefusedMemory},
		{"tubes", a.Holds.Tubes, a.Limits.Tubes, a.RefusedTubes},
		{"keys", a.Holds.Keys, a.Limits.Keys, a.RefusedKeys},
		{"connections", a.Holds.Connections, a.Limits.Connections, a.RefusedConnections},
	}
}

// Accounts returns a snapshot of each account, in the order of [Accounts.Set]. Any goroutine may
// call it; it takes no lock.
func (e *shared) Accounts() (list []AccountSnapshot) {
	d := e.accounts.Load()
	if d == nil {
		return nil
	}
	for _, t := range d.all {
		list = append(list, AccountSnapshot{
			Name: t.account.name, Tubes: *t.patterns.Load(), Limits: *t.account.limits.Load(),
			Holds: AccountLimits{
				Jobs: t.jobs.Load(), Memory: t.memory.Load(), Tubes: t.tubes.Load(), Keys: t.keys.Load(),
				Connections: t.connections.Load(),
			},
			RefusedJobs: t.refusedJobs.Load(), RefusedMemory: t.refusedMemory.Load(), RefusedTubes: t.refusedTubes.Load(),
			RefusedKeys: t.refusedKeys.Load(), RefusedConnections: t.refusedConnections.Load(), Waits: t.rate.waits.Load(),
		})
	}
	return list
}
