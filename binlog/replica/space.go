package replica

import (
	"sync/atomic"
	"time"

	"trellis/binlog/replica/internal/planted"
)

// space looks whether the disk is nearly full, on a goroutine of its own, because a
// disk may take long to say so.
type space struct {
	node *Node
	low  atomic.Bool
	free atomic.Int64 // bytes; below zero while nobody knows
}

const (
	spaceTime = time.Second // between two looks

	// reserve is what is left for deletes, the log's own segments and raft, when puts are
	// refused.
	reserve = 256 << 20
)

func (s *space) run() {
	if s.node.opts.Free == nil {
		return
	}
	for {
		s.look()
		select {
		case <-s.node.stopped:
			return
		case <-time.After(spaceTime):
		}
	}
}

// look finds out whether the next snapshot, which will be about as long as the last one, and
// the reserve fit on the disk.
func (s *space) look() {
	free, err := s.node.opts.Free()
	if err != nil {
		s.node.opts.Log.Warn("nobody knows how much space is left", "dir", s.node.opts.Dir, "error", err)
		return
	}
	s.free.Store(free)
	low := free < s.node.store.current().Bytes+reserve
	if planted.Has(planted.EarlyAnswer) {
		low = false // the leader would refuse puts, and nothing would be answered early
	}
	if s.low.Swap(low) != low {
		s.node.opts.Log.Warn("space on the disk", "dir", s.node.opts.Dir, "free", free, "low", low)
	}
}

// checkSpace refuses puts unless a majority of the voters is alive and has free space: a
// commit would need a member whose disk is nearly full. A member that has not reported yet
// counts as having space. While no majority is alive nothing is committed anyway, and
// nothing changes here.
func (c *consensus) checkSpace() {
	if c.leadership == nil {
		return
	}
	c.fullDisks[uint64(c.node.opts.Self)] = c.node.space.low.Load()
	voters, alive, room := c.conf.GetVoters(), 0, 0
	for _, id := range voters {
		if !c.alive(id) {
			continue
		}
		alive++
		if !c.fullDisks[id] {
			room++
		}
	}
	if alive > len(voters)/2 {
		c.leadership.setLow(room <= len(voters)/2)
	}
}

func (l *Leadership) setLow(low bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spaceLow = low
}
