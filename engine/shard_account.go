package engine

import (
	"errors"
	"sync/atomic"
)

// An Account is a share of the server for several tubes and their clients. A tube belongs to
// the account with the longest pattern that matches its name, or to none, and its jobs and
// keys count there, whoever has put them. Make one with [NewAccount]. It outlives engines: each
// counts for itself what the account holds. Any goroutine may call its methods.
type Account struct {
	name   string
	limits atomic.Pointer[AccountLimits]
}

// AccountLimits bound what an account may hold. 0 means no limit. What is over a limit that
// was lowered stays, and what was restored from a journal; nothing is added.
type AccountLimits struct {
	Jobs        int64 // jobs, and puts whose body is arriving
	Memory      int64 // bytes, counted as for [Limits].Memory
	Tubes       int64
	Keys        int64 // counted as for [Limits].Keys
	Connections int64 // of clients whose [Grant] names the account
	Rate        int64 // commands a second of these clients, at most [MaxRate]: see [Rate]
}

// NewAccount makes an account.
func NewAccount(name string, limits AccountLimits) *Account {
	a := &Account{name: name}
	a.SetLimits(limits)
	return a
}

// Name returns the account's name.
func (a *Account) Name() string { return a.name }

// SetLimits replaces the limits.
func (a *Account) SetLimits(l AccountLimits) { a.limits.Store(&l) }

// A tally is what one engine counts of an account. Its counters are written by any goroutine;
// those that are counted at a tube as well (see holding) with the lock of the tube's shard.
type tally struct {
	account  *Account
	patterns atomic.Pointer[[]string] // of its tubes

	jobs, memory, tubes, keys, connections atomic.Int64

	refusedJobs, refusedMemory, refusedTubes, refusedKeys, refusedConnections atomic.Uint64

	rate Rate
}

var errAccountFull = errors.New("the account of the tube has as much as it may have")

// overLimit reports whether n is more than a limit allows. A limit of 0 is none.
func overLimit(n, limit int64) bool { return limit > 0 && n > limit }

// admit counts a job of so many bytes, unless that would be too much. Others may do so at the
// same time, and then all be refused, but the limits hold.
func (a *tally) admit(bytes int64) bool {
	if a == nil {
		return true
	}
	limits := a.account.limits.Load()
	if overLimit(a.jobs.Add(1), limits.Jobs) {
		a.jobs.Add(-1)
		a.refusedJobs.Add(1)
		return false
	}
	if overLimit(a.memory.Add(bytes), limits.Memory) {
		a.dismiss(bytes)
		a.refusedMemory.Add(1)
		return false
	}
	return true
}

// fits reports whether there is room for so many bytes, and counts none.
func (a *tally) fits(bytes int64) bool {
	if a != nil && overLimit(a.memory.Load()+bytes, a.account.limits.Load().Memory) {
		a.refusedMemory.Add(1)
		return false
	}
	return true
}

// admitMore counts more bytes of a job that was admitted, unless that would be too much.
func (a *tally) admitMore(bytes int64) bool {
	if a != nil && overLimit(a.memory.Add(bytes), a.account.limits.Load().Memory) {
		a.memory.Add(-bytes)
		a.refusedMemory.Add(1)
		return false
	}
	return true
}

// dismiss undoes admit.
func (a *tally) dismiss(bytes int64) { a.add(-1, -bytes) }

// add counts jobs and bytes whether they exceed the limits or not.
func (a *tally) add(jobs, bytes int64) {
	if a != nil {
		a.jobs.Add(jobs)
		a.memory.Add(bytes)
	}
}

// admitMoved is admit for a job that comes from another tube, with so many keys.
func (a *tally) admitMoved(bytes, keys int64) error {
	if a == nil {
		return nil
	}
	if keys > 0 && overLimit(a.keys.Load()+keys, a.account.limits.Load().Keys) {
		a.refusedKeys.Add(1)
		return errAccountFull
	}
	if !a.admit(bytes) {
		return errAccountFull
	}
	return nil
}

