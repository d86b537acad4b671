package replica

import "trellis/binlog/replica/member"

// Meet tells who the members were as of an entry that this node has perhaps not applied,
// on the word of one of them. A node that was away while a member was added refuses that
// one, as it refuses all whom it does not know; and if it is the leader, or the others
// are gone, this node would never hear of the change. So who is refused may introduce
// itself. What the members do is believed only as raft believes it; this is about who
// may connect. A list that is older than what this node knows changes nothing.
func (n *Node) Meet(index uint64, members []member.Member) {
	if index > n.applier.seen().Index {
		n.inbox.call(func() { n.transport.SetPeers(members) })
	}
}
