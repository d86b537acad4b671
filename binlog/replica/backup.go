package replica

import (
	"context"
	"fmt"
	"io"

	"trellis/binlog/replica/snapshot"
)

// Backup writes the stream of a snapshot of this node, as snapshot.Extract and Receive read
// it, with all entries up to index, and up to what the node had applied when Backup was
// called. It waits until the node has them. The node does not have to lead. If the snapshot
// cannot be taken, the error says why.
func (n *Node) Backup(ctx context.Context, index uint64, w io.Writer) (snapshot.Meta, error) {
	if err := n.freshSnapshot(ctx, max(index, n.applier.applied().Index)); err != nil {
		return snapshot.Meta{}, fmt.Errorf("backup: %w", err)
	}
	meta, path := n.store.hold()
	defer n.store.release(path)
	plain, err := n.plain(path, &meta)
	if err == nil {
		err = n.sendFrom(path, &meta, plain, n.pace(meta.Index, w))
	}
	if plain != nil {
		meta = *plain
	}
	return meta, err
}

// freshSnapshot waits until there is a snapshot with an entry, or until one that was begun
// meanwhile could not be taken.
func (n *Node) freshSnapshot(ctx context.Context, index uint64) error {
	begun := n.applier.begun()
	for n.store.current().Index < index {
		if err := n.applier.failedSince(begun); err != nil {
			return err
		}
		if n.applier.applied().Index >= index {
			n.applier.requestSnapshot()
		}
		if err := n.pause(ctx, freshTime); err != nil {
			return err
		}
	}
	return nil
}
