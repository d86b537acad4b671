package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire/wiretest"
)

// No test leaves a goroutine behind: a transport that was closed has none.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick notices what is wrong sooner than in service, and waits long where nothing is.
var quick = timing{
	pulse:   20 * time.Millisecond,
	dead:    time.Second,
	greet:   2 * time.Second,
	stall:   time.Second,
	finish:  2 * time.Second,
	retry:   5 * time.Millisecond,
	retries: 50 * time.Millisecond,

	farewell: 200 * time.Millisecond,
}

// patient never gives anything up while a test runs, but for the lanes to a removed member.
var patient = timing{
	pulse:   20 * time.Millisecond,
	dead:    time.Minute,
	greet:   time.Minute,
	stall:   time.Minute,
	finish:  time.Minute,
	retry:   5 * time.Millisecond,
	retries: 50 * time.Millisecond,

	farewell: 200 * time.Millisecond,
}

// asks is how a test asks a node, which may take its time.
func asks(c *Credentials) ClientConfig { return ClientConfig{TLS: c, timing: patient} }

// but returns timing with a change.
func (tm timing) but(change func(*timing)) timing {
	change(&tm)
	return tm
}

// node is a Handler that keeps what it is told.
type node struct {
	t       testing.TB
	self    member.Member
	tr      *Transport
	log     *lockedBuffer
	got     chan *raftpb.Message // nil in benchmarks
	sent    chan bool            // of SnapshotSent
	callers chan Caller          // of Control; nil if nobody wants to know
	take    func(m *raftpb.Message, r io.Reader) error
	has     []byte // what it tells before it takes a snapshot; nil: nothing
	control func(ctx context.Context, req []byte) ([]byte, error)
	trunk   func(from member.Member, h TrunkHello) (func(*Trunk), error)
	streams func(req []byte, stream io.Writer) ([]byte, error) // instead of control, if it is set

	mu          sync.Mutex
	messages    []*raftpb.Message
	unreachable map[member.ID]int
	notMember   map[member.ID]int
}

func (n *node) Message(m *raftpb.Message) {
	if n.got != nil {
		n.got <- m
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.messages = append(n.messages, m)
}

func (n *node) Snapshot(m *raftpb.Message, r io.Reader, tell func([]byte) error) error {
	if n.has != nil {
		if err := tell(n.has); err != nil {
			return err
		}
	}
	return n.take(m, r)
}

func (n *node) Unreachable(id member.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unreachable[id]++
}

func (n *node) NotMember(id member.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notMember[id]++
}

func (n *node) SnapshotSent(id member.ID, ok bool) { n.sent <- ok }

func (n *node) Trunk(_ context.Context, from member.Member, h TrunkHello) (func(*Trunk), error) {
	return n.trunk(from, h)
}

func (n *node) Control(ctx context.Context, from Caller, req []byte, stream io.Writer) ([]byte, error) {
	if n.callers != nil {
		n.callers <- from
	}
	if n.streams != nil {
		return n.streams(req, stream)
	}
	return n.control(ctx, req)
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.messages)
}

// received are the messages so far. More may come.
func (n *node) received() []*raftpb.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.messages)
}

func (n *node) lost(id member.ID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unreachable[id]
}

