package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// A member whose directory is a copy of an earlier one, or whose machine was rolled back, has
// forgotten what it has acknowledged, and perhaps a vote. Raft would count with both. Nothing in
// the directory tells this, but the leader knows, as long as it leads, up to where the
// member has acknowledged the log. It says so with each heartbeat, in a field that raft does not
// look at there.

// remind writes into a heartbeat up to where the member has acknowledged the log, to a tick.
func (c *consensus) remind(m *raftpb.Message) {
	if p := c.node.status.Load(); p != nil && p.term == m.GetTerm() && p.match != nil {
		match := p.match[m.GetTo()]
		m.Index = &match
	}
}

// forgot ends a node that lacks what it has acknowledged to the leader of its term.
func (c *consensus) forgot(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgHeartbeat || m.GetTerm() < c.rn.BasicStatus().GetTerm() {
		return false
	}
	acknowledged := max(m.GetIndex(), m.GetCommit())
	if acknowledged <= c.lastIndex {
		return false
	}
	c.node.fail(fmt.Errorf("%w (the log ends with entry %d, and %d was acknowledged)",
		ErrForgot, c.lastIndex, acknowledged))
	return true
}
