// The files sim_* are a cluster in one process with its own time: the members' raft, logs, snapshots, connections,
// engines and sessions are those of the program; the network, the disks and the clocks between and below them are
// simulated. One seed decides all that happens. Its clients, and who judges what they have seen, are those of package
// faults, whose tests of processes they share.
//
// # How it works
//
// A history runs in a bubble of testing/synctest: its time moves on only when all its goroutines wait, so that
// minutes of a cluster take a fraction of a second. Nothing in the bubble may wait for the world outside, nor for a
// mutex whose holder waits for time: the bubble would stand still for ever.
//
//	world     instants, dice and the trace
//	network   hosts and connections: delays, cuts in one direction or both, slow links, breaks within a frame
//	disk      what package faultfs does, and when: syncs that take time, stalls, errors, full disks, lies
//	machine   a disk, a clock, and a process that runs a member on them, or is killed
//	queue     a member's jobs: an engine, and while the member leads, a loop with sessions of clients
//	faults    what happens to all of these
//	history   a cluster, clients (package faults), faults, and what must be true during and after them
//
// # Why equal seeds have equal traces
//
// With one processor, goroutines run in the order in which they become ready, unless the runtime interferes, or
// chance does. So:
//
//   - No two events of the world happen at the same instant (world.after): the runtime fires timers of the same
//     instant in an order of its own. What the program waits for begins at such an instant, and so does its end.
//   - Each connection, disk and client has its own dice, which only the seed and its name decide.
//   - crypto/rand, of which raft makes its election timeouts, is seeded.
//   - The collector runs between histories. A goroutine that has run for 10 ms would be preempted; events of the
//     world yield, which begins a new slice of time.
//   - Engines have one shard: tubes are placed in several by a hash that differs from process to process.
//
// # Limits
//
// A process that is stopped cannot be simulated in full: its ticks, its disk, its clients and what it sends and
// receives stand still, timers of its own do not. Sessions are those of clients of the leader: nobody is forwarded.
package faults_test
