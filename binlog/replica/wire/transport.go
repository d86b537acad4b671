package wire

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

// errClosed ends what a transport does when it is closed.
var errClosed = errors.New("the transport is closed")

// Transport carries messages between this node and the other members.
type Transport struct {
	cfg    Config
	log    *limitedLog
	timing timing
	speaks versions

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	all    sync.WaitGroup // of all goroutines

	// members is who this node and the others are. SetPeers, Identify and admit replace it,
	// with mu held.
	members atomic.Pointer[members]

	// Each has a token for every connection of its purpose that is served.
	controls, snapshots chan struct{}

	mu       sync.Mutex
	closed   bool
	greeting []net.Conn              // that have not said who they are, oldest first
	inbound  map[inboundKey]net.Conn // of lanes
	streams  map[member.ID]*outStream
	taking   *inStream // the snapshot that comes in
	standing map[*standing]bool
	gateways map[member.ID]*gateway // that have trunks, or have had some

	announced []member.Member // by Announce
}

// members is never changed once it is published.
type members struct {
	cluster      member.ClusterID
	self         member.Member
	index        uint64              // of an entry as of which SetPeers has named the members
	includesSelf bool                // this node is one of those
	peers        map[member.ID]*peer // the others, and newcomers; nil before SetPeers
}

type peer struct {
	member.Member
	newcomer uint64 // index of its hello if SetPeers has not named it yet, else 0; guarded by Transport.mu
	lanes    [lanes]*lane
	arrived  [lanes]atomic.Uint64 // bytes that have come on its lanes
	cancel   context.CancelFunc
	ctx      context.Context // ends when it is a member no more, or with another address
}

type inboundKey struct {
	from    member.ID
	purpose purpose
}

// New starts a transport: it takes connections at once.
func New(cfg Config) (*Transport, error) { return start(cfg, usual) }

