// Package groups counts the members of groups of jobs, and the jobs that wait for them, over all shards. It knows no
// job: whoever puts, buries, holds or ends one counts it here, and fires what is held when a group is complete.
package groups

import (
	"hash/maphash"
	"sync"
	"unsafe"

	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/ids"
	"trellis/engine/stats"
)

// A Condition is what a job is held for.
type Condition uint8

// The conditions, and their number.
const (
	NoMember Condition = iota // the group has no member
	NoneLeft                  // it has none that is not buried
	Conditions
)

// ConditionOf is the condition of a job that waits until its group has no member, or, if settled, none that is not
// buried.
func ConditionOf(settled bool) Condition {
	if settled {
		return NoneLeft
	}
	return NoMember
}

// A Table has all groups that have a member or hold a job. Groups span tubes, and so shards: what is common to all
// shards are counts, under locks that are taken last: a member is counted once, when it is put, and counted off once,
// when it ends. So moves, and whatever else happens to a member in between, cannot make a group look complete. The
// jobs that are held stand in their shards' [Lists]. Any goroutine may call the methods.
type Table struct {
	parts [stripes]stripe
}

const stripes = 16

// A stripe has the groups whose names hash to it.
type stripe struct {
	mu      sync.Mutex // taken last, under a shard's lock
	table   hashtable.Table[Group, byGroupName]
	blocked int      // jobs that are held for groups of which all members are buried
	_       [64]byte // keeps the next stripe's lock off this one's cache lines
}

// A Group is what all shards know of a group together. The lock of its stripe guards it, but
// for its name and hash, which do not change.
type Group struct {
	Name    string
	Hash    uint64 // of the name
	members int
	buried  int                 // of the members
	held    [Conditions]uint32  // jobs
	epochs  [Conditions]uint32  // how often it has become complete while it held jobs
	in      [Conditions]ids.Set // the shards that have a list of held jobs
	next    *Group              // in a bucket of stripe.table
}

// byGroupName finds groups by their names.
type byGroupName struct{}

// Hash leaves out the lower bits, which say what stripe it is.
func (byGroupName) Hash(g *Group) uint64  { return g.Hash / stripes }
func (byGroupName) Next(g *Group) **Group { return &g.next }

// Footprint is the memory that a group is counted for: a record, not more than two buckets,
// and the text.
func Footprint(name string) int64 {
	text := int64(len(name)+15) &^ 15 // the allocator rounds up
	return int64(unsafe.Sizeof(Group{})+2*unsafe.Sizeof((*Group)(nil))) + text
}

// seed keeps clients from choosing names that share a bucket.
var seed = maphash.MakeSeed()

// complete reports whether a job is not held for c.
func (g *Group) complete(c Condition) bool {
	if c == NoneLeft {
		return g.members == g.buried
	}
	return g.members == 0
}

// blocked is how many jobs wait for members that are all buried.
func (g *Group) blocked() int {
	if g.members > 0 && g.members == g.buried {
		return int(g.held[NoMember])
	}
	return 0
}

func (gs *Table) part(hash uint64) *stripe { return &gs.parts[hash%stripes] }

// find returns a group, nil if there is none. The stripe is locked.
func (s *stripe) find(name string, hash uint64) *Group {
	for g := s.table.First(hash / stripes); g != nil; g = g.next {
		if g.Hash == hash && g.Name == name {
			return g
		}
	}
	return nil
}

// Join counts a new member, which is not buried. It makes the group if there is none.
func (gs *Table) Join(name string) (g *Group, made bool) {
	hash := maphash.String(seed, name)
	s := gs.part(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g = s.find(name, hash); g == nil {
		g, made = &Group{Name: name, Hash: hash}, true
		s.table.Insert(g)
	}
	s.blocked -= g.blocked()
	g.members++
	return g, made
}

// Hold counts a job of that id that is about to be held for a group, unless the group is complete: then h is
// nil. A job that is on record as held is held whatever its group looks like, which is made if
// there is none. The job is fired when the epoch ends in which it was counted.
func (gs *Table) Hold(id uint64, name string, c Condition, onRecord bool) (h *Held, made bool) {
	hash := maphash.String(seed, name)
	s := gs.part(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.find(name, hash)
	switch {
	case !onRecord && (g == nil || g.complete(c)):
		return nil, false
	case g == nil:
		g, made = &Group{Name: name, Hash: hash}, true
		s.table.Insert(g)
	}
	s.blocked -= g.blocked()
	g.held[c]++
	s.blocked += g.blocked()
	return &Held{ID: id, Group: g, Condition: c, epoch: g.epochs[c]}, made
}

// Change is by how much the counts of a group change.
type Change struct {
	Members, Buried int
	Held            [Conditions]int
}

// A Firing says which shards hold jobs for a group that has become complete, for each condition.
type Firing struct {
	Group *Group
	In    [Conditions]ids.Set
}

// Count changes a group's counts. Where that makes it complete, an epoch ends if groups have an
// effect: the jobs that are held are to be fired, and those that are held from now on are not.
// The group is no more when nobody has a part in it.
func (gs *Table) Count(g *Group, by Change, fires bool) (f Firing, ended bool) {
	s := gs.part(g.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	var was [Conditions]bool
	for c := range Conditions {
		was[c] = g.complete(c)
	}
	s.blocked -= g.blocked()
	g.members += by.Members
	g.buried += by.Buried
	for c := range Conditions {
		g.held[c] += uint32(by.Held[c])
		if fires && !was[c] && g.complete(c) && g.held[c] > 0 {
			g.epochs[c]++
			f.Group, f.In[c] = g, g.in[c]
		}
	}
	s.blocked += g.blocked()
	if g.members == 0 && g.held == [Conditions]uint32{} {
		s.table.Remove(g)
		ended = true
	}
	return f, ended
}

// EndEpochs ends those of the groups that are complete and hold jobs. No shard serves yet.
func (gs *Table) EndEpochs() {
	for i := range gs.parts {
		s := &gs.parts[i]
		s.mu.Lock()
		for g := range s.table.All() {
			for c := range Conditions {
				if g.held[c] > 0 && g.complete(c) {
					g.epochs[c]++
				}
			}
		}
		s.mu.Unlock()
	}
}

// Size is how many groups there are, and how many jobs wait for members that are all buried.
func (gs *Table) Size() (n, blocked int) {
	for i := range gs.parts {
		s := &gs.parts[i]
		s.mu.Lock()
		n += s.table.Len()
		blocked += s.blocked
		s.mu.Unlock()
	}
	return n, blocked
}

// Waiting is how many jobs wait until the group has no member.
func (gs *Table) Waiting(g *Group) int {
	s := gs.part(g.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(g.held[NoMember])
}

// Look returns the counts of the group of that name, which are 0 if there is none.
func (gs *Table) Look(name string) (n stats.Group) {
	hash := maphash.String(seed, name)
	s := gs.part(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.find(name, hash); g != nil {
		n = stats.Group{Members: g.members, Buried: g.buried}
		for _, held := range g.held {
			n.Held += int(held)
		}
	}
	return n
}
