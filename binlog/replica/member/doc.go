// Package member says who a node of a cluster is: it names nodes, keeps a node's
// identity in its directory, founds a cluster, and prepares a node to be added to one.
// It knows nothing of raft but that a member has an id, and reaches other nodes through
// a function.
//
// # Use
//
//	s, err := member.Open(fs, dir, self, nodes)    // the directory is locked
//	... serve control requests: Store.Control answers those that are this package's ...
//	id, err := s.Settle(ctx, call, log, prepare)   // returns when the node belongs to a cluster
//	err = s.Agree(lists...)                        // of the members of now, as far as they are known
//	... an Invited node: s.Join() when the first message of its group has come ...
//	... a node that is told that it was removed: s.Remove() ...
//
// A leader calls [Invite] before it proposes a new learner.
//
// # What holds
//
// A voter must never vote twice in a term, nor forget what it has acknowledged. So a
// node whose directory is gone must not vote as the member that it was, above all if it
// comes back with its old command line, and no two sets of nodes may think that they are
// the cluster that a command line names. Hence:
//
//  1. An incarnation belongs to one directory. It is durable before any answer has it,
//     and members are known by it: package wire refuses a peer whose incarnation is
//     another than its members' list says.
//  2. A node belongs to at most one cluster in an incarnation, but for proposals that
//     nobody can have acted on (see below).
//  3. A node that a founding makes Joined is one of a cluster whose identity is durable
//     at every member, in the incarnation that the cluster names.
//  4. A Joined node has had an entry log, and an Invited one has never answered a
//     message of its raft group.
//
// # Founding
//
// All nodes run the same code, which asks all others who they are and decides by their
// answers and the node's own mark, again and again (decide, a pure function). The node
// that --cluster names first is the founder. All lists must be equal, in their order too.
//
//  1. If all others answer that they are Empty, the founder draws ids, and makes its own
//     mark Proposed. The mark has the incarnations from the answers.
//  2. It sends the proposal to each node that does not have it. A node takes it if it
//     names this node in this incarnation, and this node's --cluster; it makes it durable
//     and then answers.
//  3. When all answer that they have this very proposal, the founder becomes Joined.
//  4. The others ask too. When anybody answers that it is Joined to the cluster that was
//     proposed, they become Joined.
//
// So 3 holds by the order of the steps. A crash at any point leaves each mark as it was
// before a step or after it, and what a node does next depends on nothing but marks.
//
// If the directory of a node is emptied while the cluster is being founded, the founder
// proposes another cluster, with the next round's number, once all answer. It replaces
// its own mark first. Since it has not been Joined to the cluster before, nobody was, and
// because it has replaced that one, nobody will be; so a node may take a proposal in place
// of an earlier one of the same founder in the same incarnation. The round's number keeps
// a request that was late from undoing that. If the founder's own directory is emptied,
// it cannot tell whether it had founded the cluster: nothing goes on until the operator
// has emptied the others, and the log says so.
//
// A node never founds a cluster if any other one answers that it belongs to one, or does
// not answer. It waits to be added.
//
// # Adding
//
// The leader asks the new node for its incarnation, draws an id, and sends both with the
// members of now. The node takes that if it is Empty, and its --cluster names the members,
// with or without itself; it is Invited, which is durable when it answers. Then
// the leader proposes it as a learner.
//
// If the leader ends before that, or the proposal comes to nothing, the next invitation has
// the same id: the node may run under it already, and learns of no other before it is
// started again. The id may even have been a member's that was removed before it heard
// anything of its group. That does no harm, because a node that is Invited has never
// answered under its id: it has given no vote and acknowledged no entry. What its group
// sends it begins with a snapshot behind the entry that has added it last (see package
// replica), so it never meets the entry that has removed it before. An id that has answered
// is never invited again: its node is Joined, or its directory was emptied.
//
// # The mark
//
// DIR/cluster is a text of three lines, each ending with a newline, at most 64 KiB:
//
//	trellis member 1            title and version of the format
//	{...}                       the Identity as JSON, exactly as encoding/json writes it
//	crc32c 00000000             CRC-32C of the bytes before this line, in hexadecimal
//
// Later versions keep the first and the last line. A mark is written to cluster.tmp,
// synced, renamed, and the directory is synced. What cannot be read as it was written is
// refused. A node that fails to write its mark changes nothing more and answers nothing.
//
// # Requests
//
// Control requests are JSON objects with a field "op":
//
//	{"op":"probe"}
//	{"op":"propose","identity":{...}}    the identity that the receiver is to have
//	{"op":"invite","identity":{...}}
//
// and the response to each is an [Answer]. All may be repeated.
//
// # Limits
//
// A name has at most [MaxName] bytes, an address [MaxAddr], a cluster [MaxMembers]
// members. A member's address does not change; it is removed and added again. Nodes
// can propose and invite, once for each empty directory; who they are is for the transport to say.
package member
