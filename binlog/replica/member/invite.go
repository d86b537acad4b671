package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrTaken tells that a member has the name or the address already.
var ErrTaken = errors.New("taken")

// Invite is the leader's part of adding a node: it asks the node who it is, draws an id
// for it unless an attempt before has done so, and asks the node to write down that it is
// this member of this cluster. The members are those of now, as the leader has applied
// them. When Invite has returned a member, the leader proposes it as a learner.
//
// A leader that ends in between leaves a node that knows an id which is no member's. The
// next Invite gives it the same id, because its raft node may run under that one already.
// See doc.go for why it may.
func Invite(ctx context.Context, call Call, now Cluster, node Node) (Member, error) {
	if err := node.check(); err != nil {
		return Member{}, err
	}
	if err := now.check(); err != nil {
		return Member{}, err
	}
	for _, m := range now.Members {
		if m.Name == node.Name {
			return Member{}, fmt.Errorf("the name %s is %w: %s is a member", node.Name, ErrTaken, m)
		}
		if m.Addr == node.Addr {
			return Member{}, fmt.Errorf("the address %s is %w: %s is a member", node.Addr, ErrTaken, m)
		}
	}
	a, err := Probe(ctx, call, node.Addr)
	if err != nil {
		return Member{}, fmt.Errorf("probe %s: %w", node, err)
	}
	if a.Node != node {
		return Member{}, fmt.Errorf("at %s is the node %s, not %s", node.Addr, a.Node, node)
	}
	if a.Identity.State != Empty && (a.Identity.State != Invited || a.Identity.Cluster.ID != now.ID) {
		return Member{}, fmt.Errorf("%s is %s by cluster %s; a new member starts with an empty directory",
			node, a.Identity.State, a.Identity.Cluster.ID)
	}
	m := Member{ID: a.Identity.Self, Incarnation: a.Identity.Incarnation, Name: node.Name, Addr: node.Addr}
	if _, taken := now.Member(m.ID); m.ID == 0 || taken {
		m.ID = NewID()
	}
	id := Identity{
		Incarnation: m.Incarnation, State: Invited, Self: m.ID,
		Cluster: Cluster{ID: now.ID, Members: append(slices.Clone(now.Members), m)},
	}
	if a, err = ask(ctx, call, node.Addr, request{opInvite, id}); err != nil {
		return Member{}, fmt.Errorf("invite %s: %w", node, err)
	}
	if !a.Identity.equal(id) {
		return Member{}, fmt.Errorf("invite %s: it is %s by cluster %s now", node, a.Identity.State, a.Identity.Cluster.ID)
	}
	return m, nil
}
