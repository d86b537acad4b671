package replica

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
)

// consensus is the raft goroutine and what it owns. It waits for its inbox, for the
// clock, and for reads of entries that are not in memory (see watchRaft).
type consensus struct {
	node *Node
	rn   *raft.RawNode

	leadership *Leadership // of the term that this node leads in; nil if it does not lead
	last       journal.Pos // of the last unit of the last leadership

	tick         uint64
	lastHeard    map[uint64]uint64 // tick of the last message of a member
	proposalTick uint64            // tick of the last proposal
	excusedTick  uint64            // the last tick in which it was right that nothing was committed
	arrivals     map[uint64]uint64 // bytes that had arrived at a member when it was last noted
	backoff      backoff
	reports      map[uint64]report // the last one of each member
	// commit index of the last MsgApp to a follower, of this leadership or the last
	commitSent    map[uint64]uint64
	notices       map[uint64]*raftpb.Message // MsgApps with news of a commit, for the next tick; see postpone
	raisedVersion uint32                     // the version that this leadership has allowed; 0 if none

	floor           uint64            // what was committed at the start; the node does not campaign before it is applied
	pendingStandbys int               // standbys that are being made; the node does not campaign meanwhile
	lastIndex       uint64            // index of the last entry that the writer was given
	applyIndex      uint64            // index of the last entry that the applier was given
	lag             int64             // bytes of entries that are stored, or soon will be, and not applied
	trimIndex       uint64            // the log may begin behind that entry, once no follower needs more
	transfer        *transfer         // nil if there is none
	conf            *raftpb.ConfState // as last applied
	changeIndex     uint64            // index of the last entry that may change the members, applied or not
	beginIndex      uint64            // index of the last entry that begins a leadership of this node's
	addIndex        uint64            // index of the last entry that was applied since the start and has added a member
	incoming        *incoming         // a snapshot that has come from the leader; nil if there is none

	storeNumber, storeSeen uint64 // a store of the writer, and the tick when it was first seen

	elections, depositions, rounds uint64 // that there were

	turns atomic.Uint64 // of run; read by watchRaft
}

func newConsensus(n *Node, meta snapshot.Meta) (*consensus, error) {
	hard, _, err := n.log.InitialState()
	if err != nil {
		return nil, err
	}
	last, err := n.log.LastIndex()
	if err != nil {
		return nil, err
	}
	c := &consensus{
		node: n, lastIndex: last, floor: hard.GetCommit(), applyIndex: meta.Index, conf: meta.ConfState,
		lastHeard: map[uint64]uint64{}, reports: map[uint64]report{}, arrivals: map[uint64]uint64{},
		commitSent: map[uint64]uint64{}, notices: map[uint64]*raftpb.Message{}, pendingStandbys: 1,
	}
	c.rn, err = raft.NewRawNode(&raft.Config{
		ID:                        uint64(n.opts.Self),
		ElectionTick:              electionTicks,
		HeartbeatTick:             heartbeatTicks,
		Storage:                   n.log,
		Applied:                   meta.Index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessage,
		MaxCommittedSizePerReady:  maxApplying,
		MaxUncommittedEntriesSize: math.MaxUint64, // the leadership has a limit of its own
		MaxInflightMsgs:           256,
		MaxInflightBytes:          maxSent,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		Logger:                    raftLogger{n.opts.Log},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	return c, err
}

func (c *consensus) run() {
	defer c.failRead()
	n := c.node
	for {
		select {
		case <-n.stopped:
			return
		case <-n.inbox.waker:
		case <-n.opts.Ticks:
			c.takeInbox() // what was left there may decide whether the node campaigns
			c.onTick()
		}
		c.turns.Add(1)
		c.takeInbox()
		for {
			c.observe()
			c.pump()
			if !c.rn.HasReady() {
				break
			}
			c.handle(c.rn.Ready())
		}
		c.settleSnapshot()
	}
}

// failRead ends the node when an old entry cannot be read, or is damaged: raft has no way to
// say so, and panics with the entry log's error.
func (c *consensus) failRead() {
	p := recover()
	if p == nil {
		return
	}
	err, ok := p.(error)
	if !ok || !errors.Is(err, entrylog.ErrFailed) {
		panic(p)
	}
	c.node.fail(fmt.Errorf("the entry log in %s: %w", c.node.opts.Dir, err))
}

// takeInbox steps responses, then messages of peers, and then runs calls: a call may rely on
// the responses that came before it (see inbox.call).
func (c *consensus) takeInbox() {
	local, peers, calls := c.node.inbox.take()
	for _, m := range local {
		c.stepLocal(m)
	}
	for _, m := range peers {
		c.stepPeer(m)
	}
	for _, f := range calls {
		f()
	}
	c.stepSnapshot()
}

// stepLocal takes a response of writer or applier.
func (c *consensus) stepLocal(m *raftpb.Message) {
	if err := c.rn.Step(m); err != nil {
		c.node.opts.Log.Debug("raft refused a response", "type", m.GetType(), "error", err)
	}
	switch m.GetType() {
	case raftpb.MsgStorageAppendResp:
		if m.GetSnapshot() != nil {
			c.endSnapshot(nil)
		}
	case raftpb.MsgStorageApplyResp:
		c.lag = max(0, c.lag-payload(m))
		if last, err := c.node.log.LastIndex(); err == nil && c.rn.BasicStatus().Applied >= last {
			c.lag = 0
		}
	}
}

func payload(m *raftpb.Message) (n int64) {
	for _, e := range m.GetEntries() {
		n += int64(len(e.GetData()))
	}
	return n
}

// fromPeers reports whether other members may send such a message. A proposal would come
// without a term to tie it to; what tells of this node's own disk or network is said by
// this node only.
func fromPeers(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow,
		raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return true
	}
	return false
}

// stepPeer takes a message of another member.
func (c *consensus) stepPeer(m *raftpb.Message) {
	if m.GetTo() != uint64(c.node.opts.Self) {
		return
	}
	c.lastHeard[m.GetFrom()] = c.tick
	if stored(m) && c.node.writer.pendingMessages.Load() > maxStoring {
		return // the disk is full, or hangs: whatever is asked again would pile up
	}
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat:
		if c.forgot(m) {
			return
		}
		c.node.clock.hear(m.GetTerm())
		if st := c.rn.BasicStatus(); len(m.GetEntries()) > 0 && c.lag > maxLag && st.Applied < st.GetCommit() {
			return // the leader sends it again
		}
	case raftpb.MsgTimeoutNow:
		if c.quiet() {
			return
		}
	case raftpb.MsgHeartbeatResp:
		c.reports[m.GetFrom()] = reportOf(m)
		c.noteArrival(m.GetFrom())
	}
	if err := c.rn.Step(m); err != nil {
		c.node.opts.Log.Debug("raft refused a message", "type", m.GetType(), "from", m.GetFrom(), "error", err)
	}
}

