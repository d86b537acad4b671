package replica

import (
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// Raft tells the followers of each commit at once, by a message without entries. Nobody
// waits for that, and it is costly: the leader writes it to each follower, which syncs before
// it answers, and the leader reads the answers. So the raft goroutine postpones such a
// notice. The next entries for the follower tell of the commit as well, and of later ones; if
// none come, the notice is sent with the next tick.
//
// A change of the members is an exception. A follower acts on it when it knows that it is
// committed, and if the leader ended before, the others might lack a majority among those who
// were members before. So is the entry that begins a leadership, and whatever is committed when
// somebody asks for a fence: clients of followers wait until these have applied it.
//
// To raft this looks like a network that delays a message, or delivers a later one first.

// postpone keeps a MsgApp until the next tick, or returns false if it has to be sent now. A
// notice to the same follower that has not been sent is discarded: this message says as much.
func (c *consensus) postpone(m *raftpb.Message) bool {
	to := m.GetTo()
	delete(c.notices, to)
	if len(m.GetEntries()) > 0 || c.commitSent[to] < max(c.changeIndex, c.beginIndex) || !c.flows(to) {
		c.commitSent[to] = m.GetCommit()
		return false
	}
	c.notices[to] = m
	return true
}

// flows reports whether a follower gets entries as they come. One that does not is asked, by a
// message without entries, what it has, and gets no entries before it has answered. If a
// message to one that does was lost and nobody has told, the question comes a tick later.
func (c *consensus) flows(follower uint64) (yes bool) {
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == follower {
			yes = pr.State == tracker.StateReplicate && !pr.MsgAppFlowPaused
		}
	})
	return yes
}

// sendNotices sends the notices that were postponed.
func (c *consensus) sendNotices() {
	for _, to := range slices.Sorted(maps.Keys(c.notices)) {
		c.node.transport.Send(c.notices[to])
	}
	clear(c.notices)
}
