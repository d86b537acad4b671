package replica

import (
	"context"
	"io"
	"time"

	"trellis/binlog/replica/snapshot"
)

// Backup makes a copy of the queue in a directory that exists: a snapshot of this node
// that includes all that it had applied when Backup was called. It returns the path of
// the copy, which a server without a cluster can open with -b. The node does not have to
// lead. An error leaves nothing.
func (n *Node) Backup(ctx context.Context, dir string) (path string, err error) {
	if err := n.freshSnapshot(ctx); err != nil {
		return "", err
	}
	meta, from := n.store.hold()
	defer n.store.release(from)
	r, w := io.Pipe()
	go func() { w.CloseWithError(snapshot.Send(n.opts.FS, from, w)) }()
	_, path, err = snapshot.Receive(n.opts.FS, dir, meta.Index, meta.Term, r)
	r.CloseWithError(err) // the sender ends too
	return path, err
}

// freshSnapshot waits until there is a snapshot of all that is applied at the call.
func (n *Node) freshSnapshot(ctx context.Context) error {
	index := n.applier.seen().Index
	for n.store.current().Index < index {
		n.applier.post(func() error {
			n.applier.wanted = true
			n.applier.considerSnapshot()
			return nil
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.stopped:
			return ErrClosed
		case <-time.After(freshTime):
		}
	}
	return nil
}

// freshTime is between two looks for a new snapshot.
const freshTime = 20 * time.Millisecond
