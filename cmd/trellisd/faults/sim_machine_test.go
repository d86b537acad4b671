package faults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
	"trellis/cmd/trellisd/internal/cluster"
	"trellis/engine"
	"trellis/reactor"
)

// machine is a disk, a clock, and the process of a member while it runs.
type machine struct {
	cluster *group
	world   *world
	name    string
	addr    string // for clients
	self    member.Member
	rng     *rand.Rand
	clock   *clock
	disk    *disk
	faulty  bool // its disk has failed, or hung, since the last start
	bytes   int64
	bodies  int64         // bytes of bodies that may be in memory; 0 is no limit
	newest  uint32        // version of entries that its program reads; 0 is the present one
	id      atomic.Uint64 // as a member

	mu     sync.Mutex // guards what follows
	run    *process   // nil while none runs
	err    error      // of the last one
	frozen bool
	woke   time.Time // when it has last stood still
}

// process is a member that runs.
type process struct {
	machine *machine
	began   time.Time
	member  *cluster.Member
	queue   *cluster.Queue
	stop    context.CancelFunc
	ended   chan struct{}
	killed  atomic.Bool
	changes atomic.Int64 // of its role: it begins to serve, or ends it; two for a standby that begins anew
}

const (
	dir         = "/member"
	maxJobSize  = 1 << 16
	segmentSize = 16 << 10
	reserve     = 64 << 10
)

// clock is that of a machine: it may be fast, and its wall clock may be set.
type clock struct {
	mu    sync.Mutex
	since time.Time     // of the last change of the pace
	mono  time.Duration // then
	pace  float64       // 1 is right
	wall  time.Duration // what is added to mono
}

func (c *clock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono + time.Duration(float64(time.Since(c.since))*c.pace)
}

// set has the clock run at a pace, and moves the wall clock.
func (c *clock) set(pace float64, by time.Duration) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono, c.since, c.pace, c.wall = now, time.Now(), pace, c.wall+by
}

// epoch is the time of day at which a history begins.
const epoch = 1_700_000_000 * time.Second

// boot sets the wall clock, by which a leader goes that no other one has informed. It goes on from cluster time, slower
// than any clock: cluster time stands still while nobody leads, and jobs would expire before their time.
func (m *machine) boot() {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	m.clock.set(m.clock.pace, time.Duration(c.stamp-m.clock.Wall())+time.Since(c.stamped)*3/4)
}

// period is how long something takes that takes d by the clock.
func (c *clock) period(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(float64(d) / c.pace)
}

func (c *clock) Mono() int64 { return int64(c.now()) }

func (c *clock) Wall() int64 {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(now + c.wall)
}

// disk is a machine's disk: when its calls take time, or fail.
type disk struct {
	world *world

	mu    sync.Mutex // guards what follows
	rng   *rand.Rand
	fs    *faultfs.FS
	slow  time.Duration // of syncs, at most
	stall chan struct{} // closed when calls go on; nil if they do not wait
	fails int           // one in so many calls fails; 0 is none
	lies  bool          // about syncs
}

// take puts the file system of a machine that starts into the disk.
func (d *disk) take(fs *faultfs.FS) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fs = fs
	fs.Hook(d.call)
}

// call decides what happens to a call of the file system.
func (d *disk) call(c faultfs.Call) (x faultfs.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stall != nil:
		x.Until = d.stall
	case c.Op == "sync":
		done := make(chan struct{})
		d.world.after(100*time.Microsecond+upTo(d.rng, d.slow), func() { close(done) })
		x.Until = done
	}
	if d.fails > 0 && c.Op != "read" && c.Op != "list" && d.rng.IntN(d.fails) == 0 {
		x.Err = syscall.EIO
		if c.Op == "write" {
			x.Short = d.rng.IntN(1 << 10)
		}
	}
	x.Lies = d.lies && c.Op == "sync"
	return x
}

