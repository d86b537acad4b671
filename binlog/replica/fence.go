package replica

import (
	"context"
	"time"
)

// fencePause is between two looks at what is committed.
const fencePause = time.Millisecond

// Fence returns the index of an entry: what was executed before the call is in entries up to that one, or in none and
// never will be. executed reports whether that may be any of what was executed in the leadership; otherwise it waits
// for no commit. A member that has applied the entry knows all of it, and hears at once that it is committed. An error
// wraps ErrNotLeader, unless ctx has ended.
func (n *Node) Fence(ctx context.Context, l *Leadership, executed bool) (uint64, error) {
	if executed {
		if err := n.executedCommitted(ctx, l); err != nil {
			return 0, err
		}
	}
	var index uint64
	err := n.ask(ctx, func(c *consensus) (err error) {
		index, err = c.fence(l)
		return err
	})
	if err != nil {
		return 0, err // without a look at index, which may yet be set
	}
	return index, nil
}

// executedCommitted waits until all is committed that was executed in a leadership.
func (n *Node) executedCommitted(ctx context.Context, l *Leadership) error {
	pos := l.Barrier()
	l.Flush()
	for l.Committed() < pos {
		if l.over.Load() {
			return ErrNotLeader
		}
		if err := n.pause(ctx, fencePause); err != nil {
			return err
		}
	}
	return nil
}

// fence is Fence when all that matters is committed.
func (c *consensus) fence(l *Leadership) (index uint64, err error) {
	if c.leadership != l || l.over.Load() {
		return 0, ErrNotLeader
	}
	c.sendNotices()
	return c.rn.BasicStatus().GetCommit(), nil
}

// Term is that of raft in which the node leads.
func (l *Leadership) Term() uint64 { return l.term }
