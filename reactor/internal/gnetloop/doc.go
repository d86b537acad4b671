// Package gnetloop runs gnet's event loops in the way that the reactor needs. It is the only
// importer of gnet.
//
// # What gnet does, and what it does not
//
// A loop has one goroutine. gnet keeps the loop's connections, reads from them, and closes
// them. This package does what gnet has no means for, or does at a higher price:
//
//   - It gives bare descriptors to a loop ([Loop.Adopt]). gnet's own way wants a net.Conn,
//     copies the descriptor, and passes through a pool of goroutines and two channels: for a
//     connection that is used for four commands, that costs more than the commands.
//   - It stops reading from a connection for a while ([Loop.Pause]).
//   - It watches descriptors that are no connections ([Loop.Watch]), each by a number of its
//     owner's, and tells when a descriptor can be written to ([Loop.AwaitOutput]).
//   - It wakes a loop at the price of one short write, and for nothing while the loop is awake
//     ([Loop.Wake]).
//   - It polls. gnet polls twice before it sleeps, and yields the processor in between. On a
//     server that is not saturated that makes the runtime switch threads twice for each
//     command. Whoever polls also knows when a round, which is what a loop does between two
//     polls, is over. Then connections are closed, so that no report of a descriptor can be
//     older than its number.
//
// [Loop.Run] polls with gnet's own descriptor, inside a task of gnet's that ends when the
// loops are to end. What is reported of a connection is given to gnet, as if gnet had polled.
//
// # What is relied on
//
// Functions of gnet v2.10.0 that are not exported are called, by means of the compiler's
// linkname directive:
//
//	func newStreamConn(proto string, fd int, el *eventloop, sa unix.Sockaddr, localAddr, remoteAddr net.Addr) *conn
//	func (el *eventloop) register0(c *conn) error
//	func (c *conn) processIO(fd int, ev netpoll.IOEvent, flags netpoll.IOFlags) error
//
// A program is not linked if gnet has no functions of these names. That they take other
// arguments cannot be noticed: go.mod names gnet's version by number, and a test fails when it
// is another one than that for which this was read. The event loop, and the descriptor of its
// poller, are taken from unexported fields. [Start] fails where they are not found, and with
// gnet's build tag poll_opt, whose poller keeps pointers with the descriptors.
//
// Connections are made without addresses, which gnet needs for nothing else than to show them.
//
// # In a simulation
//
// A loop with a [Poller] has nothing of gnet, and makes no system calls: its sockets are those of package sockets. What
// it does with a report is what gnet does. It is for Linux.
package gnetloop
