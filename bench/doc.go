// Package bench puts load on servers that speak the beanstalkd protocol, checks what they do, and measures them.
//
// # What is measured
//
// A scenario consists of units, such as "put a job, reserve one, delete it". In a closed loop every connection begins a
// unit when one of its units has ended, so that the server sets the pace. In an open loop units are due at fixed times,
// and the latency of a unit counts from when it was due, not from when there was a connection free to send it: a stall
// of the server shows in every unit that it kept waiting. Recorded is what began or was due in the time of the run after
// its warm-up, also when it ends later, so that a stall at the end shows, too; rates are of what ended in that time. Units
// that were due are begun up to ten seconds late. Those that still could not begin count with the time that they had
// waited, and the result says how many they are.
//
// The server's CPU time is that of its process, user and system, over the recorded part of the run, divided by the
// commands that were answered in it. It is steadier than the rate, and is meaningful also when the generator or the
// machine limits the rate. It comes from the kernel when the server runs on this machine, and from its own `stats`
// otherwise. Memory is the growth of the resident memory: for connections, from before they are made until the load has
// ended and all are still open, and waiting where the scenario has them wait; for jobs that a load leaves in the server,
// from when the connections are ready.
//
// A latency runs from the moment before the write to the moment after the read that brought the whole reply. It
// includes what the generator adds: a reply that waits while others are handled counts, as it would in a client that
// does as much. Results say when the generator's core was full, and when other processes or a hypervisor had much of the
// processors of either side; such rates and latencies say little about the server.
//
// # Books
//
// Every job is followed by the id that the server gave it. It must come to one connection at a time, with the body that
// was put under that id, must not come again after it was deleted, and must be there in the end. Bodies carry the number
// of their job and are derived from it and the seed, so that every byte can be checked without being kept. (A body of
// fewer than 8 bytes cannot carry the number; those are all alike.) Jobs live in tubes of the run's own, and what remains
// in them is taken out, and compared, after the run. Whatever is not right is a Violation, and makes Result.Err an
// error.
//
// # How it works
//
// Each thread drives its share of the connections with one poller (epoll or kqueue), one buffer for reading and one for
// writing; a connection costs a few hundred bytes and no goroutine. All replies that a read brings are handled before
// anything is written, and what follows from them leaves in one write. Nothing is allocated per command. One core reaches
// several million commands a second with 32 in flight on each connection.
//
// # Limits
//
// Latencies above ten minutes count as ten minutes. Connections need file descriptors: the limit of open files is raised
// as far as it may be. From IPv4 loopback, connections leave from several source addresses when one has too few ports.
// The processors of threads, exact CPU times and the signs of a busy machine are known on Linux only.
package bench