// set changes how the disk behaves.
func (d *disk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// freeze has all calls wait, or go on.
func (d *disk) freeze(on bool) {
	d.set(func() {
		if on && d.stall == nil {
			d.stall = make(chan struct{})
		} else if !on && d.stall != nil {
			close(d.stall)
			d.stall = nil
		}
	})
}

// newMachine makes one for a founder.
func (c *group) newMachine(m member.Member, meta snapshot.Meta, addr string) (*machine, error) {
	rng := c.world.dice(m.Name)
	fs := faultfs.New(dir)
	snapshots := filepath.Join(dir, "snapshots")
	err := errors.Join(fs.Mkdir(snapshots), vfs.SyncDir(fs, dir), snapshot.WriteInitial(fs, snapshots, meta),
		member.Write(fs, dir, member.Identity{
			Incarnation: m.Incarnation, State: member.Joined, Self: m.ID, Round: 1,
			Cluster: member.Cluster{ID: member.ClusterID{1}, Members: meta.Members},
		}))
	node, opened := replica.Open(replica.Options{Dir: dir, New: true, Self: m.ID, FS: fs, SegmentSize: segmentSize})
	if opened == nil {
		opened = node.Close()
	}
	err = errors.Join(err, opened)
	p := &machine{
		cluster: c, world: c.world, name: m.Name, addr: addr, self: m, rng: rng,
		bytes: 10_000 + rng.Int64N(100_000),
		clock: &clock{since: time.Now(), mono: upTo(rng, time.Hour), pace: 1 - rng.Float64()/5},
		disk:  &disk{world: c.world, rng: c.world.dice(m.Name, "disk"), slow: c.plan.sync},
	}
	p.id.Store(uint64(m.ID))
	p.disk.take(fs)
	return p, err
}

// start starts a member's process.
func (m *machine) start() error {
	m.boot()
	if m.bodies = 0; m.cluster.plan.cold && m.rng.IntN(4) > 0 {
		m.bodies = 4096
	}
	p := &process{machine: m, began: time.Now(), ended: make(chan struct{})}
	ticks := make(chan time.Time, 1)
	fs := m.disk.fs
	log := slog.New(&logger{process: p})
	p.queue = cluster.NewQueue(cluster.QueueConfig{
		Engine: engine.Config{MaxJobSize: maxJobSize, Shards: 1, Limits: engine.Limits{Bodies: m.bodies}},
		Reactor: reactor.Config{
			MaxJobSize: maxJobSize, Extensions: true, Loops: 1, Log: log, BootTime: m.clock.now, Poller: m.cluster.net.newPoller,
		},
		Listen: p.listen, Mono: m.clock.now, Log: log, FreeMemory: func() {},
	})
	var err error
	p.member, err = cluster.Open(cluster.Config{
		Dir: dir, Self: m.self.Node(), Nodes: m.cluster.nodes(), Listener: m.cluster.net.listen(m.name, m.self.Addr),
		Queue: p.queue, Log: log, Dial: m.dial, Between: p.between,
		Node: replica.Options{
			Queue: &watched{p.queue, p}, Clock: m.clock, FS: fs, Ticks: ticks,
			Newest: m.newest, Bodies: m.bodies, SnapshotBytes: m.bytes, SegmentSize: segmentSize, Reserve: reserve,
			Free: func() (int64, error) { return fs.Free(), nil },
		},
	})
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	m.mu.Lock()
	m.run, m.err = p, nil
	m.mu.Unlock()
	m.tick(p, ticks)
	go func() {
		err := p.member.Run(ctx)
		m.cluster.net.off(m.name, false)
		_ = p.member.Close()
		m.world.note(m.name, fmt.Sprintf("the process has ended: %v", err), nil)
		m.mu.Lock()
		m.run, m.err = nil, err
		m.mu.Unlock()
		close(p.ended)
	}()
	return nil
}

// leads reports whether the process serves as the leader.
func (p *process) leads() bool { return p != nil && p.queue.Serving() != nil }

// status is how its node sees the cluster: as one that has not heard of any, before there is a node.
func (p *process) status() replica.Status {
	if s := p.member.Status(); s != nil {
		return *s
	}
	return replica.Status{Last: 1}
}

// watched is a queue whose leaderships are noted, and what time it is told.
type watched struct {
	*cluster.Queue
	process *process
}

// Standby implements replica.Queue. A snapshot from the leader tells of no replies: a client that waits for one when it
// comes may be disconnected.
func (q *watched) Standby(start int64) (replica.Standby, error) {
	q.process.changes.Add(2)
	s, err := q.Queue.Standby(start)
	f := fed{s, q.process.machine.cluster}
	if x, ok := s.(replica.Spilling); ok {
		return spilled{x, f}, err
	}
	return f, err
}

// Serve implements replica.Queue.
func (q *watched) Serve(l *replica.Leadership) error {
	q.process.machine.cluster.led(q.process.machine, leadership{l.Term(), l.NextID(), l.Now()})
	q.process.changes.Add(1)
	return q.Queue.Serve(l)
}

// Retire implements replica.Queue.
func (q *watched) Retire(l *replica.Leadership) {
	q.process.changes.Add(1)
	q.Queue.Retire(l)
}

// tick has time pass for a process until it ends.
func (m *machine) tick(p *process, ticks chan time.Time) {
	m.world.after(m.clock.period(replica.Tick), func() {
		m.mu.Lock()
		ended, frozen := m.run != p, m.frozen
		m.mu.Unlock()
		if ended {
			return
		}
		if !frozen {
			wake(ticks)
		}
		m.tick(p, ticks)
	})
}

func (m *machine) dial(ctx context.Context, addr string) (net.Conn, error) {
	return m.cluster.dial(ctx, m.name, addr)
}

// running is the process, nil if there is none.
func (m *machine) running() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run
}

