// Package reactor carries the engine's sessions over TCP and Unix sockets, on
// gnet's event loops.
//
// # Loops
//
// A [Server] accepts on net.Listeners of the caller's and gives each connection
// to one of a few event loops, where it stays. A loop has one goroutine, and a
// connection, its session and its buffers are touched by no other. What comes
// from elsewhere (a job that another loop's put hands over, a time-out, a socket
// that can be written to again) is a task that gnet runs on the loop.
//
// For each read, all complete commands in it are decoded and executed, their
// replies are collected in one buffer of the loop's, and one write sends them.
// Only then the engine is asked to wake those to whom the commands gave jobs. The
// reactor writes to sockets itself: gnet's buffer for output has no bound, and
// gnet knows of no wish to stop reading.
//
// # Accepting
//
// A connection costs as few system calls as can be, because many clients connect
// for a handful of commands: on Linux accept4, epoll_ctl, the reads and writes of
// its commands, epoll_ctl and close. One loop accepts for each listener, on its own
// goroutine, and gives every connection to the loop that has fewest, itself
// included. Package adopt, in which it stands what of gnet is relied on, registers
// the bare descriptor with gnet. Go's poller is not asked.
//
// The loop learns from its own poller that somebody has connected: see
// gate_epoll.go for how, as gnet has no means for that. Where that does not work, on
// kqueue systems, with the build tag poll_opt, and where gnet's poller is not found
// (see below), a thread for each listener waits in poll(2) and rings the loop.
//
// TCP_NODELAY and SO_KEEPALIVE are set on the listener where connections inherit
// them, and on connections that were there before.
//
// # Invariants
//
//   - All of what gnet has read is taken at once, so that gnet keeps nothing.
//   - Replies leave in the order of the commands, and none leaves behind one that
//     failed to.
//   - A descriptor is written to only between the time when gnet reports the
//     connection open and the return from gnet's report of its end, or while the
//     reactor owns it. No byte for one client can reach another who got the
//     number later.
//   - No reply leaves before the place in the journal that it depends on is
//     committed, and none overtakes one that waits for that.
//   - The loop's buffer of replies is empty whenever the engine may wake somebody.
//   - Every session that was opened is closed exactly once.
//
// # Commits
//
// With a journal, the replies of a batch that changed something wait until the
// journal is committed as far as they depend on it; the client's next commands
// wait with them, and other clients do not. At the end of a round of reads the
// loop asks once for a commit, which serves all that came in that round.
//
// # Clients that do not keep up
//
// Replies that the system does not take lie in a buffer of the connection's.
// While there is one, none of the client's further commands is executed and the
// client is not read; the system then makes it stop sending. One goroutine for
// all connections waits, with a poller of its own, until such a client takes
// output again, and then has the connection's loop go on: with the output, with
// commands that were read, then with reading. The loop also writes and goes on to
// somebody else when a single batch has brought a client much output or has taken
// two milliseconds, or when the engine says that a command takes long.
//
// Commands behind a reserve that waits are kept, up to a limit, and then reading
// stops as well.
//
// What is kept for one connection is therefore bounded:
//
//   - commands not executed yet: less than 192 KiB, 64 KiB at which reading stops
//     and two reads that may come before it does;
//   - replies not taken yet: less than 256 KiB and two replies, the one that
//     exceeds the 256 KiB and the one that ends a wait;
//   - in the engine, a body that is arriving, at most as big as a job may be.
//
// The buffers come from pools, and their capacity may be up to twice of what lies
// in them. An idle connection has none. It costs less than 200 bytes here, some
// more in the engine, and about 300 in gnet.
//
// Stopping gnet from reading needs the descriptor of gnet's poller, which is
// taken from its unexported fields and proven to be the right one when the server
// starts. Where that fails, or with the build tag poll_opt, reading goes on, and
// a client that has sent 4 MiB too far ahead is closed.
//
// Past Config.MaxOutput a client is closed. Because executing stops long before,
// only a single reply that is bigger can get there, such as a list of very many
// tubes.
//
// # Clients that do nothing
//
// As with beanstalkd, a client may stay without sending or reading for as long as
// it likes, and TCP's keep-alive finds those that are gone; unless
// Config.IdleTimeout is set. Then the server closes clients that have neither sent
// a byte nor taken one for that long, and do not wait for a job, nor hold one, at its
// end. A command of which only a part has come keeps nobody, nor do replies that
// are not taken.
//
// # The end of a connection
//
// When the client says that it will send no more, everything that it has sent
// is still executed and answered; a reserve that waits, or would, is answered
// TIMED_OUT. gnet closes its descriptor at that point. If something is left to
// send, the connection goes on with a copy of it, in the same bounded memory, for
// as long as the client takes something every 5 minutes. What the client has
// reserved returns as soon as nothing of it is left to execute. On kqueue systems
// the end is noticed only when it is read; while a client is not read, it may
// come late. No system tells of an end behind bytes that its buffers have not
// room for.
//
// When the server shuts down, each client is read at most once more, so that those
// that never pause come to an end too. What has come is executed and answered; with
// a journal, when it is committed.
//
// After quit nothing more is executed. When the client was sent all that it is
// owed, the connection is closed at once, if the quit was the last that has come
// from the client. Otherwise the client is told that no more will come, and
// what it sends is thrown away until it closes, at most for 10 seconds: when a
// system closes a TCP connection with something unread, it destroys replies that
// are still on their way. The same happens to a client whose next bytes arrive
// after the connection was closed. beanstalkd does not do better, and a client
// that quits has no reason to send more. On kqueue systems nothing is closed at once.
//
// A connection on which writing fails is closed at once. Nothing is executed for
// it any more.
//
// # Shortages
//
// There may be Config.MaxConnections connections, those included that are being
// ended. One more is accepted, answered OUT_OF_MEMORY, which in the protocol means
// that trying again later may help, and closed; to leave it in the listener's
// queue instead would let it hang without a word.
//
// When accepting fails for want of descriptors or memory, it pauses: for 5 ms at
// first, then twice as long each time up to 1 s, or until the server closes a
// connection. A client that was not accepted waits in the listener's queue. The
// server holds one descriptor in reserve for the ends of connections, because a
// copy is needed there.
//
// # Panics
//
// A panic in the decoding or execution of a command is logged and costs the
// client its connection, unless the engine held a lock at that time. Then, and
// after a panic anywhere else on a loop, the state of the jobs may be broken: the
// process logs why and ends with exit status 2.
package reactor
