package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"trellis/binlog/replica/internal/planted"
)

const (
	pollEvery    = 200 * time.Millisecond // how often a node that waits asks the others
	probeTimeout = 2 * time.Second        // of one question
)

// Settle returns when the node belongs to a cluster, as one that founded it (Joined) or
// as one that was added (Invited). Until then it asks the nodes of --cluster who they
// are, while Control answers them. It logs what it waits for, once for each reason.
//
// Before the node becomes Joined by a founding, and before Settle returns an Invited
// one, it calls prepare with the identity that the node is going to have. prepare makes
// entry log and first snapshot, durably, in place of what an earlier call has left. So a
// Joined node that has no entry log has lost it.
func (s *Store) Settle(
	ctx context.Context, call Call, log *slog.Logger, prepare func(Identity) error,
) (Identity, error) {
	said := ""
	for {
		own, err := s.current()
		if err != nil {
			return own, err
		}
		switch own.State {
		case Joined:
			return own, nil
		case Invited:
			return own, prepare(own)
		case Removed:
			return own, ErrRemoved
		}
		step := decide(s.self, s.nodes, own, s.probe(ctx, call))
		switch step.do {
		case found:
			next := own
			next.State = Joined
			if err := prepare(next); err != nil {
				return own, err
			}
			if _, err := s.replace(own, next); err != nil {
				return own, err
			}
			continue
		case adopt:
			if _, err := s.replace(own, step.next); err != nil {
				return own, err
			}
			continue
		case wait:
		}
		why := step.why
		for _, m := range step.propose {
			next := own
			next.Self, next.Incarnation = m.ID, m.Incarnation
			if err := s.propose(ctx, call, m, next); err != nil {
				why = fmt.Sprintf("%s did not take the proposal: %v", m, err)
			}
		}
		if ctx.Err() != nil {
			return own, fmt.Errorf("%s: %w", step.why, context.Cause(ctx))
		}
		if why != "" && why != said {
			log.Info("the node belongs to no cluster yet", "node", s.self.Name, "waits", why)
			said = why
		}
		if len(step.propose) > 0 && why == step.why {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-time.After(pollEvery):
		}
	}
}

// current is the identity, or why a write of it has failed in Control.
func (s *Store) current() (Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity, s.failed
}

func (s *Store) propose(ctx context.Context, call Call, m Member, id Identity) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := ask(ctx, call, m.Addr, request{opPropose, id})
	return err
}

// probe asks all nodes of --cluster at once, but for this one.
func (s *Store) probe(ctx context.Context, call Call) []reply {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	hs := make([]reply, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		if n != s.self {
			all.Go(func() { hs[i].Answer, hs[i].err = Probe(ctx, call, n.Addr) })
		}
	}
	all.Wait()
	return hs
}

// reply is what a node of --cluster said when it was asked, or why it did not.
type reply struct {
	Answer
	err error
}

type action uint8

const (
	wait  action = iota // and propose
	adopt               // make next durable, and ask again
	found               // all have the proposal: become Joined
)

type step struct {
	do      action
	next    Identity // of adopt
	propose []Member // of wait: those that lack the proposal
	why     string   // of wait, for the operator
}

// decide says what a node does that is Empty or Proposed, by what it is and what the
// nodes of --cluster just said; replies[i] is of nodes[i]. It is all of the founding's
// logic; doc.go says why it is safe.
func decide(self Node, nodes []Node, own Identity, replies []reply) step {
	if !slices.Contains(nodes, self) {
		return step{why: "it is not in --cluster: it waits to be added (trellis cluster add " + self.String() + ")"}
	}
	if planted.Has(planted.WipedVotes) {
		if id, ok := former(self, own, replies); ok {
			return step{do: adopt, next: id}
		}
	}
	if why := belongs(self, nodes, own, replies); why != "" {
		return step{why: why}
	}
	switch {
	case own.State == Proposed && own.Self != own.founder().ID:
		return decideMember(nodes, own, replies)
	case own.State == Proposed:
		return decideFounder(self, nodes, own, replies)
	case nodes[0] != self:
		return step{why: firstProblem(self, nodes, replies,
			nodes[0].String()+" is to found the cluster, and has not proposed it yet")}
	}
	for i, h := range replies {
		if nodes[i] != self && h.err == nil && h.Identity.State == Proposed {
			return step{why: nodes[i].String() + " has the proposal of a " + self.Name +
				" whose directory was emptied since; empty its directory too"}
		}
	}
	if why := firstProblem(self, nodes, replies, ""); why != "" {
		return step{why: why}
	}
	return step{do: adopt, next: propose(self, nodes, own, replies)}
}

// former is who a node was, by what the members of its cluster say, before its directory was
// emptied. It is nobody now: see package planted.
func former(self Node, own Identity, replies []reply) (id Identity, ok bool) {
	for _, h := range replies {
		if own.State != Empty || h.err != nil || h.Identity.State != Joined {
			continue
		}
		for _, m := range h.Identity.Cluster.Members {
			if m.Name == self.Name {
				return Identity{m.Incarnation, Proposed, m.ID, h.Identity.Round, h.Identity.Cluster}, true
			}
		}
	}
	return id, false
}

