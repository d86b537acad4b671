package replica

import (
	"errors"
	"io"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
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
	of := m.GetSnapshot().GetMetadata()
	meta, path := n.store.hold()
	send := func(plain *snapshot.Meta) {
		n.transport.SendSnapshot(m, func(w io.Writer) error {
			meta, path := n.store.hold()
			defer n.store.release(path)
			if err := isCurrent(&meta, of); err != nil {
				return err
			}
			return n.sendFrom(path, &meta, plain, n.pace(of.GetIndex(), w))
		})
	}
	if len(meta.Files) == 0 {
		n.store.release(path)
		send(nil)
		return
	}
	n.disk.Go(func() { // the receiver would not wait for so long
		defer n.store.release(path)
		plain, err := n.plain(path, &meta)
		if err == nil {
			send(plain)
		} else if !n.ended() {
			n.opts.Log.Warn("a snapshot was not sent", "peer", member.ID(m.GetTo()), "error", err)
			n.SnapshotSent(member.ID(m.GetTo()), false)
		}
	})
}

// sendFrom sends a snapshot that is held; plain is what plain has told of it.
func (n *Node) sendFrom(path string, meta, plain *snapshot.Meta, w io.Writer) (err error) {
	if len(meta.Files) == 0 {
		return snapshot.Send(n.opts.FS, path, w)
	}
	r := n.bodies.reader(meta.Files)
	defer func() { err = errors.Join(err, r.Close()) }()
	return snapshot.SendPlain(n.opts.FS, path, plain, r, w)
}

// plain is the description that a snapshot, which is held, has when it is sent; nil if that is its own. All of it is
// read if it has bodies in body files.
func (n *Node) plain(path string, meta *snapshot.Meta) (*snapshot.Meta, error) {
	if len(meta.Files) == 0 {
		return nil, nil
	}
	r := n.bodies.reader(meta.Files)
	m, err := snapshot.Plain(n.opts.FS, path, r)
	return &m, errors.Join(err, r.Close())
}

// SnapshotSent tells the end of a snapshot's transfer, good or bad.
func (n *Node) SnapshotSent(id member.ID, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	n.inbox.call(func() { n.consensus.rn.ReportSnapshot(uint64(id), status) })
}
