package replica

import (
	"fmt"
	"time"
)

// watchRaft watches the raft goroutine, which waits for nothing but reads of old entries.
// While such a read hangs the node sends no heartbeats, so that another one is elected:
// this node's clients are told so by the end of their connections. A node whose disk does
// not answer for long ends. Time is counted by ticks that this goroutine has seen, so that
// a process that was stopped for a while is not taken for one that hangs.
func (n *Node) watchRaft() {
	ticker := time.NewTicker(Tick)
	defer ticker.Stop()
	turns, still := uint64(0), 0
	for {
		select {
		case <-n.stopped:
			return
		case <-ticker.C:
		}
		if now := n.consensus.turns.Load(); now != turns {
			turns, still = now, 0
			continue
		}
		n.inbox.wake()
		switch still++; still {
		case commitTimeoutTicks:
			n.abandon()
		case hangTicks:
			n.fail(fmt.Errorf("%w: a read of old entries in %s has taken %v; look at the disk", ErrHung, n.opts.Dir, hangTicks*Tick))
		}
	}
}

// abandon ends the leadership without the raft goroutine, which gives it up when it can.
func (n *Node) abandon() {
	l := n.leadership.Load()
	if l == nil {
		return
	}
	n.opts.Log.Warn("the disk does not answer: the clients are left to another leader", "term", l.term)
	l.end()
	n.applier.post(func() error { return n.applier.retire(l) })
}

// retreat is the time for which a node that has stepped down does not campaign: the
// reason may well be there still, and another node is better. It doubles each time.
type retreat struct {
	until uint64 // tick
	next  uint64 // ticks
}

func (r *retreat) begin(now uint64) {
	r.next = min(max(r.next*2, backoffTicks), maxBackoff)
	r.until = now + r.next
}

// checkProgress ends a leadership in which nothing moves: heartbeats, which need no
// disk, would keep such a leader for ever.
func (c *consensus) checkProgress() {
	l := c.leadership
	switch {
	case l == nil:
	case l.over.Load():
		c.stepDown("a read of old entries has taken too long")
	case !l.serving.Load():
		if c.tick-l.began > commitTimeoutTicks {
			c.stepDown("its first entry was not committed and applied in time")
		}
	case c.tick-l.oldest(c.tick) > commitTimeoutTicks:
		c.stepDown("nothing is committed")
	case c.tick-l.began > maxBackoff:
		c.retreat = retreat{} // all is well
	}
}

// A store may take that many ticks, and one more for each hangBytes.
const (
	hangTicks = 600
	hangBytes = 256 << 10
)

// checkStore ends a node whose disk does not answer: nobody can say any more what is on
// it, and a vote that waits for it helps nobody.
func (c *consensus) checkStore() {
	began, bytes := c.node.writer.storing()
	if began == 0 {
		c.writing = 0
		return
	}
	if c.writing != began {
		c.writing, c.writingSince = began, c.tick
	}
	if took := c.tick - c.writingSince; took > hangTicks+uint64(bytes/hangBytes) {
		c.node.fail(fmt.Errorf("%w: a write of %d bytes to %s has taken %v; look at the disk", ErrHung, bytes, c.node.opts.Dir, time.Duration(took)*Tick))
	}
}

// passTime lets the followers of an idle leader know what time it is.
func (c *consensus) passTime() {
	l := c.leadership
	if l != nil && l.serving.Load() && c.tick-c.proposed >= stampTicks && !c.alone() && c.rn.BasicStatus().LeadTransferee == 0 {
		l.stamp()
	}
}
