package replica

import (
	"encoding/json"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica/member"
)

// appends takes the MsgApps out of what was sent: for each follower those with entries, and
// those without.
func (h *hand) appends() (full, empty map[uint64][]*raftpb.Message) {
	full, empty = map[uint64][]*raftpb.Message{}, map[uint64][]*raftpb.Message{}
	var rest []*raftpb.Message
	for _, m := range h.sent {
		switch {
		case m.GetType() != raftpb.MsgApp:
			rest = append(rest, m)
		case len(m.GetEntries()) > 0:
			full[m.GetTo()] = append(full[m.GetTo()], m)
		default:
			empty[m.GetTo()] = append(empty[m.GetTo()], m)
		}
	}
	h.sent = rest
	return full, empty
}

// acknowledge answers the appends that were sent. Nothing is applied.
func (h *hand) acknowledge() {
	full, _ := h.appends()
	for _, ms := range full {
		for _, m := range ms {
			h.Message(answerTo(m))
		}
	}
	h.consensus.takeInbox()
	h.ready()
}

// ready lets the raft goroutine do what raft wants.
func (h *hand) ready() {
	for h.consensus.rn.HasReady() {
		h.consensus.handle(h.consensus.rn.Ready())
	}
}

func (h *hand) committed() uint64 { return h.consensus.rn.BasicStatus().GetCommit() }

func TestFollowersHearOfACommitWithTheNextEntries(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.consensus.sendNotices()
	h.sent = nil
	pos := put(t, l, 1, 10)
	h.run()
	h.acknowledge()
	h.apply()
	if l.Committed() != pos {
		t.Fatalf("committed up to %d of %d", l.Committed(), pos)
	}
	if _, empty := h.appends(); len(empty) > 0 {
		t.Errorf("messages without entries: %v", empty)
	}
	put(t, l, 2, 10)
	h.run()
	for follower := uint64(2); follower <= 3; follower++ {
		full, _ := h.appends()
		h.sent = append(h.sent, full[5-follower]...)
		if len(full[follower]) != 1 || full[follower][0].GetCommit() != h.committed() {
			t.Errorf("follower %d hears of %v, committed is %d", follower, full[follower], h.committed())
		}
	}
	h.consensus.onTick()
	h.run()
	if _, empty := h.appends(); len(empty) > 0 {
		t.Errorf("messages without entries that tell what was told: %v", empty)
	}
}

func TestFollowersOfAnIdleLeaderHearOfACommitWithTheNextTick(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.consensus.sendNotices()
	h.sent = nil
	put(t, l, 1, 10)
	h.run()
	h.acknowledge()
	h.consensus.onTick()
	h.run()
	_, empty := h.appends()
	for follower := uint64(2); follower <= 3; follower++ {
		if ms := empty[follower]; len(ms) != 1 || ms[0].GetCommit() != h.committed() {
			t.Errorf("follower %d hears of %v, committed is %d", follower, ms, h.committed())
		}
	}
}

func TestFollowersHearOfAChangeOfTheMembersAtOnce(t *testing.T) {
	h := newHand(t, 3)
	h.lead()
	h.consensus.sendNotices()
	h.sent = nil
	id := uint64(4)
	context, err := json.Marshal(member.Member{ID: member.ID(id), Name: "n4", Addr: "127.0.0.1:14"})
	if err != nil {
		t.Fatal(err)
	}
	err = h.consensus.rn.ProposeConfChange(&raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: &id}}, Context: context,
	})
	if err != nil {
		t.Fatal(err)
	}
	before := h.committed()
	h.ready()
	h.save()
	h.acknowledge()
	if h.committed() <= before {
		t.Fatal("the change is not committed")
	}
	_, empty := h.appends()
	for follower := uint64(2); follower <= 3; follower++ {
		if ms := empty[follower]; len(ms) == 0 || ms[0].GetCommit() < h.consensus.changeIndex {
			t.Errorf("follower %d hears of %v, the change is entry %d", follower, ms, h.consensus.changeIndex)
		}
	}
}

