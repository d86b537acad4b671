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
//	sockets   reactors accept, read, write and poll connections by descriptors
//	disk      what package faultfs does, and when: syncs that take time, stalls, errors, full disks, lies
//	machine   a disk, a clock, and a process that runs a member on them, or is killed
//	faults    what happens to all of these
//	bounds    what members may keep, and what may be left of them
//	history   a cluster, clients (package faults), faults, and what must be true during and after them
//
// A reactor's loop polls a reactor.Poller, and its sockets are connections of the network: see reactor.Simulate. What
// it has written is given to the network before it sleeps; it is woken when the network brings something. So no system
// call is made during a history but some that the runtime is not told of, as for the name of a socket's peer.
//
// Each fifth history is calm: all that happens is that leaders are killed, that they hand over, and that gateways are
// without them for a second. Then a client of a member that lives and does not lead keeps its connection, and has an
// answer to each command.
//
// Of the others, every second one is brisk: faults come five times as fast, and most of them end a leadership, of which
// there are so many then that the next one is found with what the last two have left half done. The rest is slow: what
// takes seconds, as a disk that hangs, a snapshot, or a member that is away for long, happens there. In two of nine, members
// that start have most bodies on disk only, or all in memory again.
//
// # Why equal seeds have equal traces
//
// With one processor, goroutines run in the order in which they become ready, unless the runtime interferes, or
// chance does. So:
//
//   - The runtime's monitor sleeps (lull). It would interrupt a goroutine that seems to have run for 10 ms, as each
//     does when the machine has given the processor to somebody else, and take the processor from one in a system call.
//   - What the runtime draws by lot begins with the seed (draw): which of several ready cases of a select is taken,
//     which timer of an instant fires first, and where the walk of a map begins. All but the last begins anew with each
//     event (redraw). A map that has more than eight elements is walked in an order that differs from process to
//     process even so, so whose order matters is sorted.
//   - No two events of the world happen at the same instant (world.after): the runtime fires timers of the same
//     instant in a random order. What the program waits for begins at such an instant, and so does its end.
//   - Each connection, disk and client has its own dice, which only the seed and its name decide.
//   - crypto/rand, of which raft makes its election timeouts, is seeded.
//   - The collector runs between histories. What it has freed goes back to the system before the next one begins where
//     the runtime would do that bit by bit: the timer for which it waits then wakes the monitor. Engines take their
//     memory from the collected heap.
//   - Engines have one shard: tubes are placed in several by a hash that differs from process to process.
//
// # Limits
//
// A process that is stopped cannot be simulated in full: its ticks, its disk, and what it sends and receives stand
// still, timers of its own do not.
package faults_test
