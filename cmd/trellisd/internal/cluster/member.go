package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/replica/wire"
	"trellis/binlog/vfs"
)

// Config is what a member is made of.
type Config struct {
	Dir   string        // exists, and is this member's alone
	Self  member.Node   // of --node
	Nodes []member.Node // of --cluster; nil if the directory has a mark

	TLS *wire.Credentials // for connections between members; nil on loopback

	Listener net.Listener // for the other members; Close closes it
	Queue    *Queue
	Observer replica.Observer // nil if nobody wants to know
	Log      *slog.Logger

	// Dial connects to other members; nil means TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Node is how the node runs, but for what follows from the rest. Where Queue is not nil, it is one around the
	// member's.
	Node replica.Options
	// Between stands between the node and the transport. Nil is nothing.
	Between func(*replica.Node, replica.Transport) replica.Transport
}

// fs is where the directory is.
func (c *Config) fs() vfs.FS { return cmp.Or[vfs.FS](c.Node.FS, vfs.OS{}) }

// Member is a node with its identity, its connections, and its queue. Make one with
// Open; Run follows, and then Close. All methods may be called from any goroutine.
type Member struct {
	cfg       Config
	lock      io.Closer
	store     *member.Store
	transport *wire.Transport
	call      member.Call

	first   *replica.Node                // made by prepare, for Run; nil if prepare has not run
	invited atomic.Bool                  // the group has not been heard yet
	node    atomic.Pointer[replica.Node] // nil until the member belongs to a cluster
	failed  chan error                   // has the first error that ends the member and does not come from the node
	lastAsk time.Time                    // when look has asked for the members last
	leader  atomic.Pointer[leader]       // as it has told of itself, nil if nobody has
	onState atomic.Pointer[func()]

	lastAnswer atomic.Int64 // when a client's command would have been answered here last, in nanoseconds since 1970

	mu    sync.Mutex
	reign *reign // of whom this member has heard last that it leads; nil if that is itself
}