func TestAFollowerThatGetsNoEntriesIsAskedAtOnceWhatItHas(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.consensus.sendNotices()
	h.sent = nil
	h.consensus.rn.ReportUnreachable(3) // what was sent may be lost
	put(t, l, 1, 10)
	h.run()
	full, empty := h.appends()
	if len(full[3])+len(empty[3]) == 0 {
		t.Fatal("follower 3 is not asked")
	}
	h.consensus.commitSent[3] = h.consensus.changeIndex
	to, commit := uint64(3), h.committed()
	if h.consensus.postpone(&raftpb.Message{Type: raftpb.MsgApp.Enum(), To: &to, Commit: &commit}) {
		t.Error("a question without entries is kept back")
	}
}

func TestWhatWasKeptBackEndsWithTheLeadership(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	put(t, l, 1, 10)
	h.run()
	h.acknowledge()
	if len(h.consensus.notices) == 0 {
		t.Fatal("nothing is kept back")
	}
	h.deposed()
	h.run()
	h.sent = nil
	h.consensus.sendNotices()
	if len(h.sent) > 0 {
		t.Errorf("a message of a leadership that is over: %v", h.sent)
	}
}

func TestALeadershipExpectsChangesOfTheMembersInItsOwnLogOnly(t *testing.T) {
	h := newHand(t, 3)
	h.consensus.changeIndex = 1000 // by an entry that was cut off later
	before, err := h.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	h.elected()
	if got := h.consensus.changeIndex; got != before {
		t.Errorf("changes are expected up to entry %d; the log of the new leader ends with %d", got, before)
	}
}

func TestFollowersHearOfTheBeginningOfALeadershipAtOnce(t *testing.T) {
	h := newHand(t, 3)
	h.elected()
	begin, err := h.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	h.acknowledge() // raft's own, by which it learns what followers have
	for h.committed() < begin {
		h.run()
		h.acknowledge()
	}
	_, empty := h.appends()
	for follower := uint64(2); follower <= 3; follower++ {
		if ms := empty[follower]; len(ms) == 0 || ms[len(ms)-1].GetCommit() < begin {
			t.Errorf("follower %d hears of %v, the leadership begins with entry %d", follower, ms, begin)
		}
	}
}

func TestFollowersHearOfWhatAFenceHasBehindItAtOnce(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.consensus.sendNotices()
	h.sent = nil
	pos := put(t, l, 1, 10)
	h.run()
	h.acknowledge()
	h.apply()
	if l.Committed() != pos {
		t.Fatalf("committed up to %d of %d", l.Committed(), pos)
	}
	fence, err := h.consensus.fence(l)
	if err != nil || fence != h.committed() || fence < h.applier.state.Index {
		t.Fatalf("the fence is entry %d of %d, %v", fence, h.committed(), err)
	}
	_, empty := h.appends()
	for follower := uint64(2); follower <= 3; follower++ {
		if ms := empty[follower]; len(ms) != 1 || ms[0].GetCommit() != fence {
			t.Errorf("follower %d hears of %v, the fence is entry %d", follower, ms, fence)
		}
	}
	h.deposed()
	h.consensus.observe()
	if _, err := h.consensus.fence(l); err == nil {
		t.Error("a leadership that is over has a fence")
	}
}

// A member that has applied the entry of a fence has all that was executed before somebody asked for it.
func TestAMemberThatHasAppliedAFenceKnowsAllBeforeIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	id := uint64(1000)
	for range 10 {
		var fence uint64
		c.eventually("a fence", func() bool {
			n := c.leader().running()
			if n == nil {
				return false
			}
			l, err := n.leading()
			if err != nil {
				return false
			}
			id++
			if _, err := l.Put(&journal.Record{ID: id, State: journal.Ready, TTR: 1, Tube: "default"}); err != nil {
				return false
			}
			fence, err = n.Fence(t.Context(), l, true)
			return err == nil
		})
		for _, p := range c.nodes {
			c.eventually("all have applied it", func() bool {
				if n := p.running(); n == nil || n.leadership.Load() != nil {
					return true // the leader's queue has executed it, but for what the test has put
				}
				p.mu.Lock()
				q := p.queue
				p.mu.Unlock()
				q.mu.Lock()
				defer q.mu.Unlock()
				_, known := q.jobs[id]
				if q.applied >= fence && !known && q.feeding {
					t.Errorf("%s has applied entry %d, and does not know of what was done before the fence %d", p.name, q.applied, fence)
				}
				return q.applied >= fence
			})
		}
	}
}
