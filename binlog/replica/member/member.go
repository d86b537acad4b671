package member

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Limits of what names members.
const (
	MaxName    = 64  // bytes of a name
	MaxAddr    = 259 // bytes of an address: a host name of 253, a colon, a port
	MaxMembers = 32  // members of a cluster
)

// ID is raft's id of a member. It is random, never 0, and once a node has answered under
// it never used again: a node that was removed comes back under another.
type ID uint64

// NewID draws an id.
func NewID() ID { return ID(draw()) }

// draw returns a random number that is not 0.
func draw() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// String is the id in 16 hexadecimal digits, as logs and JSON have it.
func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	n, err := parseHex(text)
	*id = ID(n)
	return err
}

// Incarnation tells one life of a directory from another. It is drawn at the first
// start in an empty directory and never 0, so that a node whose directory was wiped
// does not pass for the member that it was.
type Incarnation uint64

// String is the incarnation in 16 hexadecimal digits, as logs and JSON have it.
func (i Incarnation) String() string { return ID(i).String() }

// MarshalText implements encoding.TextMarshaler.
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *Incarnation) UnmarshalText(text []byte) error {
	n, err := parseHex(text)
	*i = Incarnation(n)
	return err
}

func parseHex(text []byte) (uint64, error) {
	var b [8]byte
	if len(text) != 16 {
		return 0, fmt.Errorf("%.20q is not a number of 16 hexadecimal digits", text)
	}
	if _, err := hex.Decode(b[:], text); err != nil {
		return 0, fmt.Errorf("%q is not a number of 16 hexadecimal digits", text)
	}
	return binary.BigEndian.Uint64(b[:]), nil
}

// ClusterID is a cluster's id: random, and zero for a node that belongs to none.
type ClusterID [16]byte

// NewClusterID draws an id.
func NewClusterID() (id ClusterID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// String is the id in 32 hexadecimal digits, as logs and JSON have it.
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler.
func (id ClusterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ClusterID) UnmarshalText(text []byte) error {
	if len(text) != 2*len(id) {
		return fmt.Errorf("%.40q is not a cluster's id of 32 hexadecimal digits", text)
	}
	if _, err := hex.Decode(id[:], text); err != nil {
		return fmt.Errorf("%q is not a cluster's id of 32 hexadecimal digits", text)
	}
	return nil
}

// Node is a node as the command line names it.
type Node struct {
	Name string `json:"name"` // see CheckName
	Addr string `json:"addr"` // host:port of the peers' port; see CheckAddr
}

func (n Node) check() error {
	if err := CheckName(n.Name); err != nil {
		return err
	}
	return CheckAddr(n.Addr)
}

func (n Node) String() string { return n.Name + "=" + n.Addr }

// Member is a node that belongs to a cluster.
type Member struct {
	ID          ID          `json:"id"`
	Incarnation Incarnation `json:"incarnation"`
	Name        string      `json:"name"`
	Addr        string      `json:"addr"` // host:port of the peers' port
}

// Node is the member as the command line names it.
func (m Member) Node() Node { return Node{m.Name, m.Addr} }

func (m Member) String() string { return m.Name + " (" + m.Addr + ")" }

// Cluster is a cluster's id and its members at some time: in the mark of a directory
// those at the founding, or at the time when the node joined. The members of today are
// those of raft's ConfState.
type Cluster struct {
	ID      ClusterID `json:"id"`
	Members []Member  `json:"members"`
}

// Member returns the member with that id.
func (c Cluster) Member(id ID) (Member, bool) {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return c.Members[i], true
}

// Nodes are the members as the command line names them.
func (c Cluster) Nodes() []Node {
	ns := make([]Node, len(c.Members))
	for i, m := range c.Members {
		ns[i] = m.Node()
	}
	return ns
}

func (c Cluster) check() error {
	switch {
	case c.ID == ClusterID{}:
		return errors.New("the cluster's id is zero")
	case len(c.Members) == 0:
		return errors.New("the cluster has no members")
	case len(c.Members) > MaxMembers:
		return fmt.Errorf("%d members, at most %d are possible", len(c.Members), MaxMembers)
	}
	if err := checkNodes(c.Nodes()); err != nil {
		return err
	}
	for i, m := range c.Members {
		if m.ID == 0 || m.Incarnation == 0 {
			return fmt.Errorf("%s has no id or no incarnation", m.Name)
		}
		if slices.ContainsFunc(c.Members[:i], func(o Member) bool { return o.ID == m.ID }) {
			return fmt.Errorf("the id %s is there twice", m.ID)
		}
	}
	return nil
}

// CheckName reports whether a node may have that name: 1 to MaxName letters, digits, dots,
// underscores and hyphens of ASCII, the first one not a hyphen.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || name[0] == '-' || strings.ContainsFunc(name, notInNames) {
		return fmt.Errorf("%.80q is not a node's name: 1 to %d letters, digits and . _ -, not beginning with -",
			name, MaxName)
	}
	return nil
}

// notInNames reports whether neither a node's name nor a host's has that character.
func notInNames(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
}

// CheckAddr reports whether peers can dial that address: a host name or an IP address that
// is not the unspecified one, an IPv6 address in brackets, and a port from 1 to 65535.
func CheckAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || len(addr) > MaxAddr {
		return fmt.Errorf("%.300q is not an address host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Errorf("%q is not an address host:port: the port is not a number from 1 to 65535", addr)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return fmt.Errorf("%q is no address that other members can dial", addr)
		}
		return nil
	}
	if strings.ContainsFunc(host, notInNames) {
		return fmt.Errorf("%q is not an address host:port: the host is neither a name nor an IP address", addr)
	}
	return nil
}

// ParseNode reads name=host:port, as --node has it.
func ParseNode(s string) (Node, error) {
	name, addr, ok := strings.Cut(s, "=")
	if !ok {
		return Node{}, fmt.Errorf("%.300q is not name=host:port", s)
	}
	n := Node{name, addr}
	return n, n.check()
}

// ParseNodes reads n1=host:port,n2=host:port,..., as --cluster has it. No name and no
// address is there twice.
func ParseNodes(s string) ([]Node, error) {
	var ns []Node
	for part := range strings.SplitSeq(s, ",") {
		n, err := ParseNode(part)
		if err != nil {
			return nil, err
		}
		if ns = append(ns, n); len(ns) > MaxMembers {
			return nil, fmt.Errorf("a cluster has at most %d members", MaxMembers)
		}
	}
	return ns, checkNodes(ns)
}

func checkNodes(ns []Node) error {
	for i, n := range ns {
		if err := n.check(); err != nil {
			return err
		}
		for _, o := range ns[:i] {
			if o.Name == n.Name {
				return fmt.Errorf("the name %s is there twice", n.Name)
			}
			if o.Addr == n.Addr {
				return fmt.Errorf("%s and %s have the same address, %s", o.Name, n.Name, n.Addr)
			}
		}
	}
	return nil
}

// formatNodes is the inverse of ParseNodes.
func formatNodes(ns []Node) string {
	parts := make([]string, len(ns))
	for i, n := range ns {
		parts[i] = n.String()
	}
	return strings.Join(parts, ",")
}

// sameNodes reports whether two lists name the same nodes, in any order.
func sameNodes(a, b []Node) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(n Node) bool { return !slices.Contains(b, n) })
}
