// Package load puts load on a server that speaks the beanstalkd protocol, checks every reply, and measures.
//
// # Use
//
//	addr, err := bench.ParseAddress("127.0.0.1:11300")
//	...
//	res, err := load.Run(ctx, bench.Config{Addr: addr, Scenario: "cycle", Conns: 50})
//	if err == nil {
//		err = res.Err() // whether the server kept its promises
//	}
//
// Scenarios lists the scenarios. Run fills in what the configuration leaves zero, and raises this process's limit of
// open files and GOMAXPROCS when the load needs it.
//
// # Scenarios
//
// A scenario consists of units, such as "put a job, reserve one, delete it". In a closed loop a connection
// begins a unit when one of its units has ended, so that the server sets the pace. In an open loop units are due
// at fixed times, and the latency of a unit counts from when it was due, so that a stall of the server shows in
// every unit that it delayed. Units begin up to ten seconds late; those that still could not begin count with
// the time that they have waited.
//
// A new scenario is an entry in the list scenarios, a driver if none there sends what it needs, and the driver's
// test. The entry says which settings the scenario uses; the help of the command line, the checks of
// configurations, the row in the standard comparison, and the tests that run every scenario on a server with and
// without faults follow from it.
//
// # Invariants
//
//   - The book knows every job by the id that the server gave it. A job must come to one connection at a time,
//     with the body that was put under that id, must not come after it was deleted, and must be there in the
//     end. After the load, the jobs that remain in the tubes of the run are taken out and compared. Anything
//     else is a bench.Violation.
//   - A body carries the number of its job and follows from that number and the seed, so that every byte is checked and
//     none is kept. (Bodies of fewer than 8 bytes cannot carry the number. They are all alike.)
//   - Each thread drives its share of the connections with one poller (epoll or kqueue), one buffer for
//     reading and one for writing. It handles all replies of a read before it writes, and then writes once. A
//     command allocates nothing.
//   - What begins or is due after the warm-up and before the end is recorded, also when it ends later. Rates count what
//     ended in that time.
//
// # Limits
//
// Latencies above ten minutes count as ten minutes. From IPv4 loopback, connections leave from several source addresses
// when one has too few ports. CPU times, memory, the processors of threads and the signs of a busy machine are known on
// Linux only; elsewhere the server's CPU time is what its `stats` says.
package load
