package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/internal/planted"
)

// The raft goroutine begins a leadership when raft has won an election, and ends it when raft
// shows any other term or role. It compares after every step of raft's, and before it hands
// on what raft wants done, so that the applier hears that a leadership has ended before it
// gets an entry of the term that follows.

// observe compares the leadership with what raft says.
func (c *consensus) observe() {
	st := c.rn.BasicStatus()
	leads := st.RaftState == raft.StateLeader
	if c.leadership != nil && (!leads || st.GetTerm() != c.leadership.term) {
		c.deposed(c.whyLost(st))
	}
	c.checkTransfer(st)
	if c.leadership == nil && leads {
		c.lead(st.GetTerm())
	}
	if p := c.node.status.Load(); p != nil && st.Lead != raft.None && (p.lead != st.Lead || p.term != st.GetTerm()) {
		c.publish() // clients of this member wait for a leader
	}
}

// lead begins a leadership: it proposes the entry that begins it. The applier goes on
// when that is committed.
func (c *consensus) lead(term uint64) {
	n := c.node
	c.leadership = newLeadership(term, c.last, n)
	n.leadership.Store(c.leadership)
	c.leadership.began = c.tick
	c.elections++
	c.raisedVersion = 0
	clear(c.reports) // of an earlier leadership: who led since then may make its queue anew
	// What the leaders before have left in the log may change the members, as raft assumes too.
	c.changeIndex = c.rn.Status().Progress[uint64(n.opts.Self)].Match
	c.beginIndex = c.changeIndex + 2 // behind raft's own
	last := n.applier.applied()
	stamp := n.clock.lead(last.Stamp) + n.opts.Clock.Mono()
	c.publish()
	n.opts.Log.Info("this node was elected", "term", term)
	for _, batch := range planted.Kept() {
		n.opts.Log.Warn("a batch is proposed again", "term", term)
		_ = c.rn.Propose(batch) // a mistake need not succeed
	}
	c.propose(c.leadership.begin(stamp, last.Highest))
}

// whyLost tells what has ended the leadership, from what raft says now.
func (c *consensus) whyLost(st raft.BasicStatus) string {
	switch {
	case c.transfer != nil && c.transfer.leadership == c.leadership:
		return "it was handed over"
	case st.GetTerm() == c.leadership.term:
		return "too few members answer"
	default:
		return fmt.Sprintf("term %d has begun", st.GetTerm())
	}
}

// deposed ends the leadership, and says why. The applier gives up the queue.
func (c *consensus) deposed(why string) {
	l := c.leadership
	c.leadership = nil
	c.depositions++
	c.publish() // before the leadership is gone: Status must not take this node for the leader then
	c.node.leadership.Store(nil)
	c.node.leader.tell() // who was told by publish may have looked before
	c.last = l.end()
	clear(c.notices)
	clear(c.commitSent)
	c.pendingStandbys++
	c.node.opts.Log.Info("this node does not lead any more", "term", l.term, "why", why)
	c.node.applier.post(func() error {
		defer c.node.inbox.call(c.standbyMade)
		return c.node.applier.retire(l)
	})
}

// standbyMade notes the end of the making of a standby: see quiet.
func (c *consensus) standbyMade() { c.pendingStandbys-- }

// propose has raft replicate an entry. Nothing is ever proposed twice: an error ends the
// leadership, and what becomes of the batch is seen in the log.
func (c *consensus) propose(data []byte) {
	c.proposalTick = c.tick
	if err := c.rn.Propose(data); err != nil {
		c.stepDown("raft has refused an entry: " + err.Error())
	}
}

// pump sends what waits in the leadership, as far as that may be on its way at a time.
func (c *consensus) pump() {
	for c.leadership != nil && c.leadership.serving.Load() {
		st := c.rn.BasicStatus()
		if st.RaftState != raft.StateLeader || st.GetTerm() != c.leadership.term || st.LeadTransferee != 0 {
			return // observe comes next; raft takes nothing during a transfer
		}
		data, round := c.leadership.next()
		switch {
		case data != nil:
			c.propose(data)
		case round != 0:
			c.rounds++
			c.rn.ReadIndex(roundContext(c.leadership.term, round))
		default:
			return
		}
	}
}

// stepDown makes raft a follower. Raft knows no such wish: a leader that hears its
// followers stays one. But every node may raise its own term at any time, as a candidate
// does, and a leader that does so is a follower in a term without a leader. A message
// of the next term from this node itself has that effect.
func (c *consensus) stepDown(why string) {
	c.backoff.begin(c.tick)
	term := c.rn.BasicStatus().GetTerm()
	c.node.opts.Log.Warn("this node steps down", "term", term, "why", why)
	self := uint64(c.node.opts.Self)
	next := term + 1
	if err := c.rn.Step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: &self, To: &self, Term: &next}); err != nil {
		c.node.fail(err)
	}
	c.observe()
}

// Resign ends the leadership of this node, if it leads, because the queue cannot do its work:
// a loop of the server, or a shard of the engine, does not answer. Another node is
// elected, if there is one.
func (n *Node) Resign(why string) {
	n.inbox.call(func() {
		if n.consensus.leadership != nil {
			n.consensus.stepDown(why)
		}
	})
}
