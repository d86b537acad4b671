package replica

import (
	"context"
	"errors"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
)

// incoming is a snapshot whose files have come from the leader. The goroutine that has
// received them makes it, and waits for its end; then it is the raft goroutine's.
type incoming struct {
	message *raftpb.Message
	meta    snapshot.Meta
	path    string
	state   incomingState
	done    chan error // gets the end
}

// incomingState is how far an incoming snapshot is. States follow each other in this order,
// and the snapshot may end in any of them.
type incomingState int

const (
	incomingWaits      incomingState = iota // for the applier to end a walk of its own, and begin no other
	incomingReady                           // for raft, as soon as all entries before it are applied
	incomingStepped                         // raft has the message
	incomingInstalling                      // raft wants it: the writer installs it, then the applier
)

// Snapshot takes a snapshot that a leader sends: the message, and the stream of
// package snapshot. tell tells the leader which bodies this node has, if the message asks for that. It returns when
// the snapshot is installed, or is not needed.
func (n *Node) Snapshot(m *raftpb.Message, r io.Reader, tell func(has []byte) error) (err error) {
	of := m.GetSnapshot().GetMetadata()
	var bodies *spill.Incoming // nil if all of them come
	if len(m.GetContext()) > 0 {
		if bodies, err = n.bodiesHere(); err == nil {
			err = tell(bodies.IDs.Encode())
		}
		if err != nil {
			n.endBodies(bodies)
			return err
		}
	}
	meta, path, err := n.receive(of, r, bodies)
	if err != nil {
		n.endBodies(bodies)
		return err
	}
	m.Snapshot = raftSnapshot(&meta) // the members, too, are those of the files
	s := &incoming{message: m, meta: meta, path: path, done: make(chan error, 1)}
	n.inbox.call(func() { n.consensus.arrive(s) })
	select {
	case err := <-s.done:
		n.removeUnused(path, bodies)
		return err
	case <-n.stopped:
		return ErrClosed
	}
}

// receive reads the stream of a snapshot.
func (n *Node) receive(
	of *raftpb.SnapshotMetadata, r io.Reader, bodies *spill.Incoming,
) (meta snapshot.Meta, path string, err error) {
	if bodies == nil {
		meta, path, err = snapshot.Receive(n.opts.FS, n.store.dir, of.GetIndex(), of.GetTerm(), r)
	} else {
		meta, path, err = snapshot.ReceiveRest(n.opts.FS, n.store.dir, of.GetIndex(), of.GetTerm(), r, bodies)
	}
	if err != nil {
		return meta, "", err
	}
	if bodies != nil {
		n.opts.Log.Info("a snapshot has come, but for the bodies that were here",
			"entry", meta.Index, "bodies", bodies.Came, "here", bodies.Used)
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // up to the sender's word that this was all
		n.removeUnused(path, bodies)
		return meta, "", err
	}
	return meta, path, nil
}

// removeUnused removes a snapshot that was received, unless it is the current one. While this
// node takes one of its own, which may be of the same entry, it stays for store.setCurrent to
// remove, but for one with bodies here: the end of that is waited for, since it may make this one current, and after
// that nobody holds them.
func (n *Node) removeUnused(path string, bodies *spill.Incoming) {
	for !n.applier.walkLock.TryLock() {
		if bodies == nil || n.pause(context.Background(), freshTime) != nil {
			return
		}
	}
	defer n.applier.walkLock.Unlock()
	if err := n.store.remove(path); err != nil {
		n.opts.Log.Warn("a snapshot that was not wanted stays", "dir", path, "error", err)
		return
	}
	if bodies != nil {
		bodies.End()
		n.bodies.remove()
	}
}

// arrive takes a snapshot that has come. It waits until nothing is being applied, so
// that an entry before it cannot change the members after it, and until this node takes
// no snapshot of its own.
func (c *consensus) arrive(s *incoming) {
	if old := c.incoming; old != nil {
		if old.state >= incomingStepped {
			s.done <- errors.New("another snapshot is being installed")
			return
		}
		c.endSnapshot(errors.New("another snapshot has come"))
	}
	c.incoming = s
	a := c.node.applier
	a.post(func() error {
		a.voidSnapshot()
		a.snapshotsOff = true
		c.node.inbox.call(func() { s.state = incomingReady })
		return nil
	})
}

// stepSnapshot has raft see a snapshot that has come.
func (c *consensus) stepSnapshot() {
	s := c.incoming
	if s == nil || s.state != incomingReady || c.pendingStandbys > 0 || c.rn.BasicStatus().Applied < c.applyIndex {
		return
	}
	s.state = incomingStepped
	c.node.clock.hear(s.message.GetTerm())
	c.lastHeard[s.message.GetFrom()] = c.tick
	if err := c.rn.Step(s.message); err != nil {
		c.endSnapshot(err)
	}
}

// installSnapshot takes raft's wish to have the snapshot installed that it has seen.
func (c *consensus) installSnapshot(m *raftpb.SnapshotMetadata) *incoming {
	c.incoming.state = incomingInstalling
	c.pendingStandbys++
	c.lastIndex, c.applyIndex, c.conf = m.GetIndex(), m.GetIndex(), m.GetConfState()
	return c.incoming
}

// settleSnapshot ends a snapshot that raft does not want.
func (c *consensus) settleSnapshot() {
	if s := c.incoming; s != nil && s.state == incomingStepped {
		c.endSnapshot(nil)
	}
}

// endSnapshot has Node.Snapshot return for the snapshot that has come, if there is one.
func (c *consensus) endSnapshot(err error) {
	s := c.incoming
	if s == nil {
		return
	}
	c.incoming = nil
	s.done <- err
	if s.state != incomingInstalling { // else applier.install does it
		a := c.node.applier
		a.post(func() error {
			a.snapshotsOff = false
			return nil
		})
	}
}
