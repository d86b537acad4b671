package engine

import (
	"hash/maphash"
	"sync"
	"unsafe"

	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/reply"
)

// A job that was put with the tag grp is a member of a group from its put until its end, in
// whatever tube and state it is. A job that is put with the tag aft while the group is not
// complete is held until it is.
//
// Groups span tubes, and so shards. What is common to all shards are counts, under locks that are
// taken last: a member is counted once, when it is put, and counted off once, when it ends. So
// moves, and whatever else happens to a member in between, cannot make a group look complete. The
// jobs that are held stand in their shards: see shard_held.go.

// A condition is what a job is held for.
type condition uint8

const (
	noMember condition = iota // the group has no member
	noneLeft                  // it has none that is not buried
	conditions
)

func conditionOf(settled bool) condition {
	if settled {
		return noneLeft
	}
	return noMember
}

// groups are all groups that have a member or hold a job.
type groups struct {
	stripes [groupStripes]groupStripe
}

const groupStripes = 16

// A groupStripe has the groups whose names hash to it.
type groupStripe struct {
	mu      sync.Mutex // taken last, under a shard's lock
	table   hashtable.Table[jobGroup, byGroupName]
	blocked int      // jobs that are held for groups of which all members are buried
	_       [64]byte // keeps the next stripe's lock off this one's cache lines
}

// A jobGroup is what all shards know of a group together. The lock of its stripe guards it, but
// for its name and hash, which do not change.
type jobGroup struct {
	name    string
	hash    uint64
	members int
	buried  int                  // of the members
	held    [conditions]uint32   // jobs
	epochs  [conditions]uint32   // how often it has become complete while it held jobs
	in      [conditions]shardSet // the shards that have a list of held jobs
	next    *jobGroup            // in a bucket of groupStripe.table
}

// byGroupName finds groups by their names.
type byGroupName struct{}

// Hash leaves out the lower bits, which say what stripe it is.
func (byGroupName) Hash(g *jobGroup) uint64     { return g.hash / groupStripes }
func (byGroupName) Next(g *jobGroup) **jobGroup { return &g.next }

// groupFootprint is the memory that a group is counted for: a record, not more than two buckets,
// and the text.
func groupFootprint(name string) int64 {
	return int64(unsafe.Sizeof(jobGroup{})+2*unsafe.Sizeof((*jobGroup)(nil))) + textFootprint(name)
}

// groupSeed keeps clients from choosing names that share a bucket.
var groupSeed = maphash.MakeSeed()

// complete reports whether a job is not held for c.
func (g *jobGroup) complete(c condition) bool {
	if c == noneLeft {
		return g.members == g.buried
	}
	return g.members == 0
}

// blocked is how many jobs wait for members that are all buried.
func (g *jobGroup) blocked() int {
	if g.members > 0 && g.members == g.buried {
		return int(g.held[noMember])
	}
	return 0
}

func (gs *groups) stripe(hash uint64) *groupStripe { return &gs.stripes[hash%groupStripes] }

// find returns a group, nil if there is none. The stripe is locked.
func (s *groupStripe) find(name string, hash uint64) *jobGroup {
	for g := s.table.First(hash / groupStripes); g != nil; g = g.next {
		if g.hash == hash && g.name == name {
			return g
		}
	}
	return nil
}

// join counts a new member, which is not buried. It makes the group if there is none.
func (gs *groups) join(name string) (g *jobGroup, made bool) {
	hash := maphash.String(groupSeed, name)
	s := gs.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g = s.find(name, hash); g == nil {
		g, made = &jobGroup{name: name, hash: hash}, true
		s.table.Insert(g)
	}
	s.blocked -= g.blocked()
	g.members++
	return g, made
}

