package faults_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica"
)

// hasty is the transport of a node for which one member too few is a majority: what the first of the others is asked
// to store or to vote for counts as stored, and as voted for.
type hasty struct {
	replica.Transport
	node  *replica.Node
	world *world
	made  atomic.Int64 // answers
}

// mostMade is how many answers a process makes up: a leader and a follower that it believes too much of send messages
// to each other as fast as they can.
const mostMade = 300

func (h *hasty) Send(m *raftpb.Message) {
	h.Transport.Send(m)
	if m.GetTo() != 1+m.GetFrom()%3 || m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0 {
		return
	}
	answers := map[raftpb.MessageType]raftpb.MessageType{
		raftpb.MsgApp: raftpb.MsgAppResp, raftpb.MsgVote: raftpb.MsgVoteResp, raftpb.MsgPreVote: raftpb.MsgPreVoteResp,
	}
	kind, ok := answers[m.GetType()]
	if !ok || h.made.Add(1) > mostMade {
		return
	}
	last := m.GetIndex() + uint64(len(m.GetEntries())) // of no use in an answer to a vote
	answer := &raftpb.Message{Type: kind.Enum(), From: m.To, To: m.From, Term: m.Term, Index: &last}
	h.world.after(time.Millisecond, func() { h.node.Message(answer) })
}

// The histories would show it if a cluster were wrong.
func TestMistakesAreFound(t *testing.T) {
	undisturbed(t)
	for name, plant := range map[string]func(*plan){
		"one member too few is a majority":    func(p *plan) { p.quorum = true },
		"disks lie about syncs":               func(p *plan) { p.lies = true },
		"a member's clock runs twice as fast": func(p *plan) { p.fast = true },
	} {
		t.Run(name, func(t *testing.T) {
			const seeds = 50
			for seed := uint64(1); seed <= seeds; seed++ {
				p := planOf(seed)
				p.members = 3
				plant(&p)
				if o := p.run(t); len(o.wrongs) > 0 {
					t.Logf("seed %d: %.200s", seed, o.wrongs[0])
					return
				}
			}
			t.Errorf("nothing was found with %d seeds", seeds)
		})
	}
}
