package replica

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// cluster is some nodes in one process, with a network, disks and clocks that the test
// has in its hands. All nodes tick together, and no tick comes before all have done what
// the last one made them do, disks included: on a busy machine time goes slower for all
// of them.
type cluster struct {
	t     *testing.T
	nodes []*peer
	net   *network
	rng   *rand.Rand
	halt  chan struct{}
	group sync.WaitGroup

	queue   func(*model) Queue // what a node replicates; nil stands for the model
	timeout int                // of clients, in ticks; 0 is without end
	period  time.Duration      // of ticks, at least
	wires   *wires             // if nodes talk over real connections
	rate    int                // bytes a second that one of these carries at most; 0 is any number

	served    sync.Mutex
	servedAll []served // all leaderships; served guards it
}

// peer is a machine: what is left of a node when its process ends, and the process.
type peer struct {
	id    member.ID
	name  string
	fs    *faultfs.FS
	clock *testClock
	begun bool // the node has run before
	bytes int64

	retireTime time.Duration
	hangGrace  time.Duration
	onRetire   func()      // of its queue
	newest     uint32      // version of entries that its program can read
	reserve    int64       // of its disk; 0 does not look at that
	plenty     atomic.Bool // its disk says that much is free

	ticks  chan time.Time
	frozen atomic.Bool // gets no ticks
	stuck  atomic.Bool // its disk does not answer: nobody waits for it
	loads  atomic.Bool // it makes its queue, which nobody waits for
	full   atomic.Bool // it may wait for space: nobody waits for long
	member member.Member

	mu    sync.Mutex
	node  *Node // nil while the machine is down
	queue *model
	stop  context.CancelFunc
	ended chan struct{}
	err   error  // of Run
	last  uint64 // index of the last entry when Run ended
}

const clusterDir = "/n"

// testClock is a machine's clock. It runs with the ticks, and may jump.
type testClock struct {
	mono atomic.Int64
	wall atomic.Int64 // what is added to mono
}

func (c *testClock) tick() { c.mono.Add(int64(Tick)) }

func (c *testClock) Mono() int64 { return c.mono.Load() }
func (c *testClock) Wall() int64 { return c.wall.Load() + c.mono.Load() }

const startOfTime = 1_700_000_000_000_000_000

// newCluster makes a cluster of n voters, none of which runs.
func newCluster(t *testing.T, n int, seed uint64) *cluster {
	t.Helper()
	return makeCluster(t, n, seed, time.Millisecond, nil)
}

// newWiredCluster makes one whose nodes talk over real connections.
func newWiredCluster(t *testing.T, n int) *cluster {
	t.Helper()
	var addrs []string
	for range n {
		addrs = append(addrs, wiretest.ReservedAddr(t))
	}
	return makeCluster(t, n, 1, 10*time.Millisecond, addrs)
}

func makeCluster(t *testing.T, n int, seed uint64, period time.Duration, addrs []string) *cluster {
	t.Helper()
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 1)), halt: make(chan struct{}), period: period}
	if addrs != nil {
		c.wires = &wires{cluster: c, away: map[link]int{}}
	}
	c.net = &network{cluster: c, cut: map[link]bool{}}
	meta := snapshot.Meta{Index: 1, Term: 1, ConfState: &raftpb.ConfState{}}
	for i := range n {
		m := member.Member{ID: member.ID(i + 1), Incarnation: 1, Name: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("127.0.0.1:%d", i+1)}
		if addrs != nil {
			m.Addr = addrs[i]
		}
		meta.ConfState.Voters = append(meta.ConfState.Voters, uint64(m.ID))
		meta.Members = append(meta.Members, m)
	}
	raftpb.EnsureConfState(meta.ConfState)
	for _, m := range meta.Members {
		c.addPeer(m, meta)
	}
	c.group.Go(c.drive)
	t.Cleanup(c.close)
	return c
}

