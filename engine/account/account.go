package account

import "sync/atomic"

// An Account is a share of the server for several tubes and their clients. A tube belongs to
// the account with the longest pattern that matches its name, or to none, and its jobs and
// keys count there, whoever has put them. Make one with [NewAccount]. It outlives engines: each
// counts for itself what the account holds. Any goroutine may call its methods.
type Account struct {
	name   string
	limits atomic.Pointer[Limits]
}

// Limits bound what an account may hold. 0 means no limit. What is over a limit that
// was lowered stays, and what was restored from a journal; nothing is added.
type Limits struct {
	Jobs        int64 // jobs, and puts whose body is arriving
	Memory      int64 // bytes, as the engine counts them for its own limit
	Tubes       int64
	Keys        int64 // counted as for the engine's own limit
	Connections int64 // of clients whose grant names the account
	Rate        int64 // commands a second of these clients, at most [MaxRate]: see [Rate]
}

// New makes an account.
func New(name string, limits Limits) *Account {
	a := &Account{name: name}
	a.SetLimits(limits)
	return a
}

// Name returns the account's name.
func (a *Account) Name() string { return a.name }

// Limits returns the limits.
func (a *Account) Limits() Limits { return *a.limits.Load() }

// SetLimits replaces the limits.
func (a *Account) SetLimits(l Limits) { a.limits.Store(&l) }
