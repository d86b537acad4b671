package member

import (
	"errors"
	"fmt"
	"slices"
)

// State is how far a node is in belonging to a cluster. Only a node that is Joined or
// Invited may have a raft node that answers anybody.
type State uint8

// The states, in the order in which a node goes through them. A node never goes back.
const (
	// Empty belongs to nobody: it has an incarnation and answers probes.
	Empty State = iota

	// Proposed knows the cluster that is to be founded, and promised to be no other's. It
	// has not heard yet that all others did so too.
	Proposed

	// Invited knows the cluster that is about to add it, and has not yet heard from its
	// raft group.
	Invited

	// Joined is a member, and has the entry log and the snapshots of one.
	Joined

	// Removed was a member.
	Removed
)

var stateNames = [...]string{"empty", "proposed", "invited", "joined", "removed"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) {
	if int(s) >= len(stateNames) {
		return nil, fmt.Errorf("there is no %s", s)
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%.20q is not a state of a node", text)
	}
	*s = State(i)
	return nil
}

// Identity is what a directory knows of the node that it belongs to: its mark.
type Identity struct {
	Incarnation Incarnation `json:"incarnation"`
	State       State       `json:"state"`

	// Self is the node's id, and 0 while it is Empty. Cluster.Members has it.
	Self ID `json:"self"`

	// Round counts the proposals of one founder, from 1 on. 0 means that the node did not
	// take part in a founding.
	Round uint64 `json:"round"`

	Cluster Cluster `json:"cluster"`
}

// Alone draws the identity of a node that is a cluster of its own.
func Alone(n Node) (Identity, error) {
	m := Member{ID: NewID(), Incarnation: Incarnation(draw()), Name: n.Name, Addr: n.Addr}
	id := Identity{
		Incarnation: m.Incarnation, State: Joined, Self: m.ID,
		Cluster: Cluster{ID: NewClusterID(), Members: []Member{m}},
	}
	return id, id.check()
}

// Member is the node itself. The zero Member belongs to no cluster.
func (id Identity) Member() Member {
	m, _ := id.Cluster.Member(id.Self)
	return m
}

// founder is the member that proposed the cluster: the one that is named first.
func (id Identity) founder() Member { return id.Cluster.Members[0] }

// equal reports whether two identities are the same.
func (id Identity) equal(o Identity) bool {
	return id.Incarnation == o.Incarnation && id.State == o.State && id.Self == o.Self && id.Round == o.Round &&
		id.Cluster.ID == o.Cluster.ID && slices.Equal(id.Cluster.Members, o.Cluster.Members)
}

func (id Identity) check() error {
	if id.Incarnation == 0 {
		return errors.New("no incarnation")
	}
	if id.State == Empty {
		if id.Self != 0 || id.Round != 0 || id.Cluster.ID != (ClusterID{}) || len(id.Cluster.Members) != 0 {
			return errors.New("an empty node that belongs to a cluster")
		}
		return nil
	}
	if err := id.Cluster.check(); err != nil {
		return err
	}
	m, ok := id.Cluster.Member(id.Self)
	if !ok {
		return fmt.Errorf("the node's id %s is not one of the cluster's", id.Self)
	}
	if m.Incarnation != id.Incarnation {
		return fmt.Errorf("%s is to be incarnation %s and is %s", m.Name, m.Incarnation, id.Incarnation)
	}
	if (id.State == Proposed && id.Round == 0) || (id.State == Invited && id.Round != 0) {
		return fmt.Errorf("round %d of a node that is %s", id.Round, id.State)
	}
	return nil
}
