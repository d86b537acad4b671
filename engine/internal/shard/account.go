package shard

import (
	"runtime"

	"trellis/engine/account"
)

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
	s.Begin(sh.shared.accounts.Of(s.name))
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

// Accounts are the accounts of these shards, with what counts for them.
func (e *Shards) Accounts() *account.Book { return &e.accounts }

// recount gives what the shards hold to accounts that have changed. One caller at a time.
func (e *Shards) recount() {
	for _, sh := range e.shards {
		for rc := (recount{shard: sh}); rc.slice(); {
			runtime.Gosched() // who waits for the lock gets it
		}
	}
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
	book := &sh.shared.accounts
	if end := min(rc.tubes+recountSlice, len(sh.tubes)); rc.tubes < end {
		for _, t := range sh.tubes[rc.tubes:end] {
			if t != nil {
				t.Assign(book.Of(t.name), 1, int64(t.jobs()), t.sharedKeys())
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
		s.Assign(book.Of(s.name), 0, 0, int64(s.holders))
		sh.recounting = s.after
	}
	return true
}
