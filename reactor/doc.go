// Package reactor carries the engine's sessions over TCP and Unix sockets, on gnet's event loops.
//
// # Loops
//
// A [Server] accepts on net.Listeners of the caller's and gives each connection to one of a few event loops, where it
// stays. A loop has one goroutine, and a connection, its session and its buffers are touched by no other. What others
// have for a loop (a job that another loop's put hands over, a commit, a socket that takes output again) they leave in
// a mailbox, and then wake the loop.
//
// For each read, all complete commands in it are decoded and executed, their replies are collected in one buffer of
// the loop's, and one write sends them. Large bodies are not copied: the write takes them from where they lie in the
// engine, which keeps them there until they are sent. The reactor writes to sockets itself, because gnet's buffer for
// output has no bound and gnet knows of no wish to stop reading.
//
// Package gnetloop is the only one that knows gnet. There a loop polls by itself, with the descriptor of gnet's
// poller: gnet reads what is reported of a client, and closes the descriptor in the end.
//
// # Rounds
//
// The poller reports each connection that has input once, and is polled again. What a loop does between two polls is a
// round, and everybody else waits for its end. So a round has a budget, in units of cost of about a quarter of a
// microsecond, which the engine keeps (engine.Loop.Refill and Spend): about a millisecond in all.
//
// All that is not reading is done in the same place, serve, which takes a bit of each kind in turn until nothing is
// left or the budget is spent:
//
//   - sessions that can go on (engine.Loop.Next): they got a job, their time is
//     over, or others have had their turn beside a command that takes long;
//   - connections that can go on: the run queue, first come, first served;
//   - connections whose clients take output again;
//   - connections whose replies have been committed;
//   - deadlines.
//
// serve ends everything that gnet makes the loop do. What a command hands over to another client of the same loop thus
// reaches that client without another way through the system. If something is left, serve wakes its own loop and goes
// on after the next poll. A session in a long command takes whatever it gets, so up to half of that round's budget
// goes to the other kinds first.
//
// A read executes its commands even if the budget is spent, but then at most 32 of them, and fewer if they are dear;
// the rest joins the run queue. So a client that sends a few commands at a time waits for nobody but those whose input
// has come in the same poll. A poll reports up to 128 connections, and the time until the next one grows with the
// number of those that have sent something, or that have ended: an end costs the system about 20 µs. (When the later
// ones of a poll went to the run queue, those of the next poll overtook them, and with thousands of busy clients the
// slowest replies took several times as long.)
//
// A loop with nothing to do sleeps in its poll. It has one timer, for the engine and for the deadlines of connections.
//
// # The life of a connection
//
// A connection has one of these phases, and moves only along the arrows:
//
//	authenticating                       the client has to authenticate; it has no session yet
//	   | it has sent a token
//	serving <---> waiting          a command is not finished: a reserve without a job,
//	   |             |             a long list, a put without room in the log
//	   +------+------+
//	          | quit; the client's last command is answered; the journal has failed
//	          |
//	          +---- forwarded      instead of these two, as the server's role is: the leader serves the client, and
//	          |                    has ended its session
//	          v
//	      draining                 the session is closed; what is owed is sent
//	          | all is sent, and the client has sent more behind its last command
//	          v
//	      lingering                the client was told that no more comes, and is to close
//
//	any --> broken --> ended       nothing more is read or written
//	draining --> ended             all is sent, and nothing is there that was not read
//
// A connection of a server without access control begins in serving. A client that sends
// anything but a token while authenticating is told so, and goes on to draining.
//
// Beside that, its intake says who reads what the client sends: gnet (reading),
// nobody for now (paused), or, after the client has sent its last (finished), the
// loop itself, from a copy of the descriptor that gnet closes (detached). A
// connection that is detached may serve, wait or drain.
//
// It has two queues, which are empty while the client keeps up: input that was read
// and cannot be executed yet, and output that the client has not taken yet.
//
// # Accepting
//
// Package accept accepts connections, takes the headers of proxies off, does the TLS handshakes, and has the limit on
// connections. It gives each connection to the loop that has fewest, as an accept.Arrival; a loop that has a trunk goes
// before one that has none. While a loop is held, connections wait to be taken in.
//
// # TLS
//
// Behind the handshake the tls.Conn reads and writes memory of the loop: see package stream. All the rest of the
// reactor deals with plain text. A plain connection is not a byte bigger for that: a TLS connection is a struct around
// one.
//
//   - A close_notify is a half-close, and is noticed when it is read; behind more input
//     than is kept, only the socket's end is noticed at once. An end without
//     close_notify is the same. A record that is cut there is dropped.
//   - When a client breaks the protocol, what it has sent before is executed, replies
//     are dropped, and it is sent an alert, for which it has the time that a client has
//     after its quit.
//   - crypto/tls closes a connection after 16 records in a row without data. That bounds
//     what a client can make it compute for nothing.
//
// An idle connection takes about 8 KB more than a plain one, most of it in crypto/tls,
// and up to 26 KB after a large body has come. A client's certificate, which would be 3 to
// 4 KB more, is forgotten when it is known who the client is, but for its DER, which
// connections share. Each read costs two small
// allocations, both in crypto/tls.
//
// # Invariants
//
//   - All of what gnet has read is taken at once, so that gnet keeps nothing.
//   - Replies leave in the order of the commands, and none leaves behind one that
//     failed to.
//   - Nothing is executed for a client that has output pending.
//   - A descriptor is written to only between the time when gnet reports the
//     connection open and the return from gnet's report of its end, or while the
//     reactor owns it. No byte for one client can reach another who got the
//     number later.
//   - No reply leaves before the position in the journal that it depends on is
//     committed, and none overtakes one that waits for that.
//   - The loop's buffer of replies is empty when serve begins and after each thing
//     that it does.
//   - Every session that was opened is closed exactly once, unless the server is
//     aborted, and every body that was pinned is released exactly once.
//
// # Commits
//
// With a journal, replies that depend on a change wait until the journal is
// committed that far; the client's next commands wait with them, and other clients
// do not. The first connection of a round that has to wait wakes the loop, and one
// Flush, after the next poll, serves all that have come since.
//
// When the journal fails, replies that wait for it are dropped, and their
// connections end without a word: whether what the replies tell has happened, only
// a restart will show. What was sent in part before is completed.
//
// # One server of several
//
// A server that may be replaced by another one depends on more than its own journal: a reply that tells of the
// queue's state waits for a position that proves that nobody had taken over (engine.Session.Replied). When it is to
// hand over, Hold gives commands that have begun a moment to end, and then stops all execution: no command, no
// deadline, no end of a session changes the engine, so that nothing is recorded behind what is committed then.
// Replies go out as they are committed. When it has been replaced, Abort resets all connections: what was not sent by
// then may not be true.
//
// A server may outlive its engine, if all that was executed has been committed: Detach takes it away from
// a held server, and Attach gives it another one with the same jobs. What a session has asked for
// (engine.Detached) waits in the loop meanwhile. Nothing of an engine stays: replies that were not taken
// are copied, lines of accounts are given up, and clients with jobs are reset. Loops have a clock of
// their own for that, Config.Now, by which connections have their deadlines; the time of the engine is so
// much later, or earlier (loop.time). Between two engines a loop is held.
//
// A server that is made without an engine forwards its clients to one that has it: see Gateways below. It is given
// an engine by Attach, too, when it leads: then its trunks end, and its clients are served directly. And a leader that
// hands over forwards, after Detach and Forward, those of its clients that are on record, which Record sees to.
//
// A process makes one Server after the other. Each has its own loops and descriptors, and
// leaves none. Only gnet's logger is one for the process: it is that of the last Server,
// which is why there may not be two at a time with different logs.
//
// # Channels
//
// The clients of another server, a gateway, come over trunks, which [Server.AcceptTrunk] takes. What is said on a
// trunk, and what becomes of sessions when it ends, is decided in package relay. A leaderEnd is its host here, and
// gives each client a channel: a connection whose stream is a channel of the trunk. It is a struct around a conn, as
// one of TLS is, so that all the rest of the reactor deals with it as with any other.
//
//   - Its output goes by the gateway's credit and the trunk's room: see package stream. What is left over is pending,
//     as with a client that does not take it.
//   - It is never paused. The gateway may send what it has credit for, and gets more when half of it was executed.
//   - It takes no slot under the limit, and is in no listener's counts: its gateway counts it.
//
// What a gateway sends is taken as a read of a connection is: with 32 commands beyond the budget at most, and the run
// queue for the rest. A trunk that ends ends all its channels, one after the other in turn with everything else; but
// nothing is executed for them from that moment on. A few sessions are resumed in each turn. A ping is answered
// behind a barrier, so that the pong proves that this server led. A server that is to be replaced tells gateways to
// retire when they have all replies, and says no more. An idle channel costs less than 500 bytes with what the engine
// keeps.
//
// # Gateways
//
// A server without an engine forwards its clients to the server that leads: [Server.Forward]. Each loop has a
// connection to a loop of the leader, its trunk (see package trunk), and a gateway, the host of a relay.Gateway,
// which says what becomes of the clients. It decodes nothing but tokens; it takes connections, speaks TLS, and has
// the limits on connections. How long a client may be idle, and how old a connection may become, is the leader's to
// say, who knows what a client has reserved.
//
// What a read brings becomes input of the channel at once, and goes to the leader with what others have sent in the
// round. Replies are written when they come. A client for which the leader takes no more is not read. A client that
// half-closes, quits or is gone has the same end as on the leader: the leader says when the session is over, and then
// the connection drains.
//
// # Clients that do not keep up
//
// While a client has output pending, none of its further commands is executed and
// it is not read; the system then makes it stop sending. The loop is told when such a
// client takes output again. A long reply that the engine gives in
// parts goes on when the part before has been taken. Commands behind one that waits
// are kept, up to a limit, and then reading stops as well.
//
// What is kept for one connection is therefore bounded:
//
//   - commands not executed yet: less than 192 KiB, 64 KiB at which reading stops
//     and two reads that may come before it does (over TLS, 16 KiB more);
//   - replies not taken yet: less than 256 KiB and the one reply that exceeds them,
//     large bodies included, which are pinned in the engine and not copied; over TLS,
//     the sealed form of 64 KiB of them besides;
//   - in the engine, a body that is arriving, at most as big as a job may be.
//
// The buffers come from pools, and their capacity may be up to twice what lies
// in them. An idle connection has none. It costs less than 230 bytes here, with what
// the engine keeps, and about 300 in gnet.
//
// Where gnet reads on to the end of the input all the same, as it does with kqueue, a client
// that has sent 4 MiB too far ahead is closed.
//
// Past Config.MaxOutputTotal, which counts what all clients are owed, the client is closed that is owed
// most of those that could take it. Each loop has its own in a heap, and publishes the first.
//
// Past Config.MaxOutput a client is closed. Because executing stops long before,
// only a single reply that is bigger can get there.
//
// # Clients that must authenticate
//
// With Config.Access, a client is unknown until Access knows it: by its connection, or by a
// token in its first line, in the command auth or in the name of a tube that it uses, for
// libraries that have no such command. Until then the engine does not hear of the client.
// It has one line, no body, and 10 seconds, however much it sends in them. There may be 1,000
// such clients, or a quarter of the connections if that is less; then the oldest of them is
// disconnected for the newest, and also when there is no slot left for a connection. So
// silent clients keep nobody out who sends a token at once. While the places are short, one source
// (an IPv4 address, or the first 64 bits of an IPv6 address) has a quarter of them: of a source with
// more, the oldest goes first. So it is with TLS handshakes. Clients that are known are never
// disconnected for others. Once it is known, a client's
// session has the rights that Access says ([engine.Grant]), and the connection goes on as
// any other. Revoke ends connections by their rights.
//
// A connection has no field for all this, so that one of a server without access control
// costs nothing more: the deadline is that of idle connections, and each loop keeps a map
// of the clients that are known.
//
// # Accounts with a rate
//
// Past the rate of its account ([account.Rate]), a connection is not read. Those that wait stand
// in a line for each account, and when commands may be executed again, they take turns of 32. A
// connection counts as 10 commands, and one that the account has no room for gets its answer in
// the same line. Each loop has lines of its own, and a connection without such an account costs
// one test.
//
// # Connections of the process to itself
//
// [Server.Connect] makes a connection from inside the process: the console speaks the
// protocol over it. It is a socket pair, one end of which lies on a loop as any client's
// connection does. So what the console asks for waits its turn, is recorded, and is
// answered when it is committed, as if a client had sent it. But it may do everything, takes no
// slot under the limit, is not ended for being idle, and appears in no listener's counts.
//
// # Trunks
//
// A trunk is a connection between a loop of one server and a loop of another, over which the one has its clients
// served by the other: see package trunk for what is said on it, and package link for how it is carried. Two members
// that have agreed on one hand over its socket. Commands in it have the same turns as on any connection.
//
// # Clients that do nothing
//
// As with beanstalkd, a client may stay without sending or reading for as long as
// it likes, and TCP's keep-alive (Config.KeepAlive) finds those that are gone; unless
// Config.IdleTimeout is set. Then the server closes clients that have neither sent
// a byte nor taken one for that long, and do not wait for a job, nor hold one, at its
// end. A command of which only a part has come keeps nobody, nor do replies that
// are not taken. With Config.BodyTimeout, nobody whom the server reads may begin a body and
// leave it at that.
//
// # Connections that retire
//
// A connection that has become older than Config.MaxConnectionAge, or whose client's certificate is not
// accepted any more ([Server.Reverify]), ends as soon as nobody loses anything: no part of a command has come,
// all replies were taken, and the client has no job. A reserve that waits is ended. For that, a
// retired connection has a backlog, so that its commands go by the run queue, and conclude sees it behind
// each batch; while its client does nothing, it is looked at once a second. For a certificate, Config.Grace ends the
// patience.
//
// # The end of a connection
//
// When the client says that it will send no more, everything that it has sent
// is still executed and answered; a reserve that waits, or would, is answered
// TIMED_OUT. gnet closes its descriptor at that point. If something is left to
// send, the connection goes on with a copy of it, in the same bounded memory, for
// as long as the client takes something every 5 minutes, or for an hour while
// nothing can be sent because a commit or a command is not finished. What the client
// has reserved returns as soon as nothing of it is left to execute. On kqueue systems
// the end is noticed only when it is read; while a client is not read, it may
// come late. No system tells of an end behind bytes for which its buffers have
// no room.
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
// Of Config.MaxConnections connections, those count that are being ended. One more is accepted, answered OUT_OF_MEMORY,
// which in the protocol means that trying again later may help, and closed: in the listener's queue it would hang.
//
// The end of a connection needs a copy of its descriptor when the client has something to get yet. So the acceptor
// holds one descriptor in reserve. It pauses when there are no others, until the server closes a connection.
//
// # Panics
//
// A panic in the decoding or execution of a command is logged and costs the
// client its connection, unless the engine held a lock at that time. Then, and
// after a panic anywhere else on a loop, the state of the jobs may be broken: the
// process logs why and ends with exit status 2.
package reactor
