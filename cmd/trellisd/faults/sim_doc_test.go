// The files sim_* are a cluster in one process with its own time. The members are those of the program: raft, logs,
// snapshots, connections between members, engines, sessions, and a reactor whose loop accepts, forwards and serves
// clients. Simulated are the network, the disks and the clocks between and below them. One seed decides all that
// happens. Its clients, and who judges what they have seen, are those of package faults, whose tests of processes they
// share.
//
// # How it works
//
// A history runs in a bubble of testing/synctest: its time moves on only when all its goroutines wait, so that
// minutes of a cluster take a fraction of a second. Nothing in the bubble may wait for the world outside, nor for a
// mutex whose holder waits for time: the bubble would stand still for ever.
//
//	world     instants, dice and the trace
//	network   hosts and connections: delays, cuts in one direction or both, slow links, breaks within a frame
//	sockets   connections go on over sockets of the system, which a reactor reads and writes
//	disk      what package faultfs does, and when: syncs that take time, stalls, errors, full disks, lies
//	machine   a disk, a clock, and a process that runs a member on them, or is killed
//	faults    what happens to all of these
//	bounds    what members may keep, and what may be left of them
//	history   a cluster, clients (package faults), faults, and what must be true during and after them
//
// A reactor's loop sleeps in a reactor.Sleeper, not in the system's poller. Before it sleeps, what it has written to
// its sockets is given to the network; it is woken when the network brings something for them. Each system call
// returns at once, so nobody waits for the system.
//
// Each fifth history is calm: all that happens is that leaders are killed, that they hand over, and that gateways are
// without them for a second. Then a client of a member that lives and does not lead keeps its connection, and has an
// answer to each command.
//
// # Why equal seeds have equal traces
//
// With one processor, goroutines run in the order in which they become ready, unless the runtime interferes, or
// chance does. So:
//
//   - No two events of the world happen at the same instant (world.after): the runtime fires timers of the same
//     instant in a random order. What the program waits for begins at such an instant, and so does its end.
//   - Each connection, disk and client has its own dice, which only the seed and its name decide.
//   - crypto/rand, of which raft makes its election timeouts, is seeded.
//   - The collector runs between histories. A goroutine that has run for 10 ms would be preempted; events of the
//     world yield, which begins a new slice of time. A system call that takes long lets others run meanwhile.
//   - Engines have one shard: tubes are placed in several by a hash that differs from process to process.
//
// # Limits
//
// A process that is stopped cannot be simulated in full: its ticks, its disk, and what it sends and receives stand
// still, timers of its own do not. Sockets of the system that are reset look as if they were closed.
package faults_test