func start(cfg Config, tm timing) (*Transport, error) {
	if cfg.TLS == nil {
		if err := CheckPlain(cfg.Listener.Addr().String()); err != nil {
			return nil, err
		}
	}
	t := &Transport{
		cfg: cfg, timing: tm, speaks: cmp.Or(cfg.speaks, spoken()), log: &limitedLog{log: cfg.Log},
		controls: make(chan struct{}, maxControl), snapshots: make(chan struct{}, maxStreams),
		inbound: map[inboundKey]net.Conn{},
		streams: map[member.ID]*outStream{}, standing: map[*standing]bool{},
		gateways: map[member.ID]*gateway{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.members.Store(&members{cluster: cfg.Cluster, self: cfg.Self})
	t.all.Go(t.accept)
	if cfg.TLS != nil {
		t.all.Go(t.watchAuthorities)
	}
	return t, nil
}

// Identify says who the node is, once it belongs to a cluster.
func (t *Transport) Identify(cluster member.ClusterID, self member.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := *t.members.Load()
	next.cluster, next.self = cluster, self
	t.members.Store(&next)
}

// SetPeers says who the members are as of the entry of raft's log with that index; this
// node may be one of them. A node that has applied nothing yet says so by index 0. Indexes
// never fall. Connections to members that are new are made from now on, and those to and
// from others end, but for newcomers (see doc.go) that know of a later entry.
func (t *Transport) SetPeers(index uint64, ms []member.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	old := t.members.Load()
	next := &members{cluster: old.cluster, self: old.self, index: index, peers: map[member.ID]*peer{}}
	for _, m := range ms {
		if m.ID == old.self.ID {
			next.includesSelf = true
			continue
		}
		p := old.peers[m.ID]
		if p == nil || p.Member != m {
			p = t.connect(m)
		}
		p.newcomer = 0
		next.peers[m.ID] = p
	}
	for id, p := range old.peers {
		switch {
		case next.peers[id] == p:
		case next.peers[id] == nil && p.newcomer > index:
			next.peers[id] = p
		default:
			t.disconnect(p)
		}
	}
	t.members.Store(next)
}

// disconnect ends the connections with a former peer. The caller holds t.mu.
func (t *Transport) disconnect(p *peer) {
	time.AfterFunc(t.timing.farewell, p.cancel)
	for purpose := purposeAppends; purpose <= purposeRest; purpose++ {
		if c := t.inbound[inboundKey{p.ID, purpose}]; c != nil {
			_ = c.Close()
		}
	}
	if t.taking != nil && t.taking.from == p.ID {
		_ = t.taking.conn.Close()
	}
	if g := t.gateways[p.ID]; g != nil && g.conns == 0 {
		delete(t.gateways, p.ID) // otherwise its last connection has it deleted
	}
}

// connect starts the lanes to a member. The caller holds t.mu.
func (t *Transport) connect(m member.Member) *peer {
	p := &peer{Member: m}
	ctx, cancel := context.WithCancelCause(t.ctx)
	p.ctx, p.cancel = ctx, func() { cancel(errNoMember) }
	for i := range p.lanes {
		l := &lane{
			t: t, peer: p, purpose: purposeAppends + purpose(i), waker: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		}
		p.lanes[i] = l
		t.all.Go(l.run)
	}
	return p
}

// Send sends a message to its member, or discards it. It never blocks. The message and its
// entries must not be changed any more. Messages of kinds that do not cross (see doc.go)
// are discarded without a word, and a MsgSnap is for SendSnapshot.
func (t *Transport) Send(m *raftpb.Message) {
	if !crosses(m.GetType()) {
		return
	}
	id := member.ID(m.GetTo())
	p := t.members.Load().peers[id]
	if p == nil {
		t.lost(id)
		return
	}
	l := p.lanes[purposeRest-1]
	if m.GetType() == raftpb.MsgApp {
		l = p.lanes[purposeAppends-1]
	}
	if !l.put(m) {
		t.lost(id)
	}
}

// Arrived is how many bytes have come from a member on its lane for appends since it is one,
// with those of messages that are not complete; 0 of a member that is not known.
func (t *Transport) Arrived(from member.ID) uint64 {
	if p := t.members.Load().peers[from]; p != nil {
		return p.arrived[purposeAppends-1].Load()
	}
	return 0
}

// Close ends all connections, and returns when no goroutine of the transport is left.
func (t *Transport) Close() error {
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.cancel()
	t.mu.Unlock()
	if closed {
		return nil
	}
	err := t.cfg.Listener.Close()
	t.all.Wait()
	return err
}

// lost tells the handler that messages to a member were lost.
func (t *Transport) lost(id member.ID) {
	if t.ctx.Err() == nil {
		t.cfg.Handler.Unreachable(id)
	}
}

// until closes a connection when a context ends, until stop is called.
func until(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.Close() })
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// limitedLog writes each line once a minute at most, because a peer that is refused tries
// again at once, and no more than maxSaid different lines in that time.
type limitedLog struct {
	log *slog.Logger

	mu         sync.Mutex
	lastLogged map[string]time.Time
}

const maxSaid = 256

// warn logs why something was refused or was lost; peer is a name or an address without
// a port, so that attempts of the same peer are the same line.
func (l *limitedLog) warn(msg, peer string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := line(err)
	key := msg + "\x00" + peer + "\x00" + text
	now := time.Now()
	if at, ok := l.lastLogged[key]; ok && now.Sub(at) < time.Minute {
		return
	}
	if len(l.lastLogged) >= maxSaid {
		maps.DeleteFunc(l.lastLogged, func(_ string, at time.Time) bool { return now.Sub(at) >= time.Minute })
		if len(l.lastLogged) >= maxSaid {
			return
		}
	}
	if l.lastLogged == nil {
		l.lastLogged = map[string]time.Time{}
	}
	l.lastLogged[key] = now
	l.log.Warn(msg, "peer", peer, "error", text)
}

// line is an error in one line, without what would make each time another line: the ports of
// a connection, and the time at which a certificate was not valid.
func line(err error) string {
	text := err.Error()
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		text = strings.Replace(text, op.Error(), op.Op+": "+op.Err.Error(), 1)
	}
	if bad := (x509.CertificateInvalidError{}); errors.As(err, &bad) && bad.Reason == x509.Expired {
		c := bad.Cert
		text = strings.Replace(text, bad.Detail,
			fmt.Sprintf("it is from %s to %s", c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339)), 1)
	}
	return strings.ReplaceAll(text, "\n", "; ")
}