// Open locks the directory, and begins to answer the other members. Errors name the
// directory or the flag to blame.
func Open(cfg Config) (*Member, error) {
	lock, err := vfs.LockDir(cfg.fs(), cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &Member{cfg: cfg, lock: lock, failed: make(chan error, 1)}
	m.call = func(ctx context.Context, addr string, req []byte) ([]byte, error) {
		return wire.Call(ctx, wire.ClientConfig{TLS: cfg.TLS, Dial: cfg.Dial}, addr, req)
	}
	if m.store, err = member.Open(cfg.fs(), cfg.Dir, cfg.Self, cfg.Nodes); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	q := cfg.Queue
	q.handOver, q.fail, q.changed, q.resign = m.HandOver, m.fail, m.changed, m.resign
	q.leads, q.fence, q.newGateway = m.leads, m.fence, m.newGateway
	m.transport, err = wire.New(wire.Config{
		TLS: cfg.TLS, Nodes: cfg.Nodes, Listener: cfg.Listener, Dial: cfg.Dial, Handler: handler{m}, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return m, nil
}

// Close ends all connections with the other members and frees the directory. Run has
// returned.
func (m *Member) Close() error {
	return errors.Join(m.transport.Close(), m.lock.Close())
}

// Run waits until the member belongs to a cluster, and takes part in it until ctx ends
// or the node cannot go on. When it returns nobody is served any more.
func (m *Member) Run(ctx context.Context) error {
	id, err := m.store.Settle(ctx, m.call, m.cfg.Log, m.prepare)
	if err != nil {
		err = errors.Join(err, m.closeFirst())
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("becoming a member of the cluster: %w", err)
	}
	m.invited.Store(id.State == member.Invited)
	node := m.first
	if node == nil {
		if node, err = replica.Open(m.options(id)); err != nil {
			return fmt.Errorf("opening %s: %w", m.cfg.Dir, err)
		}
	}
	if err := m.agree(ctx, node); err != nil {
		return errors.Join(err, node.Close())
	}
	m.cfg.Log.Info("this node is a member", "cluster", id.Cluster.ID, "node", m.cfg.Self.Name, "id", id.Self)
	m.node.Store(node) // before anybody can reach it
	m.transport.Identify(id.Cluster.ID, id.Member())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(ctx) })
	ran := make(chan error, 1)
	var transport replica.Transport = m.transport
	if m.cfg.Between != nil {
		transport = m.cfg.Between(node, transport)
	}
	go func() { ran <- node.Run(ctx, transport) }()
	select {
	case err = <-ran:
	case failed := <-m.failed:
		cancel(failed)
		err = errors.Join(failed, <-ran)
	}
	cancel(nil)
	watching.Wait()
	m.cfg.Queue.abandon()
	if errors.Is(err, replica.ErrRemoved) || errors.Is(err, replica.ErrForgot) {
		err = errors.Join(err, m.store.Remove()) // it does not run again
	}
	return err
}

// options are those of the node with an identity.
func (m *Member) options(id member.Identity) replica.Options {
	o := m.cfg.Node
	o.Dir, o.New, o.Self, o.Observer, o.Log = m.cfg.Dir, id.State == member.Invited, id.Self, m.cfg.Observer, m.cfg.Log
	o.Queue = cmp.Or[replica.Queue](o.Queue, m.cfg.Queue)
	if o.Free == nil {
		o.Free = func() (int64, error) { return free(m.cfg.Dir) }
	}
	return o
}

// agree checks --cluster. If it names others than this node has on disk, the members may have
// changed while this node was away. So whom either names is asked, once.
func (m *Member) agree(ctx context.Context, node *replica.Node) error {
	lists, err := node.Configurations()
	if err != nil {
		return fmt.Errorf("the members in %s: %w", m.cfg.Dir, err)
	}
	if err = m.store.Agree(lists...); err == nil {
		return nil
	}
	addrs := map[string]bool{}
	for _, n := range m.cfg.Nodes {
		addrs[n.Addr] = true
	}
	for _, o := range lists[len(lists)-1] {
		addrs[o.Addr] = true
	}
	delete(addrs, m.cfg.Self.Addr)
	said := make(chan []member.Member, len(addrs))
	for addr := range addrs {
		go func() { said <- m.askMembers(ctx, addr) }()
	}
	for range addrs {
		if m.store.Agree(<-said) == nil {
			return nil
		}
	}
	return err
}

// askMembers asks a node who the members are; none if it does not answer or belongs to another
// cluster.
func (m *Member) askMembers(ctx context.Context, addr string) (ms []member.Member) {
	s := m.askStatus(ctx, addr)
	if s == nil || s.Cluster != m.store.Identity().Cluster.ID {
		return nil
	}
	for _, o := range s.Members {
		ms = append(ms, o.Member)
	}
	return ms
}

// prepare makes the entry log and the first snapshot of a node that is about to be a
// member, in place of what an attempt before has left. The node stays open for Run.
func (m *Member) prepare(id member.Identity) error {
	if err := m.closeFirst(); err != nil {
		return err
	}
	for _, name := range []string{"entries", "snapshots", "bodies"} {
		if err := vfs.RemoveAll(m.cfg.fs(), filepath.Join(m.cfg.Dir, name)); err != nil {
			return fmt.Errorf("preparing %s: %w", m.cfg.Dir, err)
		}
	}
	if err := vfs.SyncDir(m.cfg.fs(), m.cfg.Dir); err != nil {
		return fmt.Errorf("preparing %s: %w", m.cfg.Dir, err)
	}
	if id.State == member.Joined {
		// All founders begin with the same.
		cs := new(raftpb.ConfState)
		for _, v := range id.Cluster.Members {
			cs.Voters = append(cs.Voters, uint64(v.ID))
		}
		first := snapshot.Meta{Index: 1, Term: 1, ConfState: cs, Members: id.Cluster.Members}
		if err := snapshot.WriteInitial(m.cfg.fs(), filepath.Join(m.cfg.Dir, "snapshots"), first); err != nil {
			return fmt.Errorf("preparing %s: %w", m.cfg.Dir, err)
		}
	}
	o := m.options(id)
	o.New = true
	node, err := replica.Open(o)
	if err != nil {
		return fmt.Errorf("preparing %s: %w", m.cfg.Dir, err)
	}
	m.first = node
	return nil
}

// closeFirst closes a node that prepare has made for nothing.
func (m *Member) closeFirst() error {
	node := m.first
	m.first = nil
	if node == nil {
		return nil
	}
	return node.Close()
}

// join notes that the group of an invited node has been heard, before raft hears it.
func (m *Member) join() bool {
	if !m.invited.Load() {
		return true
	}
	if err := m.store.Join(); err != nil {
		m.fail(err)
		return false
	}
	m.invited.Store(false)
	return true
}

// fail ends the member for a reason that the node does not know.
func (m *Member) fail(err error) {
	select {
	case m.failed <- err:
	default:
	}
}

// Changed has f called when State may tell something else. f must not block.
func (m *Member) Changed(f func()) {
	m.onState.Store(&f)
	f()
}

func (m *Member) changed() {
	if f := m.onState.Load(); f != nil {
		(*f)()
	}
}

// Status is how the member sees the cluster, nil before it belongs to it.
func (m *Member) Status() *replica.Status {
	node := m.node.Load()
	if node == nil {
		return nil
	}
	s := node.Status()
	return &s
}

// Bodies tell of those that may leave the member's memory, nil if none may, or before it belongs to the cluster.
func (m *Member) Bodies() *replica.BodyStats {
	node := m.node.Load()
	if node == nil {
		return nil
	}
	return node.Bodies()
}

// HandOver transfers leadership to the member that has the most. The error says why there is no other leader.
func (m *Member) HandOver(ctx context.Context) error {
	node := m.node.Load()
	if node == nil {
		return replica.ErrNotLeader
	}
	return node.Transfer(ctx, 0)
}

// resign ends the leadership of the node, if it leads.
func (m *Member) resign(why string) {
	if node := m.node.Load(); node != nil {
		node.Resign(why)
	}
}

// leads reports whether the node was elected.
func (m *Member) leads() bool {
	node := m.node.Load()
	return node != nil && node.Status().Leads
}

// fence is that of the node: see [replica.Node.Fence].
func (m *Member) fence(ctx context.Context, l *replica.Leadership, executed bool) (uint64, error) {
	return m.node.Load().Fence(ctx, l, executed)
}

// handler is what the transport calls. Only Control is called before the transport knows
// who this node is, which it learns when there is a node.
type handler struct{ m *Member }

var errNotYet = errors.New("this node belongs to no cluster yet")

// Message implements wire.Handler.
func (h handler) Message(msg *raftpb.Message) {
	if h.m.join() {
		h.m.node.Load().Message(msg)
	}
}

// Snapshot implements wire.Handler.
func (h handler) Snapshot(msg *raftpb.Message, r io.Reader, tell func(has []byte) error) error {
	if !h.m.join() {
		return errNotYet
	}
	return h.m.node.Load().Snapshot(msg, r, tell)
}

// Unreachable implements wire.Handler.
func (h handler) Unreachable(id member.ID) { h.m.node.Load().Unreachable(id) }

// SnapshotSent implements wire.Handler.
func (h handler) SnapshotSent(id member.ID, ok bool) { h.m.node.Load().SnapshotSent(id, ok) }

// NotMember implements wire.Handler.
func (h handler) NotMember(by member.ID) { h.m.node.Load().NotMember(by) }

// Trunk implements wire.Handler.
func (h handler) Trunk(ctx context.Context, from member.Member, hello wire.TrunkHello) (func(*wire.Trunk), error) {
	return h.m.cfg.Queue.takeTrunk(ctx, from, hello)
}

// Control implements wire.Handler.
func (h handler) Control(ctx context.Context, from wire.Caller, req []byte, stream io.Writer) ([]byte, error) {
	if resp, ok, err := h.m.store.Control(req, from.Member); ok {
		return resp, err
	}
	return h.m.control(ctx, from, req, stream)
}