// hold counts a job that is about to be held for a group, unless the group is complete: then g is
// nil. A job that is on record as held is held whatever its group looks like, which is made if
// there is none. The job is fired when the epoch ends in which it was counted.
func (gs *groups) hold(name string, c condition, onRecord bool) (g *jobGroup, epoch uint32, made bool) {
	hash := maphash.String(groupSeed, name)
	s := gs.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	g = s.find(name, hash)
	switch {
	case !onRecord && (g == nil || g.complete(c)):
		return nil, 0, false
	case g == nil:
		g, made = &jobGroup{name: name, hash: hash}, true
		s.table.Insert(g)
	}
	s.blocked -= g.blocked()
	g.held[c]++
	s.blocked += g.blocked()
	return g, g.epochs[c], made
}

// groupChange is by how much the counts of a group change.
type groupChange struct {
	members, buried int
	held            [conditions]int
}

// A firing says which shards hold jobs for a group that has become complete, for each condition.
type firing struct {
	group *jobGroup
	in    [conditions]shardSet
}

// count changes a group's counts. Where that makes it complete, an epoch ends if groups have an
// effect: the jobs that are held are to be fired, and those that are held from now on are not.
// The group is no more when nobody has a part in it.
func (gs *groups) count(g *jobGroup, by groupChange, fires bool) (f firing, ended bool) {
	s := gs.stripe(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	var was [conditions]bool
	for c := range conditions {
		was[c] = g.complete(c)
	}
	s.blocked -= g.blocked()
	g.members += by.members
	g.buried += by.buried
	for c := range conditions {
		g.held[c] += uint32(by.held[c])
		if fires && !was[c] && g.complete(c) && g.held[c] > 0 {
			g.epochs[c]++
			f.group, f.in[c] = g, g.in[c]
		}
	}
	s.blocked += g.blocked()
	if g.members == 0 && g.held == [conditions]uint32{} {
		s.table.Remove(g)
		ended = true
	}
	return f, ended
}

// enlist notes that a shard holds jobs for a group, and returns the epoch.
func (gs *groups) enlist(g *jobGroup, c condition, in shardSet) (epoch uint32) {
	s := gs.stripe(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.in[c] |= in
	return g.epochs[c]
}

// epoch returns the group's present epoch.
func (gs *groups) epoch(g *jobGroup, c condition) uint32 {
	s := gs.stripe(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.epochs[c]
}

// delist notes that a shard holds none any more.
func (gs *groups) delist(g *jobGroup, c condition, in shardSet) {
	s := gs.stripe(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.in[c] &^= in
}

// endEpochs ends those of the groups that are complete and hold jobs. No shard serves yet.
func (gs *groups) endEpochs() {
	for i := range gs.stripes {
		s := &gs.stripes[i]
		s.mu.Lock()
		for g := range s.table.All() {
			for c := range conditions {
				if g.held[c] > 0 && g.complete(c) {
					g.epochs[c]++
				}
			}
		}
		s.mu.Unlock()
	}
}

// size is how many groups there are, and how many jobs wait for members that are all buried.
func (gs *groups) size() (n, blocked int) {
	for i := range gs.stripes {
		s := &gs.stripes[i]
		s.mu.Lock()
		n += s.table.Len()
		blocked += s.blocked
		s.mu.Unlock()
	}
	return n, blocked
}

// waiting is how many jobs wait until the group has no member.
func (gs *groups) waiting(g *jobGroup) int {
	s := gs.stripe(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(g.held[noMember])
}

// A groupCount is what is told of a group.
type groupCount struct{ Members, Buried, Held int }

// groupNamed returns the counts of the group of that name, which are 0 if there is none.
func (e *shared) groupNamed(name string, out *reply.Output) groupCount {
	n := e.groups.look(name)
	e.notFound(out) // members and held jobs have come and gone in any shard
	return n
}

// look returns the counts of the group of that name, which are 0 if there is none.
func (gs *groups) look(name string) (n groupCount) {
	hash := maphash.String(groupSeed, name)
	s := gs.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.find(name, hash); g != nil {
		n = groupCount{g.members, g.buried, 0}
		for _, held := range g.held {
			n.Held += int(held)
		}
	}
	return n
}
