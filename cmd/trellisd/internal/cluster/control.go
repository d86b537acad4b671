package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/cmd/internal/control"
	"trellis/reactor"
)

// control answers a request that is none of package member.
func (m *Member) control(ctx context.Context, from wire.Caller, req []byte, stream io.Writer) ([]byte, error) {
	r, err := control.Parse(req)
	if r.Op == opNumbers {
		return m.giveNumbers(ctx, from, req)
	}
	if err == nil && r.Op != control.OpStatus && from.Admin != nil {
		err = fmt.Errorf("%s: %w", r.Op, from.Admin)
	}
	if err != nil {
		return nil, err
	}
	node := m.node.Load()
	if node == nil {
		return nil, errNotYet
	}
	if r.Op != control.OpStatus {
		m.cfg.Log.Info("an administrator's request", "op", r.Op, "by", from.Name, "node", r.Node, "to", r.To)
	}
	switch r.Op {
	case control.OpStatus:
		s := m.status(node)
		if r.Digest {
			takeDigest(&s, m.cfg.Queue, node)
		}
		return json.Marshal(s)
	case control.OpBackup:
		if _, err := node.Backup(ctx, r.Index, stream); err != nil {
			return nil, err
		}
		return json.Marshal(m.status(node))
	}
	st := node.Status()
	if !st.Leads {
		return nil, m.notLeader(st)
	}
	switch r.Op {
	case control.OpTransfer:
		var to member.ID
		switch to, err = named(st, r.To); {
		case err != nil:
		case to == 0 && st.Alone():
			err = node.StepAside(ctx)
		case to != st.Self:
			err = node.Transfer(ctx, to)
		}
	case control.OpAdd:
		err = m.add(ctx, node, st, r.Node)
	case control.OpRemove:
		var id member.ID
		if id, err = named(st, r.Node); err == nil && id == 0 {
			err = errors.New("a request to remove nobody")
		}
		if err == nil {
			err = node.Remove(ctx, id)
		}
	default:
		err = control.ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(m.status(node))
}

// add makes a node a member.
func (m *Member) add(ctx context.Context, node *replica.Node, st replica.Status, name string) error {
	n, err := member.ParseNode(name)
	if err != nil {
		return err
	}
	now := member.Cluster{ID: m.store.Identity().Cluster.ID}
	for _, o := range st.Members {
		now.Members = append(now.Members, o.Member)
		if o.Node() == n && !o.Voter {
			return node.Add(ctx, o.Member) // an attempt before has not come to its end
		}
	}
	added, err := member.Invite(ctx, m.call, now, n)
	if err != nil {
		return err
	}
	return node.Add(ctx, added)
}

// named returns the id of the member of that name, and 0 for no name.
func named(st replica.Status, name string) (member.ID, error) {
	if name == "" {
		return 0, nil
	}
	for _, o := range st.Members {
		if o.Name == name {
			return o.ID, nil
		}
	}
	return 0, fmt.Errorf("there is no member %s", name)
}

// notLeader tells whom to ask instead.
func (m *Member) notLeader(st replica.Status) error {
	for _, o := range st.Members {
		if o.ID == st.Leader {
			return fmt.Errorf("%w; %s does", replica.ErrNotLeader, o.Member)
		}
	}
	return fmt.Errorf("%w, and no leader is known", replica.ErrNotLeader)
}

func (m *Member) status(node *replica.Node) control.Status {
	s := control.Status{
		Node: m.cfg.Self, Cluster: m.store.Identity().Cluster.ID, Status: node.Status(),
		Contradictions: m.cfg.Queue.Contradictions(),
	}
	if q := m.cfg.Queue.Serving(); q != nil && s.Serves {
		s.Clients, s.Connections = m.clientAddr(q.Addrs), connections(q.Reactor)
	} else if f := m.cfg.Queue.Forwarding(); f != nil {
		s.Clients, s.Connections, s.Contact = m.clientAddr(f.Addrs), connections(f.Reactor), contact(f.Reactor)
	}
	s.Unready = m.Unready()
	return s
}

// connections is how many clients are connected to a server.
func connections(srv *reactor.Server) (n int64) {
	for _, l := range srv.Stats().Listeners {
		n += l.Connections
	}
	return n
}

// contact is the age in seconds of a server's contact with the leader, that of the loop that has had none for
// longest; nil if none has any.
func contact(srv *reactor.Server) (age *float64) {
	longest := time.Duration(-1)
	for _, l := range srv.Stats().Loops {
		longest = max(longest, l.Contact)
	}
	if longest < 0 {
		return nil
	}
	seconds := longest.Seconds()
	return &seconds
}

// digestTries is how often a digest is taken anew because an entry was applied meanwhile.
const digestTries = 5

// takeDigest takes the digest of all jobs as of s.Applied. There is none while jobs change all
// the time. (A leader's jobs are ahead of what is applied while something is under way.)
func takeDigest(s *control.Status, q *Queue, node *replica.Node) {
	for range digestTries {
		before := node.Status()
		d := q.Digest(before.Stamp)
		if node.Status().Applied == before.Applied {
			s.Applied, s.Digest = before.Applied, &d
			return
		}
	}
}

// clientAddr is where clients elsewhere reach this node, as far as it can tell: the first
// address of the clients' port, with the host by which the other members know this node
// where it has none.
func (m *Member) clientAddr(addrs []net.Addr) string {
	if len(addrs) == 0 {
		return ""
	}
	for _, a := range addrs {
		tcp, ok := a.(*net.TCPAddr)
		if !ok {
			continue
		}
		if !tcp.IP.IsUnspecified() {
			return tcp.String()
		}
		host, _, err := net.SplitHostPort(m.cfg.Self.Addr)
		if err != nil {
			return tcp.String()
		}
		return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
	}
	return "unix:" + addrs[0].String()
}