func (c *cluster) addPeer(m member.Member, meta snapshot.Meta) *peer {
	p := &peer{id: m.ID, name: m.Name, member: m, fs: faultfs.New(clusterDir), clock: &testClock{}, ticks: make(chan time.Time), hangGrace: waitTime}
	p.clock.wall.Store(startOfTime)
	if meta.Index > 0 {
		dir := filepath.Join(clusterDir, snapshotsDir)
		if err := errors.Join(p.fs.Mkdir(dir), vfs.SyncDir(p.fs, clusterDir), snapshot.WriteInitial(p.fs, dir, meta)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.net.mu.Lock()
	c.nodes = append(c.nodes, p)
	c.net.mu.Unlock()
	return p
}

func (c *cluster) close() {
	close(c.halt)
	c.group.Wait()
	for _, p := range c.nodes {
		p.kill()
	}
	c.net.wait.Wait()
	if c.t.Failed() {
		c.t.Log(c.net.logged())
	}
}

// drive makes time pass.
func (c *cluster) drive() {
	for {
		select {
		case <-c.halt:
			return
		case <-time.After(c.period):
		}
		for _, p := range c.net.peers() {
			p.clock.tick()
			p.mu.Lock()
			if p.queue != nil {
				p.queue.tick()
			}
			p.mu.Unlock()
			if !p.frozen.Load() {
				p.tick()
			}
		}
		c.net.pass()
		c.wires.pass()
	}
}

// tick has a node tick, and do all that it has to do. A test that has a disk not answer says so
// in the call that hangs, and takes it back before it lets the call go on: what comes before and after
// that takes no ticks.
func (p *peer) tick() {
	p.mu.Lock()
	n := p.node
	p.mu.Unlock()
	if n == nil {
		return
	}
	select {
	case p.ticks <- time.Time{}:
	case <-n.stopped:
		return
	}
	done := make(chan struct{})
	n.inbox.call(func() { close(done) })
	select {
	case <-done:
	case <-n.stopped:
	}
	busy := func() bool {
		return n.writer.pendingMessages.Load() > 0 || !p.loads.Load() && n.applier.pendingTasks.Load() > 0
	}
	for began := time.Now(); !p.stuck.Load() && !n.ended() && busy(); time.Sleep(50 * time.Microsecond) {
		if p.full.Load() && time.Since(began) > time.Second {
			return
		}
	}
}

// start starts a node on its machine.
func (c *cluster) start(p *peer) error {
	queue := newModel()
	queue.timeout = c.timeout
	queue.onRetire = p.onRetire
	queue.onServe = func(s served) {
		c.served.Lock()
		defer c.served.Unlock()
		c.servedAll = append(c.servedAll, s)
	}
	var replicated Queue = queue
	if c.queue != nil {
		replicated = c.queue(queue)
	}
	n, err := Open(Options{
		Dir: clusterDir, New: !p.begun, Self: p.id, Queue: replicated, Clock: p.clock, FS: p.fs,
		SnapshotBytes: p.bytes, SegmentSize: 16 << 10, retireTime: p.retireTime, hangGrace: p.hangGrace, Newest: p.newest,
		Free: p.free(), Reserve: p.reserve, Ticks: p.ticks,
		Log: slog.New(slog.NewTextHandler(&prefixed{c.net, p.name}, nil)),
	})
	if err != nil {
		return err
	}
	p.begun = true
	transport, closed, err := c.transport(p, n)
	if err != nil {
		return errors.Join(err, n.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := make(chan struct{})
	p.node, p.queue, p.stop, p.ended, p.err = n, queue, cancel, ended, nil
	go func() {
		err := n.Run(ctx, transport)
		closed()
		p.mu.Lock()
		p.err = err
		p.node = nil
		p.last = n.Status().Last
		p.mu.Unlock()
		close(ended)
	}()
	return nil
}

// free tells how much is free on a machine's disk, nil if it does not tell.
func (p *peer) free() func() (int64, error) {
	if p.reserve == 0 {
		return nil
	}
	return func() (int64, error) {
		if p.plenty.Load() {
			return 1 << 40, nil
		}
		return p.fs.Free(), nil
	}
}

// transport is a node's, and what closes it.
func (c *cluster) transport(p *peer, n *Node) (Transport, func(), error) {
	if c.wires == nil {
		return &port{c.net, p}, func() {}, nil
	}
	l, err := net.Listen("tcp", p.member.Addr)
	if err != nil {
		return nil, nil, err
	}
	t, err := wire.New(wire.Config{
		Self: p.member, Cluster: member.ClusterID{1}, Listener: l, Handler: handler{n, c.wires}, Log: slog.New(slog.DiscardHandler),
		Dial: c.dial,
	})
	return &wiredPort{t, c.wires}, func() { _ = t.Close() }, err
}

// dial connects to a node.
func (c *cluster) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil || c.rate == 0 {
		return conn, err
	}
	return &slowConn{conn, c.rate}, nil
}

// slowConn is a connection over a slow link.
type slowConn struct {
	net.Conn
	rate int // bytes a second
}

func (c *slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:min(len(b), n+16<<10)]
		time.Sleep(time.Duration(len(part)) * time.Second / time.Duration(c.rate))
		var m int
		m, err = c.Conn.Write(part)
		n += m
	}
	return n, err
}

func (c *cluster) startAll() *cluster {
	c.t.Helper()
	for _, p := range c.nodes {
		if err := c.start(p); err != nil {
			c.t.Fatal(err)
		}
	}
	return c
}

// kill ends the process on a machine.
func (p *peer) kill() {
	p.mu.Lock()
	stop, ended := p.stop, p.ended
	p.mu.Unlock()
	if stop == nil {
		return
	}
	p.fs.Off()
	stop()
	<-ended
	p.fs = p.fs.Killed()
}

// restart kills a node, and starts it once something was done without it.
func (c *cluster) restart(p *peer, meanwhile ...func()) {
	c.t.Helper()
	p.kill()
	for _, do := range meanwhile {
		do()
	}
	if err := c.start(p); err != nil {
		c.t.Fatal(err)
	}
}

// running is the node on a machine, nil if it is down.
func (p *peer) running() *Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

// end is what Run has returned, once it has.
func (p *peer) end() (error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err, p.node == nil
}

// eventually waits for a condition.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(waitTime); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b := make([]byte, 1<<20)
			c.t.Logf("%s", b[:runtime.Stack(b, true)])
			c.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// leader waits until one of the nodes serves and says so, and returns it.
func (c *cluster) leader(among ...*peer) (l *peer) {
	c.t.Helper()
	if len(among) == 0 {
		among = c.nodes
	}
	c.eventually("a leader", func() bool {
		for _, p := range among {
			if n := p.running(); n != nil && p.queue.serves() {
				if _, err := n.leading(); err != nil { // it has still to be published
					continue
				}
				l = p
				return true
			}
		}
		return false
	})
	return l
}

// others are all peers but one.
func (c *cluster) others(p *peer) []*peer {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(o *peer) bool { return o == p })
}

