package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/replica/member"
)

// The members change by entries of raft's, one change at a time, by joint consensus: an
// entry for a configuration that is the old and the new one at once, and one, which
// raft proposes by itself, for the new one alone. The context of a change that adds a
// member is that member.

// isMember reports whether an id is one of a configuration's, also of one that is being
// left.
func isMember(cs *raftpb.ConfState, id uint64) bool {
	return slices.Contains(cs.GetVotersOutgoing(), id) || !isLeaving(cs, id)
}

// isLeaving reports whether a member is none any more once its configuration is not joint.
func isLeaving(cs *raftpb.ConfState, id uint64) bool {
	return !slices.Contains(cs.GetVoters(), id) && !slices.Contains(cs.GetLearners(), id) &&
		!slices.Contains(cs.GetLearnersNext(), id)
}

func isVoter(cs *raftpb.ConfState, id uint64) bool { return slices.Contains(cs.GetVoters(), id) }

// votes reports whether a member is a voter, and no change is under way that makes it one: until that has ended, a
// majority of the voters before is needed, too, which would not do without those of them that it is to replace.
func votes(cs *raftpb.ConfState, id uint64) bool {
	return isVoter(cs, id) && (!isJoint(cs) || slices.Contains(cs.GetVotersOutgoing(), id))
}

// isJoint reports whether a configuration is the old and the new one at once.
func isJoint(cs *raftpb.ConfState) bool { return len(cs.GetVotersOutgoing()) > 0 }

// changeMembers returns the members after a change, by the configuration that it has led to.
func changeMembers(ms []member.Member, cs *raftpb.ConfState, cc *raftpb.ConfChangeV2) ([]member.Member, error) {
	if len(cc.GetContext()) > 0 {
		var m member.Member
		if err := json.Unmarshal(cc.GetContext(), &m); err != nil {
			return nil, fmt.Errorf("a change of the members: %w", err)
		}
		ms = slices.DeleteFunc(ms, func(o member.Member) bool { return o.ID == m.ID })
		ms = append(ms, m)
	}
	return slices.DeleteFunc(ms, func(m member.Member) bool { return !isMember(cs, uint64(m.ID)) }), nil
}

