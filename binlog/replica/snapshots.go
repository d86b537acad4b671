package replica

import (
	"io"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
)

// retain drops the log up to the current snapshot. Entries that a live follower still
// lacks stay, because it would need a snapshot otherwise, until the log is three times as
// long as it has to be.
func (c *consensus) retain() {
	if c.trimIndex == 0 || c.tick%4 != 0 {
		return
	}
	first, err := c.node.log.FirstIndex()
	if err != nil || first > c.trimIndex {
		c.trimIndex = 0
		return
	}
	index := c.trimIndex
	if c.node.log.Size() < 3*max(c.node.opts.SnapshotBytes, c.node.store.current().Bytes) {
		for id, pr := range c.rn.Status().Progress {
			if id != uint64(c.node.opts.Self) && c.tick-c.lastHeard[id] < 2*electionTicks {
				index = min(index, max(pr.Match, pr.PendingSnapshot))
			}
		}
	}
	if index < first {
		return
	}
	if term, err := c.node.log.Term(index); err == nil {
		c.node.writer.trimTo(entrylog.EntryID{Index: index, Term: term})
	}
}

// offer answers raft's wish for a snapshot to send, on the raft goroutine.
func (n *Node) offer() (*raftpb.Snapshot, error) {
	if n.consensus.snapshotLacks() {
		n.applier.requestSnapshot()
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	meta := n.store.current()
	return raftSnapshot(&meta), nil
}

// sendSnapshot sends the snapshot that raft wants sent.
func (n *Node) sendSnapshot(m *raftpb.Message) {
	n.transport.SendSnapshot(m, func(w io.Writer) error {
		of := m.GetSnapshot().GetMetadata()
		return n.store.send(of, n.pace(of.GetIndex(), w))
	})
}

// SnapshotSent tells the end of a snapshot's transfer, good or bad.
func (n *Node) SnapshotSent(id member.ID, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	n.inbox.call(func() { n.consensus.rn.ReportSnapshot(uint64(id), status) })
}
