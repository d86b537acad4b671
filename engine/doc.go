// Package engine is the queue: tubes, jobs, reservations, waiting workers,
// time-outs and statistics, as the beanstalkd protocol defines them. It is a
// state machine without I/O, clock or goroutines. Time comes in as an argument;
// what it wants from outside goes out through [Config] and [Bell]. So one set of
// scripts can drive it under a clock of its own, drive the whole server over a
// socket, and drive a real beanstalkd.
//
// # Structure
//
// Tubes live in shards. A shard has one lock, and under it everything that
// belongs to its tubes: their jobs, reservations and timers. A command on one
// tube takes one lock. A reserve over tubes in several shards takes their
// locks in the order of their numbers, so that it sees all of them in one
// moment and picks exactly the job that the protocol says.
//
// A client is a [Session], which belongs to one [Loop]: only that loop's
// goroutine calls its methods. A session that waits stands in the queue of each
// tube that it watches. Whoever makes a job ready there claims the session by one
// atomic step, reserves the job for it, and puts it into its loop's mailbox.
// The loop writes the reply. Time-outs and closes take the same step, so a
// session never gets two jobs, and no job goes to one that has left.
//
// Job records lie in slabs outside the collected heap, refer to each other by
// 32-bit index and hold no pointers. Bodies lie in size classes.
// Every queue is a list or a heap; every deadline is in a timing wheel.
//
// # Invariants
//
//   - Ids are 1, 2, 3, ... over the whole server, and none is used twice.
//   - A job stays in its tube, and so in its shard, for ever.
//   - Sessions are served first come, first served, in each tube.
//   - No deadline is met early. A command sees everything that was due before
//     it in the shards that it touches, however late the timers are; unless
//     thousands of jobs are due at once, for these become ready in turns.
//   - A tube that no session uses or watches and that has no job does not exist.
//   - Everything costs O(1) or O(log n) in the one queue that it touches, except
//     that reserve, and waiting, cost O(watched tubes), and listing costs what it lists.
//
// # Limits
//
// 16 shards; 268 million jobs in a shard; bodies of up to 2^32-1 bytes. A delay,
// time to run or pause of 2^32-1 seconds does not overflow.
package engine
