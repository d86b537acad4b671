package replica

import (
	"errors"
	"io"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
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

// askBodies is the context of a MsgSnap whose receiver is to say first which bodies it has.
const askBodies = "bodies"

// sendSnapshot sends the snapshot that raft wants sent to a member that has told r of itself, if it has.
func (n *Node) sendSnapshot(m *raftpb.Message, r report, told bool) {
	to := member.ID(m.GetTo())
	switch spilled := len(n.store.current().Files) > 0; {
	case !spilled:
		n.stream(m, nil)
	case !told: // raft wants it again when the member has
		n.SnapshotSent(to, false)
	case r.bodies:
		m.Context = []byte(askBodies)
		n.stream(m, nil)
	default:
		n.disk.Go(func() { // the receiver would not wait for so long
			meta, path := n.store.hold()
			defer n.store.release(path)
			plain, err := n.plain(path, &meta)
			if err == nil {
				n.stream(m, plain)
			} else if !n.ended() {
				n.opts.Log.Warn("a snapshot was not sent", "peer", to, "error", err)
				n.SnapshotSent(to, false)
			}
		})
	}
}

// stream sends the current snapshot, if it is that of the message. plain is what plain has told of it.
func (n *Node) stream(m *raftpb.Message, plain *snapshot.Meta) {
	of := m.GetSnapshot().GetMetadata()
	n.transport.SendSnapshot(m, func(w io.Writer, told func() ([]byte, error)) error {
		meta, path := n.store.hold()
		defer n.store.release(path)
		if err := isCurrent(&meta, of); err != nil {
			return err
		}
		if len(m.GetContext()) == 0 {
			return n.sendFrom(path, &meta, plain, n.pace(of.GetIndex(), w))
		}
		list, err := told()
		if err != nil {
			return err
		}
		has, err := spill.DecodeIDs(list)
		if err != nil {
			return err
		}
		r := n.bodies.reader(meta.Files)
		err = snapshot.SendRest(n.opts.FS, path, r, &has, n.pace(of.GetIndex(), w))
		return errors.Join(err, r.Close())
	})
}

// sendFrom sends a snapshot that is held, with all bodies; plain is what plain has told of it.
func (n *Node) sendFrom(path string, meta, plain *snapshot.Meta, w io.Writer) (err error) {
	if len(meta.Files) == 0 {
		return snapshot.Send(n.opts.FS, path, w)
	}
	r := n.bodies.reader(meta.Files)
	defer func() { err = errors.Join(err, r.Close()) }()
	return snapshot.SendPlain(n.opts.FS, path, plain, r, w)
}

// plain is the description that a snapshot, which is held, has when it is sent with all bodies; nil if that is its own.
// All of it is read if it has bodies in body files.
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
