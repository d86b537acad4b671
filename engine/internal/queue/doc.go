// Package queue holds the orders in which a shard keeps its jobs and timers,
// without knowing what a job is.
//
// A record that queues order lies in an [arena.Pool] and begins with [Links].
// A [Table] finds it by its [Ref]. A record stands in at most one queue at a
// time, and while it does, the fields of its Links belong to that queue.
//
//   - [Heap] orders by a key, then by id: O(log n).
//   - [Ready] orders ready jobs by priority, then by id: O(1) for jobs that come
//     in the order of their ids with few priorities, O(log n) for all others.
//   - [ByPriority] is the same order without the counts: the jobs of a group.
//   - [Ordered] orders by Links.At, then by id: O(1) for records that come in
//     that order, O(log n) for all others.
//   - [Wheel] fires timers: O(1).
//   - [Ages] tells how long the oldest of many jobs has been ready.
//
// To use a queue, declare it: the zero value of each type is empty. Pass the
// same Table, or one of the same pool, to every call.
//
//	type job struct {
//		queue.Links // must come first
//		...
//	}
//	jobs := arena.NewSlab[job]()
//	table := queue.TableOf(&jobs.Pool)
//	var delayed queue.Heap
//	delayed.Push(table, uint64(due), r, &jobs.At(r).Links)
//	first := delayed.First().Ref
//
// # Invariants
//
// Nothing here locks: whoever owns a queue guards it, its records and their
// pool with one lock or one goroutine. The id and the key of a record do not
// change while it stands in a queue, and no two records in a queue have the same
// id. When a record moves within its pool, its queue is told with Moved.
//
// # Limits
//
// A Heap has at most 2^32-1 entries, as many as a pool has names. No call takes
// time in proportion to what a queue holds: a Heap grows and shrinks by blocks,
// and what a Wheel does in one call is bounded by its caller's budget. Check
// methods and All are exceptions; the former are for tests.
package queue
