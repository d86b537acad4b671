package queue

import "trellis/engine/internal/arena"

// Ref names a record within its pool. Zero names none.
type Ref = arena.Ref

// Links is what a queue keeps in a record. It must be the record's first field.
// The lock that guards the queue guards it.
type Links struct {
	ID uint64 // of the job; set before the record enters a queue
	// At is a time in nanoseconds or another number, not negative, which the owner
	// sets before the record enters a queue: in Ready the time at which the record
	// became ready, in Ordered the key. A Heap does not look at it.
	At int64
	// Prev and Next are the neighbours in a linked run. In a heap, Prev is the
	// index of the record's entry, and Next is free for the owner of a Heap.
	Prev, Next uint32
}

// inHeap in Links.Next says that a record of a Ready or an Ordered stands in its
// heap. No pool hands out this name.
const inHeap = ^Ref(0)

// InHeap reports whether the record of a Ready or an Ordered, in which it stands, is in the heap of that.
func (l *Links) InHeap() bool { return l.Next == inHeap }

// A Table finds records by their names.
type Table struct{ pool *arena.Pool }

// TableOf returns the table of a pool whose blocks begin with Links. Making one
// costs nothing.
func TableOf(pool *arena.Pool) Table { return Table{pool} }

func (t Table) at(r Ref) *Links { return (*Links)(t.pool.Pointer(r)) }