// Configurations tells who the members are by what this node has on disk, and may be asked
// before Run, when nothing is applied: first the members as of the last entry that the node
// knows to be committed, then those behind each later change in its log. Those may be committed
// too; if they are not, another change may take their place.
func (n *Node) Configurations() (lists [][]member.Member, err error) {
	hard, _, err := n.log.InitialState()
	if err != nil {
		return nil, err
	}
	meta := n.store.current()
	now := slices.DeleteFunc(slices.Clone(meta.Members),
		func(m member.Member) bool { return isLeaving(meta.ConfState, uint64(m.ID)) })
	lists = append(lists, now)
	for _, index := range n.log.Recovery().Changes {
		if index <= meta.Index {
			continue
		}
		err := n.log.Each(index-1, index, func(e *raftpb.Entry) (err error) {
			cc := &raftpb.ConfChangeV2{}
			if err = proto.Unmarshal(e.GetData(), cc); err == nil {
				now, err = changeMembers(slices.Clone(now), keptBy(now, cc), cc)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("the change of the members in entry %d: %w", index, err)
		}
		if index <= hard.GetCommit() {
			lists[0] = now
		} else {
			lists = append(lists, now)
		}
	}
	return lists, nil
}

// keptBy is a configuration of all members that a change does not remove, and of whom it adds.
func keptBy(ms []member.Member, cc *raftpb.ConfChangeV2) *raftpb.ConfState {
	cs := &raftpb.ConfState{}
	for _, m := range ms {
		cs.Voters = append(cs.Voters, uint64(m.ID))
	}
	for _, s := range cc.GetChanges() {
		cs.Voters = slices.DeleteFunc(cs.Voters, func(id uint64) bool { return id == s.GetNodeId() })
		if s.GetType() != raftpb.ConfChangeRemoveNode {
			cs.Voters = append(cs.Voters, s.GetNodeId())
		}
	}
	return cs
}

// Add makes a node a member that votes. The node runs, knows that it belongs to the
// cluster, and answers. It learns first, so that nobody waits for it while it catches up.
// Add returns when the change is applied here; a call that has ended with an error may
// be repeated, and goes on where the one before has ended. Errors wrap ErrNotLeader, the
// context's, or tell why the node cannot be added.
//
// While the node catches up, which may take long, others may change the members and the
// leader.
func (n *Node) Add(ctx context.Context, m member.Member) error {
	id := uint64(m.ID)
	err := n.addLearner(ctx, m)
	if err == nil {
		err = n.caughtUp(ctx, id)
	}
	if err == nil {
		err = n.promote(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("add %v: %w", m, err)
	}
	return nil
}

// addLearner makes a node a member that does not vote, unless it is a member.
func (n *Node) addLearner(ctx context.Context, m member.Member) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	for _, o := range n.applier.applied().Members {
		switch {
		case o.ID == m.ID && o == m:
		case o.ID == m.ID || o.Name == m.Name || o.Addr == m.Addr:
			return fmt.Errorf("%v is a member already", o)
		}
	}
	context, err := json.Marshal(m)
	if err != nil {
		return err
	}
	id := uint64(m.ID)
	if isMember(n.applier.applied().ConfState, id) {
		return nil
	}
	return n.change(ctx, raftpb.ConfChangeAddLearnerNode, id, context,
		func(cs *raftpb.ConfState) bool { return isMember(cs, id) })
}

// promote gives a member a vote, as soon as nobody else changes the members or the leader.
func (n *Node) promote(ctx context.Context, id uint64) error {
	for !n.changing.TryLock() {
		if err := n.pause(ctx, pollTime); err != nil {
			return err
		}
	}
	defer n.changing.Unlock()
	return n.change(ctx, raftpb.ConfChangeAddNode, id, nil, func(cs *raftpb.ConfState) bool { return isVoter(cs, id) })
}

// Remove takes a member out of the cluster. If that is this node, leadership goes to
// another member first, and the error wraps ErrNotLeader: that member is to be asked.
// Other errors are those of Add.
func (n *Node) Remove(ctx context.Context, id member.ID) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	if _, err := n.leading(); err != nil {
		return err
	}
	if id == n.opts.Self {
		if err := n.handOver(ctx, 0); err != nil {
			return fmt.Errorf("remove the leader: %w", err)
		}
		return fmt.Errorf("%w any more; ask the one that does", ErrNotLeader)
	}
	err := n.change(ctx, raftpb.ConfChangeRemoveNode, uint64(id), nil,
		func(cs *raftpb.ConfState) bool { return !isMember(cs, uint64(id)) })
	if err != nil {
		return fmt.Errorf("remove %v: %w", id, err)
	}
	return nil
}

// change proposes a change of the members, and waits until it is applied. It does nothing if
// ok holds already. With changing held.
func (n *Node) change(
	ctx context.Context, kind raftpb.ConfChangeType, id uint64, context []byte, ok func(*raftpb.ConfState) bool,
) error {
	cc := &raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointImplicit.Enum(),
		Changes:    []*raftpb.ConfChangeSingle{{Type: kind.Enum(), NodeId: &id}},
		Context:    context,
	}
	proposed := false
	var asked uint64 // tick of the first look
	return n.poll(ctx, func(c *consensus) (bool, error) {
		cs := n.applier.applied().ConfState
		switch {
		case isJoint(cs) || !c.quietMembers():
			return false, nil
		case ok(cs):
			return true, nil
		case proposed:
			return false, errors.New("the change was refused")
		case kind == raftpb.ConfChangeAddNode && !isMember(cs, id):
			return false, errRemoved
		}
		if asked == 0 {
			asked = c.tick + 1 // what was sent before may have been heard later
		}
		if err := c.liveMajority(cs, kind, id, asked); err != nil {
			if c.tick < asked+electionTicks {
				err = nil
			}
			return false, err
		}
		proposed = true
		return false, c.rn.ProposeConfChange(cc)
	})
}

// Times between two looks at what is waited for: something that raft does, and a snapshot.
const (
	pollTime  = 5 * time.Millisecond
	freshTime = 20 * time.Millisecond
)

// poll has the raft goroutine of a node that serves look, again and again, until it
// tells that what is waited for is there.
func (n *Node) poll(ctx context.Context, look func(c *consensus) (bool, error)) error {
	for {
		done := false
		err := n.ask(ctx, func(c *consensus) (err error) {
			if _, err := n.leading(); err != nil {
				return err
			}
			if c.rn.BasicStatus().RaftState != raft.StateLeader {
				return ErrNotLeader // observe comes next
			}
			done, err = look(c)
			return err
		})
		if err != nil || done {
			return err
		}
		if err := n.pause(ctx, pollTime); err != nil {
			return err
		}
	}
}

