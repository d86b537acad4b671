package member

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"trellis/binlog/vfs"
)

// ErrDisagrees tells of a command line that names another node or other members than
// the directory does.
var ErrDisagrees = errors.New("the command line disagrees with the directory")

// ErrRemoved tells that the node was removed from its cluster. It comes back only with
// an empty directory.
var ErrRemoved = errors.New("this node was removed from its cluster")

// Store holds the identity of a running node and keeps its mark. All methods may be
// called from any goroutine; those that change the identity wait for the disk.
type Store struct {
	fs    vfs.FS
	dir   string
	self  Node
	nodes []Node // of --cluster; may be empty once the node has joined

	// changed has a token when Control has changed the identity, or failed to.
	changed chan struct{}

	mu       vfs.Mutex // held while the mark is written
	identity Identity  // as it is on disk
	failed   error     // of a write; since then nobody knows what is on disk
}

// Open reads the mark of a directory that the caller has locked. In an empty directory
// it draws an incarnation and makes the first mark. self and nodes are what the command
// line says; nodes may be nil if the directory has a mark.
//
// Open writes the mark again before it returns: a sync of it may have failed in a
// process before, and what the system has in memory need not be on disk.
func Open(fsys vfs.FS, dir string, self Node, nodes []Node) (*Store, error) {
	if err := self.check(); err != nil {
		return nil, err
	}
	if err := checkNodes(nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Name == self.Name && n.Addr != self.Addr {
			return nil, fmt.Errorf("--node says %s, and --cluster says %s", self, n)
		}
		if n.Name != self.Name && n.Addr == self.Addr {
			return nil, fmt.Errorf("--node says %s, and --cluster has that address as %s", self, n)
		}
	}
	s := &Store{
		fs: fsys, dir: dir, self: self, nodes: slices.Clone(nodes), changed: make(chan struct{}, 1), mu: vfs.NewMutex(),
	}
	id, err := Read(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		id, err = Identity{Incarnation: Incarnation(draw())}, nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case id.State != Empty:
		err = s.checkSelf(id)
	case len(nodes) == 0:
		err = fmt.Errorf("%s: %s belongs to no cluster yet, so that --cluster has to name the members", dir, self.Name)
	default:
		err = s.checkEmpty()
	}
	if err != nil {
		return nil, err
	}
	if err := Write(fsys, dir, id); err != nil {
		return nil, err
	}
	s.identity = id
	return s, nil
}

// checkEmpty refuses a directory that belongs to nobody and holds something. Otherwise a
// node that has lost its mark would join anew over its own log, and a plain server's
// directory would get into a cluster without its jobs.
func (s *Store) checkEmpty() error {
	es, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		switch e.Name {
		case "lock", MarkName, markTemp, "lost+found":
		case "entries", "snapshots":
			return fmt.Errorf("%s: %w: it has %s, and its mark is lost; "+
				"remove the node from the cluster, empty the directory, and add it again",
				s.dir, ErrDamaged, e.Name)
		default:
			return fmt.Errorf("%s: %w: it has %s and no mark; a new member's directory is empty", s.dir, ErrForeign, e.Name)
		}
	}
	return nil
}

func (s *Store) checkSelf(id Identity) error {
	me := id.Member()
	switch {
	case me.Node() != s.self:
		return fmt.Errorf("%s: %w: it is that of %s, and --node says %s", s.dir, ErrDisagrees, me.Node(), s.self)
	case id.State == Removed:
		return fmt.Errorf("%s: %w (%s), or has lost what it had acknowledged; "+
			"to add it again, remove it if it is still a member, and empty the directory",
			s.dir, ErrRemoved, id.Cluster.ID)
	case id.State == Proposed && !slices.Equal(s.nodes, id.Cluster.Nodes()):
		return fmt.Errorf("%s: %w: it is to found %s, and --cluster says %s; "+
			"to found another cluster, empty the directories of all",
			s.dir, ErrDisagrees, formatNodes(id.Cluster.Nodes()), formatNodes(s.nodes))
	}
	return nil
}

// Agree returns nil if --cluster names the members that the mark has or those of one of the
// lists, either with or without this node, which may have come later; no --cluster at all
// agrees. Otherwise the error wraps ErrDisagrees, and names the members of the last list. The
// lists are those of now, as far as the caller knows. An empty one is none.
func (s *Store) Agree(lists ...[]Member) error {
	last := s.Identity().Cluster
	ok := len(s.nodes) == 0 || agree(s.nodes, s.self, last.Nodes())
	for _, ms := range lists {
		if c := (Cluster{Members: ms}); len(ms) > 0 {
			ok = ok || agree(s.nodes, s.self, c.Nodes())
			last = c
		}
	}
	if ok {
		return nil
	}
	return fmt.Errorf("%s: %w: the members are %s, as far as is known here, and --cluster says %s; "+
		"name the members of now, or leave --cluster out",
		s.dir, ErrDisagrees, formatNodes(last.Nodes()), formatNodes(s.nodes))
}

// agree reports whether a --cluster names the members, with or without the node itself.
func agree(said []Node, self Node, members []Node) bool {
	others := slices.DeleteFunc(slices.Clone(members), func(n Node) bool { return n == self })
	return sameNodes(said, members) || sameNodes(said, others)
}

// Identity is what is on disk.
func (s *Store) Identity() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// Join makes an Invited node a Joined one. The node calls it when the first message of
// its raft group has come, before raft sees it: from then on the entry log holds what
// other members rely on. It does nothing if the node has joined.
func (s *Store) Join() error {
	return s.advance(Joined, Invited)
}

// Remove makes a member a removed one. It does nothing if it is one.
func (s *Store) Remove() error {
	return s.advance(Removed, Joined, Invited)
}

func (s *Store) advance(to State, from ...State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity.State == to {
		return s.failed
	}
	if !slices.Contains(from, s.identity.State) {
		return fmt.Errorf("a node that is %s cannot become %s", s.identity.State, to)
	}
	next := s.identity
	next.State = to
	return s.write(next)
}

// replace writes next if the identity is still old, and reports whether it was.
func (s *Store) replace(old, next Identity) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.identity.equal(old) {
		return false, nil
	}
	return true, s.write(next)
}

// write makes an identity durable. The caller holds s.mu.
func (s *Store) write(next Identity) error {
	if s.failed != nil {
		return s.failed
	}
	if err := Write(s.fs, s.dir, next); err != nil {
		s.failed = err
		return err
	}
	s.identity = next
	return nil
}
