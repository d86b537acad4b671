// Package bench describes loads on a server that speaks the beanstalkd protocol: Config is what a load is given,
// Result what it finds out, and the other types are addresses, body sizes, command mixes and violations in them.
// Package load puts the load on and package compare compares servers; both speak only the wire protocol. A new
// scenario is an entry in one list: see package load.
//
// # Use
//
// A caller fills in a Config, passes it to load.Run and writes the Result:
//
//	cfg := bench.Config{Scenario: "cycle", Conns: 50, Size: bench.FixedSize(100)}
//	if cfg.Addr, err = bench.ParseAddress("127.0.0.1:11300"); err != nil { ... }
//	res, err := load.Run(ctx, cfg)
//	...
//	err = errors.Join(res.WriteTable(os.Stdout), res.Err())
//
// # What the figures mean
//
// The server's CPU time is that of its process, user and system, over the recorded part of the run, divided by the
// commands that were answered in it. It is steadier than the rate, and says something also when the generator or the
// machine limits the rate. It comes from the kernel when the server runs on this machine, and otherwise from the
// server's `stats`.
//
// Memory is the growth of the server's resident memory. For connections it counts from before they are
// made until the load has ended and all are still open; for jobs that a load leaves in the server, from
// when the connections are ready.
//
// A latency runs from before the write of the command until after the read that brought the end of its reply. It
// includes what the generator adds: a reply that waits while others are handled counts, as it would in a client with as
// many connections. RunResult.GeneratorFull and MachineBusy say when rates and latencies say little about the server.
//
// # Limits
//
// Bodies have at most MaxBody bytes, histograms three significant digits. A Result is plain data: any goroutine may
// read it once load.Run has returned.
package bench