// must executes a command where somebody serves, again if it was refused, until it is
// acknowledged. A command whose outcome is unknown is executed again too.
func (c *cluster) must(do func(q *model) error) {
	c.t.Helper()
	c.eventually("a command is acknowledged", func() bool {
		for _, p := range c.nodes {
			if p.running() != nil && p.queue.serves() && do(p.queue) == nil {
				return true
			}
		}
		return false
	})
}

// settled waits until all running nodes have the same jobs, and returns the digest.
func (c *cluster) settled() (d Digest) {
	c.t.Helper()
	c.must(func(q *model) error { _, _, err := q.peek(1); return err })
	c.eventually("all nodes hold the same", func() bool {
		var applied []uint64
		for _, p := range c.nodes {
			n := p.running()
			if n == nil {
				continue
			}
			s := n.Status()
			if s.Applied != s.Last {
				return false
			}
			applied = append(applied, s.Applied)
		}
		return len(slices.Compact(applied)) == 1
	})
	first, stamp := true, int64(0)
	for _, p := range c.nodes {
		n := p.running()
		if n == nil {
			continue
		}
		if first { // an idle leader tells the others the time
			stamp = n.Status().Stamp
		}
		if g := n.opts.Queue.Digest(stamp); first {
			d, first = g, false
		} else if g != d {
			c.t.Errorf("%s holds %v, another node %v", p.name, g, d)
		}
	}
	return d
}

// wait lets ticks pass.
func (c *cluster) wait(ticks int) {
	c.net.mu.Lock()
	until := c.net.tick + ticks
	c.net.mu.Unlock()
	c.eventually("time passes", func() bool {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		return c.net.tick >= until
	})
}

// checkTime checks that cluster time has never gone back from leadership to leadership, and that
// terms and ids have only grown.
func (c *cluster) checkTime() {
	var all []served
	c.served.Lock()
	defer c.served.Unlock()
	all = c.servedAll
	for i := range all {
		for _, s := range all {
			if s.term < all[i].term && (s.nextID > all[i].nextID || s.now > all[i].now) {
				c.t.Errorf("leadership %+v is followed by %+v", s, all[i])
			}
			if s.term == all[i].term && s != all[i] {
				c.t.Errorf("two leaderships of one term: %+v and %+v", s, all[i])
			}
		}
	}
}

