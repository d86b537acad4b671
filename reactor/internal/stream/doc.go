// Package stream moves the bytes of clients: what has come and is not executed, and what is owed and not taken.
//
// A [Stream] is one client's. There are three kinds of them, and Init chooses one when the connection begins: a
// socket, a socket with TLS, and a channel of a trunk, over which another server passes its clients' bytes. Whoever
// executes commands sees the same plain bytes and the same few operations on all of them. [Streams] are those of an
// event loop, with what they share. All of it belongs to the loop's goroutine, but for counters.
//
// The package decides how much is kept, what is written when, and whether a client is read. It does not know what
// the bytes mean, nor what becomes of a connection: an operation reports when the client is gone or is to be closed,
// and its [Owner] ends it.
//
// # Use
//
//	ss.Begin(s)                     the poller has the socket
//	ss.Decrypt(s, p)                plain text of what was read
//	ss.Keep(s, p)                   it cannot be executed now
//	ss.Send(s, out, size, waits)    replies, which may have to wait for a commit
//	ss.Supervise(s, read)           behind everything that was done with a stream that has something pending
//	ss.NextWritable()               a client takes output again: BeginTurn, SendPending, EndTurn
//	s.Committed()                   what waited may be sent
//	ss.End(s), ss.Detach(s)         the client has sent its last; its stream goes on without the poller
//	ss.EndTLS(s), ss.Discard(s), ss.Close(s)
//
// # Invariants
//
//   - Bytes leave in the order in which they were given to Send and Deliver, and none leaves behind one that was
//     dropped.
//   - Nothing overtakes a reply that waits for a commit, and it does not leave before Committed.
//   - A body that is pinned in the engine is released exactly once: when it was written, copied or dropped.
//   - While output that could be taken is pending, the client is not read (Supervise), nor is it while KeepInput bytes
//     wait. So of one client there are at most 192 KiB of input, and of output what one batch of commands has brought.
//     What TLS has sealed and the socket has not taken is at most 80 KiB more.
//   - A client past MaxInput, or past Config.MaxOutput, is reported by Supervise, and is to be closed.
//   - The descriptor is the poller's from Begin to LeavePoller, and the stream's own from Detach to Close. It is
//     written to only in between, so that no byte reaches who got the number later.
//   - What an idle stream takes is 16 bytes, and no call through an interface lies between a socket and the
//     operations on it.
//
// # TLS
//
// A tls.Conn reads and writes memory of the loop. Replies are sealed when they can be written, in chunks of up to 64
// KiB. What was sealed cannot be taken back: a chunk that the socket has taken in part is held, and what it holds
// counts as pending until it has left.
//
// # Channels
//
// A channel takes as much output as the other side has given credit for, and as there is room for in its [Trunk]. Small
// replies find room that large ones leave to them. Channels for which there is no room have turns, of one item each.
package stream