// logs waits until the node has logged a text, and checks that it is one line.
func (n *node) logs(text string) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s logs %q", n.self.Name, text), func() bool { return strings.Contains(n.log.String(), text) })
	if c := strings.Count(n.log.String(), text); c != 1 {
		n.t.Errorf("%s logs %q %d times:\n%s", n.self.Name, text, c, n.log)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var testCluster = member.ClusterID{1, 2, 3}

// setup is how nodes of a test are made.
type setup struct {
	timing timing
	net    *testNetwork
	tls    func(i int) *Credentials
	change func(i int, n *node, cfg *Config)
}

// nodes starts nodes that know each other, as of entry 1.
func nodes(t testing.TB, n int, s setup) []*node {
	t.Helper()
	ns := nodesUnacquainted(t, n, s)
	members := make([]member.Member, n)
	for i, x := range ns {
		members[i] = x.self
	}
	for _, x := range ns {
		x.tr.SetPeers(1, members)
	}
	return ns
}

// nodesUnacquainted starts nodes that do not know who the members are.
func nodesUnacquainted(t testing.TB, n int, s setup) []*node {
	t.Helper()
	if s.timing == (timing{}) {
		s.timing = quick
	}
	ns, ls := make([]*node, n), make([]net.Listener, n)
	members := make([]member.Member, n)
	for i := range ns {
		l, err := net.Listen("tcp", wiretest.ReservedAddr(t)) // nodes are started again
		if err != nil {
			t.Fatal(err)
		}
		ls[i] = l
		members[i] = member.Member{
			ID: member.ID(101 + i), Incarnation: member.Incarnation(1001 + i),
			Name: fmt.Sprintf("n%d", i+1), Addr: l.Addr().String(),
		}
		if s.net != nil {
			s.net.Name(members[i].Addr, members[i].Name)
		}
	}
	for i, m := range members {
		x := &node{
			t: t, self: m, log: &lockedBuffer{}, sent: make(chan bool, 16),
			unreachable: map[member.ID]int{}, notMember: map[member.ID]int{},
		}
		ns[i] = x
		cfg := Config{Self: m, Cluster: testCluster, Listener: ls[i], Handler: x, Log: slog.New(slog.NewTextHandler(x.log, nil))}
		if s.net != nil {
			cfg.Dial = s.net.Dialer(m.Name)
		}
		if s.tls != nil {
			cfg.TLS = s.tls(i)
		}
		if s.change != nil {
			s.change(i, x, &cfg)
		}
		tr, err := start(cfg, s.timing)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.Close() })
		x.tr = tr
	}
	return ns
}

// meet waits until all nodes are connected.
func meet(t testing.TB, ns ...*node) {
	t.Helper()
	for _, a := range ns {
		for _, b := range ns {
			if a != b {
				eventually(t, a.self.Name+" is connected to "+b.self.Name, func() bool { return a.connected(b.self.ID) })
			}
		}
	}
}

// connected reports whether all lanes to a member have a connection.
func (n *node) connected(id member.ID) bool {
	p := n.tr.members.Load().peers[id]
	if p == nil {
		return false
	}
	for _, l := range p.lanes {
		l.mu.Lock()
		up := l.up
		l.mu.Unlock()
		if !up {
			return false
		}
	}
	return true
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about that %s", what)
		}
	}
}

func message(k raftpb.MessageType, from, to *node) *raftpb.Message {
	return &raftpb.Message{Type: &k, From: new(uint64(from.self.ID)), To: new(uint64(to.self.ID)), Term: new(uint64(5))}
}

// appendOf is a MsgApp with entries of those sizes, behind entry index of term 3.
func appendOf(from, to *node, index uint64, sizes ...int) *raftpb.Message {
	m := message(raftpb.MsgApp, from, to)
	m.Index, m.LogTerm, m.Commit = new(index), new(uint64(3)), new(index)
	for i, size := range sizes {
		m.Entries = append(m.Entries, &raftpb.Entry{
			Index: new(index + 1 + uint64(i)), Term: new(uint64(4)), Type: raftpb.EntryNormal.Enum(),
			Data: bytes.Repeat([]byte{byte(index + 1 + uint64(i))}, size),
		})
	}
	return m
}

// dialAs connects to a node as a member would, up to the answer to the handshake.
func dialAs(t testing.TB, to *node, h hello) (net.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", to.self.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write(h.encode()); err != nil {
		t.Fatal(err)
	}
	_, err = readReply(c, h.speaks)
	return c, err
}

func helloOf(p purpose, from, to *node) hello {
	return hello{speaks: spoken(), purpose: p, cluster: testCluster, from: from.self, index: 1, to: stationOf(to.self)}
}

// ended waits until the other side has closed a connection.
func ended(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, c); err != nil {
		if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
			t.Fatal("the connection goes on")
		}
	}
}