// stored reports whether the answer to a message waits for the disk.
func stored(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgVote, raftpb.MsgPreVote:
		return true
	}
	return false
}

// quiet reports whether the node votes, but must not campaign.
func (c *consensus) quiet() bool {
	return !c.loaded() || c.backoff.until > c.tick
}

func (c *consensus) onTick() {
	c.tick++
	st := c.rn.BasicStatus()
	leads := st.RaftState == raft.StateLeader
	switch quiet := c.quiet(); {
	case quiet && !leads:
		// Time passes for the votes that this node gives, and it does not campaign.
		c.rn.TickQuiesced()
	case st.RaftState == raft.StateFollower && c.alone():
		if err := c.rn.Campaign(); err != nil {
			c.node.opts.Log.Debug("raft refused to campaign", "error", err)
		}
	default:
		c.rn.Tick()
	}
	c.sendNotices()
	c.observe()
	c.checkProgress()
	c.checkStore()
	c.passTime()
	c.checkSpace()
	c.raiseVersion()
	c.retain()
	c.publish()
}

// alone reports whether no other node has a vote.
func (c *consensus) alone() bool {
	voters := c.conf.GetVoters()
	return len(voters) == 1 && voters[0] == uint64(c.node.opts.Self) && len(c.conf.GetVotersOutgoing()) == 0
}

// handle does what raft wants. Nothing here waits.
func (c *consensus) handle(rd raft.Ready) {
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			var snapshot *incoming
			if m.GetSnapshot() != nil {
				snapshot = c.installSnapshot(m.GetSnapshot().GetMetadata())
			}
			for _, e := range m.GetEntries() {
				c.lastIndex = e.GetIndex()
				if e.GetType() != raftpb.EntryNormal {
					c.changeIndex = e.GetIndex()
				}
			}
			c.lag += payload(m)
			c.node.writer.append(m, snapshot)
		case raft.LocalApplyThread:
			c.applyIndex = m.GetEntries()[len(m.GetEntries())-1].GetIndex()
			c.node.applier.apply(m)
		default:
			c.send(m)
		}
	}
	for _, rs := range rd.ReadStates {
		c.confirm(rs)
	}
}

func (c *consensus) send(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		told, ok := c.reports[m.GetTo()]
		c.node.sendSnapshot(m, told, ok)
		return
	}
	if m.GetType() == raftpb.MsgApp && c.postpone(m) {
		return
	}
	if m.GetType() == raftpb.MsgHeartbeat {
		c.remind(m)
	}
	if m.GetType() == raftpb.MsgHeartbeatResp {
		r := c.report()
		r.arrived = c.node.transport.Arrived(member.ID(m.GetTo()))
		r.put(m)
	}
	c.node.transport.Send(m)
}

func diverged(format string, args ...any) error {
	return fmt.Errorf("%w: %s; remove this node from the cluster, empty its directory, and add it again",
		ErrDiverged, fmt.Sprintf(format, args...))
}
