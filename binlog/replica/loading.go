package replica

import "sync/atomic"

// A node can lead when its queue has been made: from the snapshot, and from the entries that
// were committed when it began. That may take long after its log is complete, which is all
// that raft sees of it. So members tell each other how much is left.

// loading is how far the making of a standby is. The applier writes it, and any goroutine reads.
type loading struct {
	total     atomic.Int64 // bytes of the snapshot and of the entries behind it that the log had
	readBytes atomic.Int64 // bytes of both that were read
}

func (l *loading) begin(total int64) {
	l.readBytes.Store(0)
	l.total.Store(total)
}

// left is how many percent are to be read, at least 1.
func (l *loading) left() uint64 {
	total := max(l.total.Load(), 1)
	return uint64(max(100*(total-l.readBytes.Load())/total, 1))
}

// toLoad is how many percent are left of what this node has to load before it can lead; 0 if
// it can.
func (c *consensus) toLoad() uint64 {
	if c.loaded() {
		return 0
	}
	return c.node.applier.loading.left()
}

// loaded reports whether the queue has been made.
func (c *consensus) loaded() bool {
	return c.pendingStandbys == 0 && c.rn.BasicStatus().Applied >= c.floor
}
