package groups

import (
	"iter"
	"unsafe"

	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/pagedheap"
)

// A Held is a job that is held for a group. The lock of the job's shard guards it. It goes along when the job moves, so
// that a move counts nothing.
type Held struct {
	ID        uint64 // of the job
	Group     *Group
	Condition Condition
	epoch     uint32 // of the group, in which it was held
	list      *List  // nil while the job moves
	index     int    // in list.jobs
}

// HeldFootprint is the memory that a held job is counted for in addition.
const HeldFootprint = int64(unsafe.Sizeof(Held{}) + 2*unsafe.Sizeof((*Held)(nil)))

// Lists are the jobs that one shard holds. The shard's lock guards them.
type Lists struct {
	table hashtable.Table[List, byGroup]
}

// A List is the jobs that a shard holds for one group and one condition. It is never empty.
type List struct {
	Group     *Group
	Condition Condition
	firing    bool                        // whoever has begun to fire its jobs has not ended
	fired     uint32                      // what was held before this epoch is to be fired
	jobs      pagedheap.Heap[held, *held] // by epoch, and then by id
	next      *List                       // in a bucket of Lists.table
}

// ListFootprint is the memory that a list is counted for, beside its jobs.
const ListFootprint = int64(unsafe.Sizeof(List{}) + 2*unsafe.Sizeof((*List)(nil)))

// byGroup finds lists.
type byGroup struct{}

func (byGroup) Hash(l *List) uint64 { return l.Group.Hash + uint64(l.Condition) }
func (byGroup) Next(l *List) **List { return &l.next }

// before reports whether epoch e ended before epoch f. There may have been 2^32 of them.
func before(e, f uint32) bool { return int32(e-f) < 0 }

// held is a job in a list.
type held struct{ *Held }

// Before implements pagedheap.Entry.
func (h *held) Before(o *held) bool {
	return before(h.epoch, o.epoch) || h.epoch == o.epoch && h.ID < o.ID
}

// Stand implements pagedheap.Entry.
func (h *held) Stand(i int) { h.index = i }

// Find returns the jobs that the shard holds for a group, nil if it holds none.
func (ls *Lists) Find(g *Group, c Condition) *List {
	for l := ls.table.First(g.Hash + uint64(c)); l != nil; l = l.next {
		if l.Group == g && l.Condition == c {
			return l
		}
	}
	return nil
}

// All yields the lists, which do not change meanwhile, in no order.
func (ls *Lists) All() iter.Seq[*List] { return ls.table.All() }

// First is the id of the first job that is to be fired, and due reports whether there is one.
func (l *List) First() (id uint64, due bool) {
	if l.jobs.Len() == 0 {
		return 0, false
	}
	h := l.jobs.At(0)
	return h.ID, before(h.epoch, l.fired)
}

// Fire says that the jobs are to be fired that have been held since before the present epoch, and reports whether there
// are some.
func (gs *Table) Fire(l *List) (due bool) {
	l.fired = gs.epoch(l.Group, l.Condition)
	_, due = l.First()
	return due
}

// Begin says that whoever calls it begins to fire jobs of the list. It returns false if somebody has, and has not
// ended.
func (l *List) Begin() bool {
	was := l.firing
	l.firing = true
	return !was
}

// End says that all jobs were fired that were to be.
func (l *List) End() { l.firing = false }

// Enlist adds a held job to the lists of its shard, the only one of its set. made: the list is new. If the epoch of the
// job has ended before the shard was known to hold it, the firing says that the job is to be fired.
func (gs *Table) Enlist(ls *Lists, h *Held, shard ids.Set) (made bool, f Firing) {
	s := gs.part(h.Group.Hash)
	s.mu.Lock()
	h.Group.in[h.Condition] |= shard
	epoch := h.Group.epochs[h.Condition]
	s.mu.Unlock()
	l := ls.Find(h.Group, h.Condition)
	if made = l == nil; made {
		l = &List{Group: h.Group, Condition: h.Condition, fired: h.epoch}
		ls.table.Insert(l)
	}
	h.list = l
	l.jobs.Push(held{h})
	if before(h.epoch, epoch) {
		f.Group, f.In[h.Condition] = h.Group, shard
	}
	return made, f
}

// Delist undoes Enlist. gone: the list had no other job.
func (gs *Table) Delist(ls *Lists, h *Held, shard ids.Set) (gone bool) {
	l := h.list
	l.jobs.Remove(h.index)
	h.list = nil
	if l.jobs.Len() > 0 {
		return false
	}
	ls.table.Remove(l)
	s := gs.part(h.Group.Hash)
	s.mu.Lock()
	h.Group.in[h.Condition] &^= shard
	s.mu.Unlock()
	return true
}

// epoch is the present one of a group.
func (gs *Table) epoch(g *Group, c Condition) uint32 {
	s := gs.part(g.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.epochs[c]
}
