// Package relay is both ends of a trunk, over which a server has its clients served by another one, as state machines.
//
// A [Gateway] forwards the clients of a loop to the leader. It takes what the leader says (items), what clients send
// and how they end, what this member's log has told, and the time. It says items, and what is to be done for clients.
// A [Leader] serves the clients of a gateway's loop. It takes what the gateway says, and what its host's engine has
// answered; it says items, and what the gateway asks for.
//
// Nothing here touches the world: no socket, file, clock, goroutine or lock, which a test checks. Whoever has these
// is the host: a loop of the reactor, or a simulator. All methods of a machine are called by one goroutine. A host
//
//   - carries out what the machine says to a [Trunk], a [Host] and the [Conn] of a client, as it is said, without
//     calling the machine;
//   - does what a [Wish] or a [Request] says that an event returns, before the next event;
//   - for a gateway, calls Next, Turn and NextLoss in turn as long as HasWork reports true and it has time, and Turn at
//     NextTurn; and Check at the beginning of each round, whose error ends the trunk;
//   - for a leader, sends a client no more replies than it has credit and the trunk has room for, and others in turn.
//
// # Clients of a gateway
//
// A client has one of these states, and moves only as the table says:
//
//	unannounced   no leader has heard of the client
//	detached      its session goes on at the next leader, or over the next trunk
//	replaying     its session is resumed; the leader gets no input before it has what the log tells of it
//	serving       the leader executes what it sends
//	lastRead      the same, and the client was read for the last time, because the gateway ends
//	ending        the same, and the leader knows that the client sends no more than what waits here
//	halfClosed    the leader knows that the client sends no more
//	closed        the leader knows that the client has gone, and has not ended its session
//	lost          it cannot go on; its connection is about to be reset
//	over          its session has ended, or its connection before a leader has heard of it
//
//	unannounced -> serving lost over
//	detached    -> unannounced replaying serving lost over
//	replaying   -> detached serving closed lost over
//	serving     -> detached lastRead ending halfClosed closed lost over
//	lastRead    -> detached ending halfClosed closed lost over
//	ending      -> detached halfClosed closed lost over
//	halfClosed  -> detached closed lost over
//	closed      -> over
//	lost        -> closed over
//	over        ->
//
// A new client is announced to the leader, at once or when the trunk is ready; it is given up when LeaderPatience has
// passed without one. When the trunk ends, clients become detached, with what they have sent and have no answer to.
// At the next leader their sessions are resumed, those first who have waited longest. What has no answer is sent
// again when this member has applied the log up to the leader's fence, behind what the log tells of it: so nothing is
// executed twice. Clients become lost if that cannot be done: because a part of what they have sent is not kept any
// more, or because nobody knows what they have got of an answer. A leader of an older version than
// [trunk.ResumesSince] resumes nobody: then only clients that have sent nothing wait for the next one.
//
// # Clients of a leader
//
// A gateway gives each client a channel, a number, and opens or resumes its session. The leader keeps a [Channel] for
// it, which a host has in a struct of its own: how much of the input has come, where in it the last commands end,
// what the gateway knows to be answered, and the credit for input. Items with replies say how much of the input is
// answered with them, and before them stands what tubes the client uses and watches then; replies that are sent in
// part answer nothing before the rest.
//
// The input of a resumed session, of which an earlier leader may have executed a part, is a [Replay]. It is executed
// when the gateway has sent the last of the effects that the log tells of. A command that ends where an effect is was
// executed: it is answered, and not executed. Before the last of them, only commands are executed that can have no
// other result than they had, and what a client has got of a reply goes on with the same bytes or not at all.
// Whatever cannot be known resets the client.
//
// A gateway that says what no gateway says loses its trunk. When the trunk ends, sessions that may be resumed over
// another one become absent; all end if the gateway itself leaves.
//
// # Bounds
//
// A client may send as far ahead as the leader gives credit for, and the leader as many replies as the client's
// window has room for: 16 KiB at first, up to MaxWindow for one that uses it whole and keeps up. What was sent and
// has no answer is kept, up to 16 KiB for each client; more, and windows beyond 16 KiB, count as the host's memory.
// Who has more to say than the trunk has room for says it in pieces of 16 KiB, in turn; who says little overtakes
// them. Nothing is allocated for an item.
package relay
