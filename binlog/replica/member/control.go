package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Call sends a control request to the node at an address and returns its response. It
// ends with its context.
type Call func(ctx context.Context, addr string, request []byte) (response []byte, err error)

// The operations of a request. Other packages have further ones.
const (
	opProbe   = "probe"
	opPropose = "propose"
	opInvite  = "invite"
)

// request is what a node asks another one before there is a cluster.
type request struct {
	Op       string   `json:"op"`
	Identity Identity `json:"identity,omitzero"` // that the other is to have: of propose and invite
}

// Answer is what a node says of itself: the response to every request.
type Answer struct {
	Node     Node     `json:"node"`  // of its --node
	Nodes    []Node   `json:"nodes"` // of its --cluster
	Identity Identity `json:"identity"`
}

// parseAnswer reads a response, which nobody has checked.
func parseAnswer(b []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(b, &a); err != nil {
		return Answer{}, fmt.Errorf("its answer is not one of a node: %w", err)
	}
	if len(a.Nodes) > MaxMembers {
		return Answer{}, errors.New("its answer is not one of a node: too many members")
	}
	err := a.Node.check()
	if err == nil {
		err = checkNodes(a.Nodes)
	}
	if err == nil {
		err = a.Identity.check()
	}
	if err != nil {
		return Answer{}, fmt.Errorf("its answer is not one of a node: %w", err)
	}
	return a, nil
}

func ask(ctx context.Context, call Call, addr string, r request) (Answer, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	resp, err := call(ctx, addr, b)
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(resp)
}

// Probe asks the node at an address who it is.
func Probe(ctx context.Context, call Call, addr string) (Answer, error) {
	return ask(ctx, call, addr, request{Op: opProbe})
}

// Control answers a control request of another node. ok is false if the request is none of
// this package's; otherwise resp or err is to be sent. stranger says why whoever asks is no
// node of the cluster; then it may ask who this node is, and no more. Control waits for the
// disk: what it has answered survives a crash.
func (s *Store) Control(req []byte, stranger error) (resp []byte, ok bool, err error) {
	var op struct {
		Op string `json:"op"`
	}
	if json.Unmarshal(req, &op) != nil || !slices.Contains([]string{opProbe, opPropose, opInvite}, op.Op) {
		return nil, false, nil
	}
	var r request
	if err := json.Unmarshal(req, &r); err != nil {
		return nil, true, fmt.Errorf("%s: %w", op.Op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, true, s.failed
	}
	if r.Op != opProbe {
		if err = stranger; err == nil {
			err = r.Identity.check()
		}
	}
	if err == nil && r.Op != opProbe && !s.identity.equal(r.Identity) {
		if r.Op == opPropose {
			err = s.checkProposal(r.Identity)
		} else {
			err = s.checkInvitation(r.Identity)
		}
		if err == nil {
			err = s.write(r.Identity)
			s.wake()
		}
	}
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w", r.Op, err)
	}
	resp, err = json.Marshal(Answer{s.self, s.nodes, s.identity})
	return resp, true, err
}

// wake has Settle look at the identity.
func (s *Store) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// checkProposal tells why a proposed identity is not to be taken. The caller holds s.mu.
func (s *Store) checkProposal(p Identity) error {
	own := s.identity
	switch {
	case p.State != Proposed:
		return fmt.Errorf("a proposal of a node that is %s", p.State)
	case p.Member().Node() != s.self || p.Incarnation != own.Incarnation:
		return fmt.Errorf("it is for %s in incarnation %s, and this is %s in incarnation %s",
			p.Member(), p.Incarnation, s.self, own.Incarnation)
	case !slices.Equal(p.Cluster.Nodes(), s.nodes):
		return fmt.Errorf("the cluster is to be %s, and --cluster of %s says %s",
			formatNodes(p.Cluster.Nodes()), s.self.Name, formatNodes(s.nodes))
	case own.State == Empty:
		return nil
	case own.State != Proposed:
		return fmt.Errorf("%s belongs to cluster %s", s.self.Name, own.Cluster.ID)
	case p.founder().Node() != own.founder().Node() || p.founder().Incarnation != own.founder().Incarnation:
		return fmt.Errorf("%s has the proposal of another %s, whose directory was emptied since; empty its directory too",
			s.self.Name, own.founder().Name)
	case p.Round <= own.Round:
		return fmt.Errorf("round %d is over, this is round %d", p.Round, own.Round)
	}
	return nil
}

// checkInvitation tells why an invitation is not to be taken. The caller holds s.mu.
func (s *Store) checkInvitation(p Identity) error {
	own := s.identity
	switch {
	case p.State != Invited:
		return fmt.Errorf("an invitation of a node that is %s", p.State)
	case p.Member().Node() != s.self || p.Incarnation != own.Incarnation:
		return fmt.Errorf("it is for %s in incarnation %s, and this is %s in incarnation %s",
			p.Member(), p.Incarnation, s.self, own.Incarnation)
	case own.State != Empty && (own.State != Invited || own.Cluster.ID != p.Cluster.ID):
		return fmt.Errorf("%s is %s by cluster %s", s.self.Name, own.State, own.Cluster.ID)
	}
	for _, n := range p.Cluster.Nodes() {
		for _, o := range s.nodes {
			if o.Name == n.Name && o.Addr != n.Addr {
				return fmt.Errorf("the cluster has %s, and --cluster of %s says %s", n, s.self.Name, o)
			}
		}
	}
	if !agree(s.nodes, s.self, p.Cluster.Nodes()) {
		return fmt.Errorf("the members would be %s, and --cluster of %s says %s",
			formatNodes(p.Cluster.Nodes()), s.self.Name, formatNodes(s.nodes))
	}
	return nil
}