// belongs says why there is nothing to found: another node belongs to a cluster that
// this one is not of.
func belongs(self Node, nodes []Node, own Identity, replies []reply) string {
	for i, h := range replies {
		if nodes[i] == self || h.err != nil || h.Identity.State == Empty || h.Identity.State == Proposed {
			continue
		}
		c := h.Identity.Cluster
		j := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == self.Name })
		switch {
		case own.State == Proposed && c.ID == own.Cluster.ID:
			// Nothing was proposed to a node that is of the cluster.
		case own.State == Proposed:
			return fmt.Sprintf("%s belongs to cluster %s, and this node is to found %s; empty this directory",
				nodes[i], c.ID, own.Cluster.ID)
		case j >= 0 && c.Members[j].Incarnation != own.Incarnation:
			return fmt.Sprintf("%s belongs to cluster %s, of which %s was a member with another directory; "+
				"this one is empty: remove %s and add it again (trellis cluster add %s)",
				nodes[i], c.ID, self.Name, self.Name, self)
		default:
			return fmt.Sprintf("%s belongs to cluster %s: this node waits to be added (trellis cluster add %s)",
				nodes[i], c.ID, self)
		}
	}
	return ""
}

// decideMember decides for a node that has a proposal of another one.
func decideMember(nodes []Node, own Identity, replies []reply) step {
	for i, h := range replies {
		if nodes[i] == own.Member().Node() || h.err != nil {
			continue
		}
		if h.Identity.State == Joined && h.Identity.Cluster.ID == own.Cluster.ID {
			return step{do: found}
		}
		if nodes[i] == own.founder().Node() && h.Identity.Incarnation != own.founder().Incarnation {
			return step{why: nodes[i].String() +
				" has proposed a cluster, and its directory was emptied since; empty this directory too"}
		}
	}
	return step{why: firstProblem(own.Member().Node(), nodes, replies, "not all nodes have the proposal yet")}
}

// decideFounder decides for the node that has proposed.
func decideFounder(self Node, nodes []Node, own Identity, replies []reply) step {
	s := step{why: firstProblem(self, nodes, replies, "")}
	again := false
	for i, h := range replies {
		m := own.Cluster.Members[i]
		switch {
		case nodes[i] == self || wrong(nodes, nodes[i], h) != "":
		case h.Identity.Incarnation != m.Incarnation && h.Identity.State == Empty:
			again = true // it was emptied since the proposal
		case h.Identity.Incarnation != m.Incarnation:
			s.why = nodes[i].String() + " has a proposal that this node does not know; empty its directory"
		case h.Identity.State == Empty:
			s.propose = append(s.propose, m)
		case h.Identity.State != Proposed:
			s.why = nodes[i].String() +
				" has joined the cluster that this node has only proposed: this directory is an old copy; empty it"
		case h.Identity.founder().Incarnation != own.Incarnation:
			s.why = nodes[i].String() + " has the proposal of another founder; empty its directory"
		case h.Identity.Cluster.ID != own.Cluster.ID:
			s.propose = append(s.propose, m)
		}
	}
	switch {
	case s.why != "":
		return s
	case again:
		return step{do: adopt, next: propose(self, nodes, own, replies)}
	case len(s.propose) > 0:
		return s
	}
	return step{do: found}
}

// propose draws the ids of a cluster whose nodes have all answered.
func propose(self Node, nodes []Node, own Identity, replies []reply) Identity {
	c := Cluster{ID: NewClusterID()}
	for i, n := range nodes {
		m := Member{ID: NewID(), Incarnation: own.Incarnation, Name: n.Name, Addr: n.Addr}
		if n != self {
			m.Incarnation = replies[i].Identity.Incarnation
		}
		c.Members = append(c.Members, m)
	}
	return Identity{Incarnation: own.Incarnation, State: Proposed, Self: c.Members[0].ID, Round: own.Round + 1, Cluster: c}
}

// firstProblem says what keeps a node from taking part in the founding, or otherwise.
func firstProblem(self Node, nodes []Node, replies []reply, otherwise string) string {
	for i, n := range nodes {
		if n == self {
			continue
		}
		if why := wrong(nodes, n, replies[i]); why != "" {
			return why
		}
	}
	return otherwise
}

func wrong(nodes []Node, n Node, h reply) string {
	switch {
	case errors.Is(h.err, context.DeadlineExceeded):
		return n.String() + " does not answer"
	case h.err != nil:
		return fmt.Sprintf("%s: %v", n, h.err)
	case h.Node != n:
		return fmt.Sprintf("at %s is the node %s, not %s", n.Addr, h.Node, n)
	case !slices.Equal(h.Nodes, nodes):
		return fmt.Sprintf("--cluster of %s says %s, and here %s", n.Name, formatNodes(h.Nodes), formatNodes(nodes))
	}
	return ""
}
