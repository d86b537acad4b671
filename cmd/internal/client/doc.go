// Package client speaks the beanstalkd protocol to one server, for the operator's tool and
// for the console.
//
//	c := client.New(netConn, "127.0.0.1:11300")
//	defer c.Close()
//	tubes, err := c.Tubes(ctx)
//	stats, err := c.StatsTube(ctx, "mail")
//	fmt.Println(stats.Uint("current-jobs-ready"))
//
// There is a typed call for every command that the two use. [Conn.Do] sends any command that
// has one reply, and [Conn.Pipeline] many of them without waiting for each reply.
//
// # Servers without extensions
//
// The package works with Trellis and with a stock beanstalkd. Where beanstalkd has no
// command for a call but other commands do the same, the call uses those; otherwise it
// fails with a [*LacksError]. An extension, as a command or as a tag of a put, is sent only
// if the server has listed it in its answer to capabilities. This is not politeness: a
// stock server that refuses a put does not skip its body, and would run it as commands.
// [Conn.Queue] enforces that, so that no caller can forget it.
//
// # What may be sent
//
// A line that a server would refuse for its length, or that would end early, is never
// sent: see [ErrLine]. Names of tubes are not checked further, as a server does that.
//
// # What may come back
//
// The server may be hostile. The first line of a reply and its body are bounded; memory
// grows with what has arrived and not with what was announced. What is in a reply is not made
// safe for a terminal: that is the printer's task. After a reply that breaks the rules, and
// after a context has ended while a command was sent or a reply was due, the connection is
// useless, and every call returns that error.
//
// # Concurrency
//
// A Conn belongs to one goroutine at a time.
package client
