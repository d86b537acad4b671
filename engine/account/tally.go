package account

import (
	"errors"
	"sync/atomic"
)

// A Tally is what one engine counts of an account. Its counters are written by any goroutine;
// those that are counted at a tube as well (see [Holding]) with the lock of the tube's shard. A nil Tally is that of
// nobody: everything fits, and nothing is counted.
type Tally struct {
	account  *Account
	patterns atomic.Pointer[[]string] // of its tubes

	jobs, memory, tubes, keys, connections atomic.Int64

	refusedJobs, refusedMemory, refusedTubes, refusedKeys, refusedConnections atomic.Uint64

	rate Rate
}

// Name is the account's name.
func (a *Tally) Name() string { return a.account.name }

// ErrFull: the account of the tube has as much as it may have.
var ErrFull = errors.New("the account of the tube has as much as it may have")

// overLimit reports whether n is more than a limit allows. A limit of 0 is none.
func overLimit(n, limit int64) bool { return limit > 0 && n > limit }

// Admit counts a job of so many bytes, unless that would be too much. Others may do so at the
// same time, and then all be refused, but the limits hold.
func (a *Tally) Admit(bytes int64) bool {
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
		a.Dismiss(bytes)
		a.refusedMemory.Add(1)
		return false
	}
	return true
}

// Fits reports whether there is room for so many bytes, and counts none.
func (a *Tally) Fits(bytes int64) bool {
	if a != nil && overLimit(a.memory.Load()+bytes, a.account.limits.Load().Memory) {
		a.refusedMemory.Add(1)
		return false
	}
	return true
}

// AdmitMore counts more bytes of a job that was admitted, unless that would be too much.
func (a *Tally) AdmitMore(bytes int64) bool {
	if a != nil && overLimit(a.memory.Add(bytes), a.account.limits.Load().Memory) {
		a.memory.Add(-bytes)
		a.refusedMemory.Add(1)
		return false
	}
	return true
}

// Dismiss undoes Admit.
func (a *Tally) Dismiss(bytes int64) { a.Add(-1, -bytes) }

// Add counts jobs and bytes whether they exceed the limits or not.
func (a *Tally) Add(jobs, bytes int64) {
	if a != nil {
		a.jobs.Add(jobs)
		a.memory.Add(bytes)
	}
}

// AdmitMoved is Admit for a job that comes from another tube, with so many keys. The error is [ErrFull].
func (a *Tally) AdmitMoved(bytes, keys int64) error {
	if a == nil {
		return nil
	}
	if keys > 0 && overLimit(a.keys.Load()+keys, a.account.limits.Load().Keys) {
		a.refusedKeys.Add(1)
		return ErrFull
	}
	if !a.Admit(bytes) {
		return ErrFull
	}
	return nil
}

// AddTube counts a tube, unless it is asked for by a client and would be too many.
func (a *Tally) AddTube(asked bool) bool {
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

// RemoveTube counts a tube off.
func (a *Tally) RemoveTube() {
	if a != nil {
		a.tubes.Add(-1)
	}
}

// KeysFit reports whether the account has no more keys than it may have.
func (a *Tally) KeysFit() bool {
	if a != nil && overLimit(a.keys.Load(), a.account.limits.Load().Keys) {
		a.refusedKeys.Add(1)
		return false
	}
	return true
}

// Connect counts a client, unless that would be one too many and it is not one that goes on.
func (a *Tally) Connect(goesOn bool) bool {
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
func (a *Tally) EndConnection() {
	if a != nil {
		a.connections.Add(-1)
	}
}

// Rate bounds how many commands the clients of the account have executed. It is nil where there is no bound.
func (a *Tally) Rate() *Rate {
	if a == nil || !a.rate.Limited() {
		return nil
	}
	return &a.rate
}

func (a *Tally) addAll(tubes, jobs, keys, bytes int64) {
	if a != nil {
		a.Add(jobs, bytes)
		a.tubes.Add(tubes)
		a.keys.Add(keys)
	}
}
