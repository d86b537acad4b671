// Package ids hands out the ids of jobs, 1, 2, 3, ... over the whole server, and finds the
// [Place] of a job by its id.
//
// An [Index] is read without a lock. It is a radix tree, of which a part goes away when the
// last of its ids was retired, so that ids that are never seen again cost nothing. Each
// loop takes ids by a [Block].
package ids
