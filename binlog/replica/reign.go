package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/internal/planted"
)

// The raft goroutine takes office when raft has won an election, and loses it when raft
// shows any other term or role. It looks after every step that it has raft take, and
// before it hands on what raft wants done, so that the applier hears of a lost office
// before it gets an entry of the term that follows.

// observe compares the office with what raft says.
func (c *consensus) observe() {
	st := c.rn.BasicStatus()
	leads := st.RaftState == raft.StateLeader
	if c.office != nil && (!leads || st.GetTerm() != c.office.reign) {
		c.lose(c.whyLost(st))
	}
	c.watchTransfer(st)
	if c.office == nil && leads {
		c.take(st.GetTerm())
	}
}

// take begins an office: it proposes the entry that begins the reign. The applier goes on
// when that is committed.
func (c *consensus) take(term uint64) {
	n := c.node
	c.office = newOffice(term, c.last, n)
	n.office.Store(c.office)
	c.office.began = c.tick
	c.elections++
	c.raised = 0
	// What the leaders before have left in the log may change the members, as raft assumes too.
	c.changed = c.rn.Status().Progress[uint64(n.opts.Self)].Match
	last := n.applier.seen()
	stamp := n.clock.lead(last.Stamp) + n.opts.Clock.Mono()
	c.publish()
	n.opts.Log.Info("this node was elected", "term", term)
	for _, batch := range planted.Kept() {
		n.opts.Log.Warn("a batch is proposed again", "term", term)
		_ = c.rn.Propose(batch) // a mistake need not succeed
	}
	c.propose(c.office.begin(stamp, last.Highest))
}

// whyLost tells what has ended the office, from what raft says now.
func (c *consensus) whyLost(st raft.BasicStatus) string {
	switch {
	case c.transfer != nil && c.transfer.office == c.office:
		return "it was handed over"
	case st.GetTerm() == c.office.reign:
		return "too few members answer"
	default:
		return fmt.Sprintf("term %d has begun", st.GetTerm())
	}
}

// lose ends the office, and says why. The applier gives up the queue.
func (c *consensus) lose(why string) {
	o := c.office
	c.office = nil
	c.depositions++
	c.publish() // before the office is gone: Status must not take this node for the leader then
	c.node.office.Store(nil)
	c.last = o.end()
	clear(c.kept)
	clear(c.told)
	c.feeding++
	c.node.opts.Log.Info("this node has lost its office", "term", o.reign, "why", why)
	c.node.applier.post(func() error {
		defer c.node.inbox.call(c.fed)
		return c.node.applier.retire(o)
	})
}

// fed notes that a standby that was being made is as far as it can be: see quiet.
func (c *consensus) fed() { c.feeding-- }

// propose has raft replicate an entry. Nothing is ever proposed twice: an error ends the
// office, and what becomes of the batch is seen in the log.
func (c *consensus) propose(data []byte) {
	c.proposed = c.tick
	if err := c.rn.Propose(data); err != nil {
		c.giveUp("raft has refused an entry: " + err.Error())
	}
}

// pump sends what waits in the office, as far as that may be on its way at a time.
func (c *consensus) pump() {
	for c.office != nil && c.office.serving.Load() {
		st := c.rn.BasicStatus()
		if st.RaftState != raft.StateLeader || st.GetTerm() != c.office.reign || st.LeadTransferee != 0 {
			return // observe comes next; raft takes nothing during a transfer
		}
		data, round := c.office.next()
		switch {
		case data != nil:
			c.propose(data)
		case round != 0:
			c.rounds++
			c.rn.ReadIndex(roundContext(c.office.reign, round))
		default:
			return
		}
	}
}

// giveUp has raft give up its office. Raft knows no such wish: a leader that hears its
// followers stays one. But every node may raise its own term at any time, as a candidate
// does, and a leader that does so is a follower in a term without a leader. A message
// of the next term from this node itself has that effect.
func (c *consensus) giveUp(why string) {
	c.retreat.begin(c.tick)
	term := c.rn.BasicStatus().GetTerm()
	c.node.opts.Log.Warn("this node gives up its office", "term", term, "why", why)
	self := uint64(c.node.opts.Self)
	next := term + 1
	if err := c.rn.Step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: &self, To: &self, Term: &next}); err != nil {
		c.node.fail(err)
	}
	c.observe()
}

// Resign gives up the office, if this node has one, because the queue cannot do its work:
// a loop of the server, or a shard of the engine, does not answer. Another node is
// elected, if there is one.
func (n *Node) Resign(why string) {
	n.inbox.call(func() {
		if n.consensus.office != nil {
			n.consensus.giveUp(why)
		}
	})
}
