// Package accept accepts a server's connections and brings each to the point where commands may come: it has a place
// under the limit, a proxy's header was taken off, and the TLS handshake is done. Then a loop gets it as an [Arrival].
// The package knows nothing of what happens on the connection afterwards.
//
//	a := accept.New(accept.Config{Loops: loops, MaxConnections: 10000, Log: log})
//	go a.Serve(listener, nil)       // or with a tls.Config; until Stop
//	...
//	a.Reported(number, input, ended) // in each loop, for what its poller reports by number
//	a.Closed(arrival.Listener)       // when the connection has ended
//
// # Accepting
//
// A connection costs as few system calls as can be, because many clients connect for a handful of commands: on Linux
// accept4 here, and epoll_ctl where its loop registers it. One loop accepts for each listener, on its own goroutine,
// and learns from its own poller that somebody has connected. Go's poller is not involved. TCP_NODELAY, SO_KEEPALIVE
// and keep-alive's timings are set on the listener where connections inherit them, and on connections that were there
// before. Over TCP, the other end is asked whether it is there after Config.KeepAlive without a word, and three times
// within half of that again; then its connection ends, as it does when nobody acknowledges what was sent for one and a
// half times that.
//
// When accepting fails for want of descriptors or memory, it pauses: for 5 ms at first, then twice as long each time up
// to 1 s, or until the server closes a connection ([Acceptor.Freed]). A client that was not accepted waits in the
// listener's queue. A connection past Config.MaxConnections is accepted, answered OUT_OF_MEMORY, and closed.
//
// # Handshakes
//
// A TLS handshake runs in a goroutine of its own, which reads and writes the socket and waits for the client;
// crypto/tls cannot do it in pieces, because it keeps the first error. The goroutine begins when it has something to
// do. Until the client's first record is there as a whole, the listener's loop watches the bare descriptor,
// edge-triggered, and looks with MSG_PEEK at what has come. When only a part is there, SO_RCVLOWAT makes the system
// report no more before the rest is. So a silent client costs the system calls accept4, epoll_ctl, twice, and close,
// and one that sends byte by byte costs little more. A client that does not speak TLS gets an alert from the loop
// itself. The loop leaves to crypto/tls whatever else is strange. On kqueue systems a goroutine begins at once.
//
// A connection for proxies, whose header has not come yet, stands among the handshakes, also if no TLS follows.
//
// # Limits
//
//   - Handshakes under way: 1,000, or a quarter of MaxConnections if that is less. One more pushes out the oldest of
//     the largest group; a source with more than a quarter of the places loses its own first. See [Crowd].
//   - Handshakes that compute at a time: half as many as there are processors. When more clients say hello than
//     these can serve, as in a flood that reconnects for ever, only a part of them is served; see handshakes for why
//     the newest is preferred.
//   - What a client may send in a handshake: 16 KiB, or 64 KiB if it is asked for a certificate.
//   - The time of a handshake, or of a PROXY header: 10 s. After a handshake that has failed, the client has 1 s to
//     read the alert, because what it has not read would be destroyed with the connection.
//   - A PROXY header: 2 KiB, or 107 bytes in version 1.
//
// # Invariants
//
//   - Each Arrival has a place, except those of [Acceptor.Connect]. Who has it reports its end, which frees the place.
//   - When [Acceptor.Wait] has returned, nothing arrives any more.
//   - Nothing behind a PROXY header, and nothing that belongs to a command, is taken from a socket without TLS.
package accept