// kill ends the process, if one runs, or all of the machine. left is what the disk has left of its files; nil is all.
func (m *machine) kill(down bool, left func(*faultfs.FS) *faultfs.FS) {
	p := m.running()
	if p != nil {
		p.killed.Store(true)
	}
	m.cluster.net.off(m.name, down)
	m.disk.fs.Off()
	m.disk.freeze(false)
	if p != nil {
		p.stop()
		<-p.ended
	}
	if left == nil {
		left = (*faultfs.FS).Killed
	}
	m.disk.take(left(m.disk.fs))
}

// stands reports whether the machine stands still.
func (m *machine) stands() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frozen
}

// awake is for how long the machine has not stood still.
func (m *machine) awake() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.woke)
}

// freeze has a machine stand still, as far as that can be simulated, or go on.
func (m *machine) freeze(on bool) {
	m.mu.Lock()
	was := m.frozen
	m.frozen = on
	if was && !on {
		m.woke = time.Now()
	}
	m.mu.Unlock()
	if on == was {
		return
	}
	for _, o := range append(m.cluster.hosts(), clientHost) {
		for _, l := range []link{{m.name, o}, {o, m.name}} {
			m.cluster.net.set(l, func(x *condition) { x.cut = on })
		}
	}
	m.disk.freeze(on)
}

// between is what messages of a node pass through: they may be lost, or be sent twice.
func (p *process) between(n *replica.Node, t replica.Transport) replica.Transport {
	if p.machine.cluster.plan.quorum {
		t = &hasty{Transport: t, node: n, world: p.machine.world}
	}
	return &unreliable{t, p}
}

type unreliable struct {
	replica.Transport
	process *process
}

func (u *unreliable) Send(m *raftpb.Message) {
	c := u.process.machine
	loss, twice := c.cluster.chances()
	if c.rng.Float64() < loss {
		return
	}
	c.world.note(c.name, raftpb.MessageType_name[int32(m.GetType())], nil)
	if c.rng.Float64() < twice {
		again := proto.Clone(m).(*raftpb.Message)
		c.world.after(upTo(c.rng, time.Second), func() { u.Transport.Send(again) })
	}
	u.Transport.Send(m)
}

// logger puts what a member logs into the trace, until it is killed.
type logger struct{ process *process }

func (l *logger) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && !l.process.killed.Load()
}

func (l *logger) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "took" { // by the real clock
			text += " " + a.String()
		}
		return true
	})
	m := l.process.machine
	m.world.note(m.name, text, nil)
	m.cluster.judge(m, text)
	return nil
}

func (l *logger) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logger) WithGroup(string) slog.Handler      { return l }