// pause waits. It ends with an error when ctx or the node does.
func (n *Node) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopped:
		return ErrClosed
	case <-time.After(d):
		return nil
	}
}

// errRemoved tells that a member was removed before it had a vote.
var errRemoved = errors.New("it was removed meanwhile")

// silentTicks is how long a member that is to vote may be silent.
const silentTicks = 200

// caughtUp waits until a member has nearly all that the leader has. That ends with an
// error when the member says nothing at all for a while, as it may have ended, and when the
// snapshot that it needs cannot be taken.
func (n *Node) caughtUp(ctx context.Context, id uint64) error {
	heard := uint64(0) // tick when the member was last heard, or of the first look
	begun := n.applier.begun()
	return n.poll(ctx, func(c *consensus) (bool, error) {
		if heard = max(heard, c.lastHeard[id]); heard == 0 {
			heard = c.tick
		}
		if c.tick > heard+silentTicks {
			return false, errors.New("it does not answer")
		}
		st := c.rn.Status()
		pr, ok := st.Progress[id]
		if !ok {
			return false, errRemoved
		}
		if pr.Match == 0 && c.snapshotLacks() {
			if err := n.applier.failedSince(begun); err != nil {
				return false, err
			}
		}
		return pr.Match+near >= st.GetCommit() && pr.Match > 0 && c.alive(id), nil
	})
}

// near is how many entries a member may lack that is to vote.
const near = 64

// quietMembers reports whether no change of the members is under way: raft would ignore
// another one.
func (c *consensus) quietMembers() bool {
	return c.rn.BasicStatus().Applied >= c.changeIndex && len(c.rn.Status().Config.Voters[1]) == 0
}

// liveMajority refuses a change after which most of those who vote would not answer:
// nothing could be committed any more, not even a change back. Only what was heard behind
// the tick `asked` counts.
func (c *consensus) liveMajority(cs *raftpb.ConfState, kind raftpb.ConfChangeType, id, asked uint64) error {
	voters := slices.Clone(cs.GetVoters())
	switch kind {
	case raftpb.ConfChangeAddNode:
		voters = append(voters, id)
	case raftpb.ConfChangeRemoveNode:
		voters = slices.DeleteFunc(voters, func(v uint64) bool { return v == id })
	}
	live := 0
	for _, v := range voters {
		if v == uint64(c.node.opts.Self) || c.lastHeard[v] > asked {
			live++
		}
	}
	if live <= len(voters)/2 {
		return fmt.Errorf("only %d of the %d members that would vote answer", live, len(voters))
	}
	return nil
}

// applyConfChange changes the members by an entry, for the applier, which waits. A leader tells
// a removed member of the last commit, because raft sends it nothing any more.
func (c *consensus) applyConfChange(index uint64, cc *raftpb.ConfChangeV2) *raftpb.ConfState {
	before := c.rn.Status()
	c.conf = c.rn.ApplyConfChange(cc)
	if len(cc.GetContext()) > 0 {
		c.addIndex = index
	}
	if before.RaftState != raft.StateLeader {
		return c.conf
	}
	for id, pr := range before.Progress {
		if isMember(c.conf, id) {
			continue
		}
		to, self, commit := id, uint64(c.node.opts.Self), min(pr.Match, before.GetCommit())
		c.node.transport.Send(&raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), To: &to, From: &self, Term: before.Term, Commit: &commit,
		})
	}
	return c.conf
}

// snapshotLacks reports whether the current snapshot is older than the latest member. Raft
// would not load it there: the member is not in it. It may be in it all the same if it was
// removed and added again and has never heard of either. Then the snapshot must not be loaded:
// the entry that removed the member follows it, and the member would end.
func (c *consensus) snapshotLacks() bool { return c.node.store.current().Index < c.addIndex }

// NotMember tells that this node was removed without having heard of it: a member has
// applied more than this node, and has it no more.
func (n *Node) NotMember(by member.ID) {
	n.inbox.call(func() {
		n.opts.Log.Warn("a member says that this node was removed", "by", by)
		n.fail(ErrRemoved)
	})
}