type link struct{ from, to member.ID }

// network brings messages from node to node, or not.
type network struct {
	streamed atomic.Int64 // bytes of snapshots
	cluster  *cluster
	wait     sync.WaitGroup

	mu     sync.Mutex
	cut    map[link]bool
	tick   int
	filter func(m *raftpb.Message) bool // false drops
	text   bytes.Buffer
}

type prefixed struct {
	net  *network
	name string
}

func (w *prefixed) Write(b []byte) (int, error) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.text.WriteString(w.name + " ")
	return w.net.text.Write(b)
}

func (w *network) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *network) peers() []*peer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.cluster.nodes)
}

func (w *network) find(id uint64) *peer {
	for _, p := range w.peers() {
		if uint64(p.id) == id {
			return p
		}
	}
	return nil
}

// isolate cuts a node off, or connects it again.
func (w *network) isolate(p *peer, off bool) {
	for _, o := range w.peers() {
		w.mu.Lock()
		w.cut[link{p.id, o.id}], w.cut[link{o.id, p.id}] = off, off
		w.mu.Unlock()
	}
}

// set changes the network.
func (w *network) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// pass counts a tick.
func (w *network) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick++
}

// lost reports whether a message does not get through, at this moment.
func (w *network) lost(m *raftpb.Message) bool {
	return w.cut[link{member.ID(m.GetFrom()), member.ID(m.GetTo())}] || w.filter != nil && !w.filter(m)
}

func (w *network) deliver(m *raftpb.Message) {
	w.mu.Lock()
	lost := w.cut[link{member.ID(m.GetFrom()), member.ID(m.GetTo())}]
	w.mu.Unlock()
	if p := w.find(m.GetTo()); p != nil && !lost && !p.frozen.Load() {
		if n := p.running(); n != nil {
			n.Message(m)
		}
	}
}

// port is a node's side of the network: a Transport.
type port struct {
	net  *network
	peer *peer
}

func (t *port) Send(m *raftpb.Message) {
	w := t.net
	if t.peer.frozen.Load() {
		return
	}
	m = proto.Clone(m).(*raftpb.Message)
	w.mu.Lock()
	lost := w.lost(m)
	w.mu.Unlock()
	if lost {
		if n := t.peer.running(); n != nil {
			n.Unreachable(member.ID(m.GetTo()))
		}
		return
	}
	w.deliver(m)
}

func (t *port) SendSnapshot(m *raftpb.Message, open func(w io.Writer, told func() ([]byte, error)) error) {
	w := t.net
	w.wait.Go(func() {
		w.mu.Lock()
		lost := w.lost(m)
		w.mu.Unlock()
		var n *Node
		if p := w.find(m.GetTo()); p != nil && !p.frozen.Load() && !lost {
			n = p.running()
		}
		err := errors.New("unreachable")
		if n != nil {
			err = stream(n, m, open, &w.streamed)
		}
		if n := t.peer.running(); n != nil {
			n.SnapshotSent(member.ID(m.GetTo()), err == nil)
		}
	})
}

// stream brings a snapshot to a node, and counts its bytes.
func stream(
	n *Node, m *raftpb.Message, open func(w io.Writer, told func() ([]byte, error)) error, bytes *atomic.Int64,
) error {
	r, w := io.Pipe()
	has, taken := make(chan []byte, 1), make(chan error, 1)
	go func() {
		err := n.Snapshot(proto.Clone(m).(*raftpb.Message), r, func(b []byte) error {
			has <- b
			return nil
		})
		r.CloseWithError(cmp.Or(err, io.ErrClosedPipe))
		taken <- err
	}()
	err := open(counter{w, bytes}, func() ([]byte, error) {
		select {
		case b := <-has:
			return b, nil
		case err := <-taken:
			taken <- err
			return nil, cmp.Or(err, io.ErrClosedPipe)
		}
	})
	w.CloseWithError(cmp.Or(err, io.EOF))
	return errors.Join(err, <-taken)
}

type counter struct {
	io.Writer
	bytes *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

func (t *port) Arrived(member.ID) uint64 { return 0 }

func (t *port) SetPeers(uint64, []member.Member) {}

// lastIndex is that of a node's last entry, of a machine that is down too.
func (p *peer) lastIndex() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// waitTime is how long a test waits for what has to happen: a very long time.
const waitTime = 3 * time.Minute