// addTube counts a tube, unless it is asked for by a client and would be too many.
func (a *tally) addTube(asked bool) bool {
	if a == nil {
		return true
	}
	if n := a.tubes.Add(1); asked && overLimit(n, a.account.limits.Load().Tubes) {
		a.tubes.Add(-1)
		a.refusedTubes.Add(1)
		return false
	}
	return true
}

func (a *tally) removeTube() {
	if a != nil {
		a.tubes.Add(-1)
	}
}

// keysFit reports whether the account has no more keys than it may have.
func (a *tally) keysFit() bool {
	if a != nil && overLimit(a.keys.Load(), a.account.limits.Load().Keys) {
		a.refusedKeys.Add(1)
		return false
	}
	return true
}

// Connect counts a client, unless that would be one too many and it is not one that goes on.
func (a *tally) Connect(goesOn bool) bool {
	if a == nil {
		return true
	}
	if goesOn {
		a.connections.Add(1)
		return true
	}
	if overLimit(a.connections.Add(1), a.account.limits.Load().Connections) {
		a.connections.Add(-1)
		a.refusedConnections.Add(1)
		return false
	}
	return true
}

// EndConnection counts a client off.
func (a *tally) EndConnection() {
	if a != nil {
		a.connections.Add(-1)
	}
}

// Rate bounds how many commands the clients of the account have executed. It is nil where there is no bound.
func (a *tally) Rate() *Rate {
	if a == nil || !a.rate.Limited() {
		return nil
	}
	return &a.rate
}

// A holding is the part of an account's tally that a tube, or the unique keys of a tube's
// name, take: it is counted here too, so that all of it can go over to another account in one
// step. It is written with the lock of the shard; account may be read without.
type holding struct {
	account atomic.Pointer[tally] // nil for none
	memory  int64                 // bytes; but not those of puts that are arriving
}

// countBytes counts bytes that are no job's, or that a job takes that is counted already.
func (h *holding) countBytes(bytes int64) {
	h.memory += bytes
	h.account.Load().add(0, bytes)
}

// countKeys counts keys.
func (h *holding) countKeys(n int64) {
	if a := h.account.Load(); a != nil {
		a.keys.Add(n)
	}
}

// countJob counts a job that comes, or goes where n is -1, with its bytes.
func (h *holding) countJob(n, bytes int64) {
	h.memory += n * bytes
	h.account.Load().add(n, n*bytes)
}

// assign gives all of it to an account, which may be nil for none.
func (h *holding) assign(to *tally, tubes, jobs, keys int64) {
	from := h.account.Load()
	if from == to {
		return
	}
	h.account.Store(to)
	from.addAll(-tubes, -jobs, -keys, -h.memory)
	to.addAll(tubes, jobs, keys, h.memory)
}

func (a *tally) addAll(tubes, jobs, keys, bytes int64) {
	if a != nil {
		a.add(jobs, bytes)
		a.tubes.Add(tubes)
		a.keys.Add(keys)
	}
}

// admitted counts a job of so many bytes that was put, and for which by has counted it when it
// was admitted. The account of the tube may be another by now.
func (t *tube) admitted(by *tally, bytes int64) {
	t.memory += bytes
	if t.account.Load() != by {
		by.dismiss(bytes)
		t.account.Load().add(1, bytes)
	}
}

// sharedKeys is the number of limited and fair keys.
func (t *tube) sharedKeys() (n int64) {
	if t.limited != nil {
		n += int64(t.limited.keys.Len())
	}
	if t.fair != nil {
		n += int64(t.fair.keys.Len())
	}
	return n
}

// enlist adds a keyspace to those of the shard.
func (sh *shard) enlist(s *keyspace) {
	s.account.Store(sh.shared.accounts.Load().of(s.name))
	if s.after = sh.spaces; s.after != nil {
		s.after.before = s
	}
	sh.spaces = s
}

// delist undoes enlist.
func (sh *shard) delist(s *keyspace) {
	if sh.recounting == s {
		sh.recounting = s.after
	}
	if s.before != nil {
		s.before.after = s.after
	} else {
		sh.spaces = s.after
	}
	if s.after != nil {
		s.after.before = s.before
	}
	s.before, s.after = nil, nil
}
