package cluster

import (
	"testing"

	"trellis/binlog/replica/member"
)

// A leader that invites a node may be deposed, or be told to stop, before the node is a
// member. The node runs under its id by then.
func TestANodeIsAddedThatWasInvitedBefore(t *testing.T) {
	r := newRig(t, 1)
	r.leader(-1)
	first := r.members[0]
	l := listenLocally(t)
	self := member.Node{Name: "n2", Addr: l.Addr().String()}
	second := r.run(self, []member.Node{first.cfg.Self}, l)
	now := member.Cluster{ID: first.store.Identity().Cluster.ID, Members: first.askMembers(t.Context(), first.cfg.Self.Addr)}
	if _, err := member.Invite(t.Context(), first.call, now, self); err != nil {
		t.Fatal(err)
	}
	r.eventually("the node runs", func() bool { return second.Status() != nil })
	node := first.node.Load()
	if err := first.add(t.Context(), node, node.Status(), self.String()); err != nil {
		t.Fatal(err)
	}
	r.eventually("it follows", func() bool {
		s := second.Status()
		return len(s.Members) == 2 && s.Members[1].Voter
	})
}
