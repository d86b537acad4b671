package replica

import (
	"fmt"
	"time"
)

// watchRaft notices when the raft goroutine hangs in a read of old entries, the only thing
// that it waits for. The node sends no heartbeats then, another one is elected, and this one
// resets its clients' connections. After hangTicks the node ends. Ticks are counted, not
// time, so that a process that was stopped for a while is not taken for one that hangs.
func (n *Node) watchRaft() {
	ticker := time.NewTicker(Tick)
	defer ticker.Stop()
	turns, stalled := uint64(0), 0
	for {
		select {
		case <-n.stopped:
			return
		case <-ticker.C:
		}
		if now := n.consensus.turns.Load(); now != turns {
			turns, stalled = now, 0
			continue
		}
		n.inbox.wake()
		switch stalled++; stalled {
		case commitTimeoutTicks:
			n.abandon()
		case hangTicks:
			n.fail(fmt.Errorf("%w: a read of old entries in %s has taken %v; look at the disk",
				ErrHung, n.opts.Dir, hangTicks*Tick))
		}
	}
}

// abandon ends the leadership in place of the raft goroutine, which steps down when it can.
func (n *Node) abandon() {
	l := n.leadership.Load()
	if l == nil {
		return
	}
	n.opts.Log.Warn("the disk does not answer: the clients are left to another leader", "term", l.term)
	l.end()
	n.applier.post(func() error { return n.applier.retire(l) })
}

// backoff is how long a node that has stepped down does not campaign, because the reason may
// last and another node is better. It doubles each time.
type backoff struct {
	until uint64 // tick
	next  uint64 // ticks
}

func (r *backoff) begin(now uint64) {
	r.next = min(max(r.next*2, backoffTicks), maxBackoff)
	r.until = now + r.next
}

// checkProgress ends a leadership in which nothing is committed: its heartbeats, which need
// no disk, would keep it for ever. It waits while nobody could do better.
func (c *consensus) checkProgress() {
	l := c.leadership
	if l == nil {
		return
	}
	if c.mostDisksStall() {
		c.excusedTick = c.tick
	}
	switch {
	case l.over.Load():
		c.stepDown("a read of old entries has taken too long")
	case !l.serving.Load():
		if c.late(l.began) {
			c.stepDown("its first entry was not committed and applied in time")
		}
	case c.late(l.oldest(c.tick)):
		c.stepDown("nothing is committed")
	case c.tick-l.began > steadyTicks:
		c.backoff = backoff{} // all is well
	}
}

// late reports whether what waits since a tick should have been committed by now.
func (c *consensus) late(since uint64) bool {
	return c.tick-max(since, c.excusedTick) > commitTimeoutTicks
}

// arrivalBytes is how much has to arrive at a follower to count: in 2 s more than the messages
// without entries that are sent with each tick.
const arrivalBytes = 64 << 10

// noteArrival excuses the leader while entries arrive at a follower, if its own disk does not
// stall. A large one may take long on a slow link, and nobody else could bring it there faster.
func (c *consensus) noteArrival(from uint64) {
	arrived, noted := c.reports[from].arrived, c.arrivals[from]
	if arrived >= noted && arrived-noted < arrivalBytes {
		return
	}
	c.arrivals[from] = arrived
	if arrived > noted && c.storing() < stallTicks {
		c.excusedTick = c.tick
	}
}

// mostDisksStall reports whether so many voters wait for their disks that those who do not are
// no majority: nobody else could be elected, or commit anything. They may share their storage.
// Were the leader to step down, it would have to make its queue anew, and nobody would be
// served for as long as that takes after the storage goes on.
func (c *consensus) mostDisksStall() bool {
	c.reports[uint64(c.node.opts.Self)] = c.report()
	voters, stalled := c.conf.GetVoters(), 0
	for _, id := range voters {
		if c.alive(id) && c.reports[id].storing >= stallTicks {
			stalled++
		}
	}
	return len(voters)-stalled <= len(voters)/2
}

// A store may take that many ticks, and one more for each hangBytes.
const (
	hangTicks = 600
	hangBytes = 256 << 10
)

// storing is for how many ticks the store that is under way has been seen.
func (c *consensus) storing() uint64 {
	if c.storeNumber == 0 {
		return 0
	}
	return c.tick - c.storeSeen
}

// checkStore ends a node whose disk does not answer: nobody can say any more what is on
// it, and a vote that waits for it helps nobody.
func (c *consensus) checkStore() {
	began, bytes := c.node.writer.storing()
	if began == 0 {
		c.storeNumber = 0
		return
	}
	if c.storeNumber != began {
		c.storeNumber, c.storeSeen = began, c.tick
	}
	if took := c.storing(); took > hangTicks+uint64(bytes/hangBytes) {
		c.node.fail(fmt.Errorf("%w: a write of %d bytes to %s has taken %v; look at the disk",
			ErrHung, bytes, c.node.opts.Dir, time.Duration(took)*Tick))
	}
}

// passTime lets the followers of an idle leader know what time it is.
func (c *consensus) passTime() {
	l := c.leadership
	if l != nil && l.serving.Load() && c.tick-c.proposalTick >= stampTicks && !c.alone() &&
		c.rn.BasicStatus().LeadTransferee == 0 {
		l.stamp()
	}
}
