// Package wire carries what nodes of a cluster say to each other: raft's messages,
// snapshots, and control requests. It knows nothing of what entries and snapshots hold. It begins
// connections between loops of gateways and the leader, too, which others carry on: trunks.
//
// # Use
//
//	t, err := wire.New(wire.Config{...})       // takes connections; control requests are served
//	... package member settles who the node is, through Handler.Control and Call ...
//	t.Identify(cluster, self)
//	t.SetPeers(index, members)                 // connects; again whenever the members change
//	t.Send(m)                                  // what raft wants sent
//	t.SendSnapshot(m, write)                   // a MsgSnap with its files, or with what its receiver lacks of them
//	k, err := t.DialTrunk(ctx, leader, hello)  // the leader's Handler.Trunk gets the other end
//	err = t.Close()
//
// A tool asks nodes with [Call], and with [Fetch] for what is long.
//
// # What holds
//
//   - Send, SetPeers, SendSnapshot and Identify never wait for a peer. What cannot be
//     sent is discarded, and Handler.Unreachable tells it. Raft expects no more of a
//     network than this.
//   - A connection serves one purpose. Each member has two lanes to each other one,
//     connections that the sending side makes: one for appends (MsgApp), one for all other
//     messages, so that no vote and no heartbeat waits behind entries. Messages of a lane
//     arrive in their order. All appends use the one lane, also those without entries: raft
//     takes one that overtakes another for a gap, and slows down.
//   - Nothing reaches the handler that did not come from the member that it names: the
//     handshake compares the cluster's id, and id and incarnation of both sides, with what
//     each side knows (but see newcomers); From and To of each message have to fit the
//     connection; only kinds that a follower or leader sends are taken. What does not fit ends
//     the connection. With TLS the other side holds a certificate of the cluster's authorities,
//     which is for the host in the address of the member that it names, or has a name that
//     Credentials.MemberNames mean (see Authorities).
//   - A lane carries what its link carries, if that is 256 KiB in 3 s at least. Arrived counts
//     the bytes of a message while it comes, so that a large one on a slow link is told from one
//     that does not come.
//   - A member that connects anew has given up its connection before: the newer one wins.
//   - Either side notices when the other one is gone: a lost connection at once, as both
//     sides read; a silent one after 3 s without a byte. The sending side writes a pulse
//     every 500 ms; the other one answers what arrives with a pulse.
//   - Memory is taken as bytes arrive and not as a peer announces. Connections that have
//     not finished the handshake are at most 64: then the oldest makes room, because one
//     that has something to say says it within milliseconds. Each of them has 2 s.
//   - Every snapshot that is sent comes to an end that the handler is told of: each part
//     has 15 s to go, and the receiver a minute and a second for each 4 MiB to finish.
//   - A loop of a gateway has one trunk. It counts its dials: a later one ends the trunk before,
//     and begins when that has ended; one that comes behind a later one is refused. A trunk of
//     another process of the member ends those of the one before. A trunk has to end, at both
//     ends, when the other member is removed, when the transport is closed, and when the
//     certificate of the other side is of no authority any more. A member has at most 512.
//   - What is refused is one line in the log of each side that can know of it, at most
//     once a minute.
//
// # Which messages cross
//
// On lanes: MsgApp, MsgAppResp, MsgVote, MsgVoteResp, MsgPreVote, MsgPreVoteResp,
// MsgHeartbeat, MsgHeartbeatResp and MsgTimeoutNow. MsgSnap only at the beginning of a
// snapshot stream. MsgProp, MsgReadIndex, MsgReadIndexResp and MsgTransferLeader do not:
// a follower that forwards them would have another node's leader answer for its own term.
// Send discards them, and a connection that brings one is ended.
//
// # The handshake
//
// All integers are little-endian. CRC is CRC-32C. The side that has dialled begins, over
// TLS if there is any, with a hello:
//
//	 0  8  "TRELPEER"
//	 8  2  lowest version of the protocol that it speaks: 1, for a trunk 2
//	10  1  purpose: 1 appends, 2 other messages, 3 a snapshot, 4 a control request, 5 a trunk
//	11  1  length of the name, at most 64
//	12  2  length of the address, at most 259
//	14  2  highest version that it speaks, 0 if that is the lowest
//	16 16  cluster's id
//	32  8  raft's id of the side that has dialled, 40 8 its incarnation
//	48  8  index of an entry as of which that side is a member, 0 if it knows of none
//	56  8  raft's id of the member that it wants, 64 8 its incarnation
//	72     name and address of the side that has dialled
//	    4  CRC of all bytes before
//
// From byte 11 on all is zero in a control request, for which nobody needs to be a member.
// The other side answers, and has closed the connection unless the status is 0:
//
//	 0  8  "TRELPEER"
//	 8  2  version of all that follows: the lower of the highest ones of both sides
//	10  1  status: 0 welcome, 1 refused, 2 refused because it is a member no more
//	11  1  length of the reason
//	12     the reason, a text
//	    4  CRC of all bytes before
//
// Later versions keep the layout of both. A program that speaks a later version speaks the one
// before it too, so that members are replaced one by one. Programs of before there were ranges
// take no hello with one: a cluster gets from them to a later version by way of a program that
// speaks version 1 alone. Version 2 is version 1 with trunks.
//
// # Authorities
//
// An authority may be shared with others, so its signature alone gives no rights but to ask
// who a node is and how it sees the cluster. Whose certificate is a member's and whose an
// administrator's is looked at after each handshake, by both sides:
//
//   - A certificate of a member that SetPeers has named is for the host in its address.
//     All members dial each other there, so every cluster's certificates are.
//   - That of a node which SetPeers has not named, a newcomer or one that founds the
//     cluster with this one, is for the host of some member: of those that SetPeers has named,
//     of Config.Nodes, or of Announce.
//   - Where Credentials.MemberNames are given, it has such a name instead.
//   - A certificate of an administrator is a member's, or has a name that
//     Credentials.AdminNames mean where there are any.
//
// # Newcomers
//
// A node that was down while a member was added does not know that member, which may lead
// by now. So each side knows the members as of an entry of raft's log (SetPeers), and the
// hello says as of which entry its sender is one. All nodes have the same log. If SetPeers
// has not named the sender, one of three is true:
//
//   - The sender's entry is later than this node's. This node may not have heard of it yet, and takes it for a
//     newcomer, if its certificate is a member's: it connects to it, and messages and snapshots pass both ways.
//     SetPeers ends that if it does not name the newcomer as of an entry that is not before the newcomer's.
//   - This node's entry is not before the sender's. The sender was a member as of its own
//     entry, and is none as of this node's: it was removed. It is told so (status 2), and
//     one such answer is proof, because a member that has named an entry and was removed never
//     comes back under its id.
//   - The sender names no entry: it was just added, and has not applied that. It is
//     refused until it has, or until this node has.
//
// What a newcomer's messages are worth is for raft to decide: a leader's term and entries
// speak for themselves, and a removed node that nobody has told yet disturbs as little as
// it did before it was removed (PreVote, CheckQuorum). A wiped node is no newcomer, as it
// knows no cluster: its new directory has a new incarnation, and an id belongs to one. A
// sender whose id this node knows in another incarnation is refused, newcomers included.
// At most 64 newcomers are held; the one with the earliest entry makes room.
//
// # Frames
//
// All that follows is frames, in both directions, as package frame describes them. The kinds, and the
// greatest length of their payload:
//
//	1 message   40 MiB   a raft message: on a lane, and the first frame of a snapshot stream
//	2 pulse     0        the sender lives
//	3 chunk     64 KiB   the next bytes of a snapshot stream, or of the one before a response
//	4 end       0        the snapshot stream is whole; by its receiver, all of what it has was told
//	5 done      512      by who takes a snapshot or a trunk: taken if empty, or the reason why not
//	6 request   1 MiB    a control request, by the side that has dialled
//	7 response  1 MiB    its response
//	8 error     512      a text instead of a response
//	9 trunk     32 KiB   what a loop of a gateway and the leader say: see package trunk of the reactor
//	11 has      64 KiB   by who takes a snapshot whose message has a context, before what comes: the next bytes of what
//	                     it has, up to an "end"; the sender waits for that
//	10 begin    24       by the side that has dialled for a trunk, which waits for the answer:
//	                     0 2 latest version of what kind 9 carries that it speaks; 2 2 zero; 4 4 number of the
//	                     loop; 8 8 nonce of its process; 16 8 its dials so far, this one included; none is 0
//
// A message is a head of 72 bytes, and then context, snapshot and entries, nothing else:
//
//	 0  1  raft's type of the message
//	 1  1  1 if it rejects, otherwise 0
//	 2  2  zero
//	 4  4  number of entries, of a MsgApp
//	 8  8  to, 16 from, 24 term (above 0), 32 log term, 40 index, 48 commit, 56 reject hint, each 8
//	64  4  length of the context, at most 1 KiB
//	68  4  length of the snapshot, at most 1 MiB; only of a MsgSnap: a raftpb.Snapshot as protobuf has it
//
// An entry is a head of 24 bytes and its data. Indexes continue that of the message, and
// terms do not fall and are at most the message's:
//
//	 0  8  index
//	 8  8  term
//	16  4  length of the data
//	20  1  raft's type of the entry
//	21  3  zero
//
// This is not protobuf's encoding, because that one lets a few bytes stand for many
// objects, takes several allocations for each, and would be harder to hold to its limits.
//
// # Cost and limits
//
// A message is encoded into the connection's buffer of 64 KiB by the lane's goroutine; data
// that are larger go to the system from where they are. A message that comes in takes an
// allocation, one with an entry two. A lane queues at most 16 MiB or 4,096 messages, or a
// single larger one, beside those that it is writing, which may be as many. At a time 16
// control requests and 4 snapshot streams are served, of which one is taken. What a receiver has is 40 MiB at most.
// Names of hosts are looked up at each attempt to connect.
//
// Without TLS all addresses have to be on loopback (ErrPlain), where anybody on the machine
// may be a member.
package wire
