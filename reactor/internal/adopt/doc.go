// Package adopt gives connected sockets to gnet's event loops by their bare
// descriptors.
//
// gnet's own way, EventLoop.Enroll, wants a net.Conn. It makes a copy of the
// descriptor, because a net.Conn keeps its own, and passes through a pool of
// goroutines and two channels: for a connection that is used for four commands,
// that costs more than the commands. Adopting costs one system call.
//
// # Use
//
// [Of] is called once for each event loop, with any connection that lies on it.
// [Loop.Adopt] is called on that loop's goroutine, for instance in a task given
// to EventLoop.Execute, or in a callback of a connection on the loop. What follows
// is as with Enroll: OnOpen, OnTraffic and OnClose, with the context that was
// given to Adopt.
//
// # What is relied on
//
// Functions of gnet v2.10.0 that are not exported are called, by means of the
// compiler's linkname directive. Two are those that Enroll calls in the end; the third
// is what gnet's own polling calls, for [Loop.Report]:
//
//	func newStreamConn(proto string, fd int, el *eventloop, sa unix.Sockaddr, localAddr, remoteAddr net.Addr) *conn
//	func (el *eventloop) register0(c *conn) error
//	func (c *conn) processIO(fd int, ev netpoll.IOEvent, flags netpoll.IOFlags) error
//
// A program is not linked if gnet has no functions of these names. That they take
// other arguments cannot be noticed: go.mod names gnet's version by number, and a
// test fails when it is another one than that for which this was read. Of the
// types it is only relied on that a gnet.EventLoop is an *eventloop and that a
// gnet.Conn is a *conn, which [Of] checks. No field is read or written here, so that
// gnet's build tags poll_opt and gc_opt, and the systems on which gnet has the two
// functions, make no difference.
//
// The connection is made without addresses: LocalAddr and RemoteAddr return nil.
// gnet uses addresses of streams for nothing else.
package adopt
