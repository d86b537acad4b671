package faults_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/cmd/trellisd/faults"
	"trellis/reactor"
)

// cluster is some machines, the network between them, and their clients.
type group struct {
	t         *testing.T
	plan      plan
	world     *world
	net       *network
	rng       *rand.Rand
	machines  []*machine
	others    int // goroutines that there were before
	operators sync.WaitGroup
	replaces  atomic.Bool // an operator has a machine be another member
	recorder  *faults.Recorder

	mu          sync.Mutex // guards what follows
	loss, twice float64    // chances of a message between members
	leaderships []leadership
	stamp       int64     // the latest of an entry that a member has applied; epoch if there was none
	stamped     time.Time // when that was, or the history began
	wrongs      []string
}

// silent is told of a client that a member has not answered for so long. If all that happens is that leaders change, it
// is answered, or its connection ends.
func (c *group) silent(addr string, since time.Duration) {
	for m, p := range c.running() {
		if c.plan.calm && m.addr == addr && !p.killed.Load() && time.Since(p.began) > since+time.Second {
			c.wrong("a client of %s has had no reply for %v", m.name, since)
		}
	}
}

var (
	misuse = regexp.MustCompile(`\bchannel \d+`)
	gone   = regexp.MustCompile(`^a loop of a member is gone.* member=(\S+)`)
)

// judge looks at what a member logs. No member says what the other end of a trunk does not expect: it would send more
// than it has credit for, or have more of a client under way than may be kept. If what the clients of a gateway hold is
// free, they have been reset.
func (c *group) judge(m *machine, text string) {
	if misuse.MatchString(text) {
		c.wrong("%s has said: %s", m.name, text)
	}
	x := gone.FindStringSubmatch(text)
	if x == nil || m.stands() { // it does not hear that another one leads, and nobody hears what it says
		return
	}
	for o, p := range c.running() {
		if o == m || fmt.Sprint(o.id.Load()) != x[1] || p.killed.Load() || o.stands() {
			continue
		}
		if age := min(c.net.oldest(p), o.awake(), m.awake()); age > reactor.LeaderPatience+3*time.Second {
			c.wrong("%s has given away what is reserved by a client of %s that is connected since %v", m.name, o.name, age)
		}
	}
}

// leadership is what a queue was told when it began to serve.
type leadership struct {
	term, nextID uint64
	now          int64
}

// fed is a standby. It notes what time it is told.
type fed struct {
	replica.Standby
	cluster *group
}

func (f fed) Stamp(at int64) {
	f.cluster.mu.Lock()
	if f.cluster.stamp < at {
		f.cluster.stamp, f.cluster.stamped = at, time.Now()
	}
	f.cluster.mu.Unlock()
	f.Standby.Stamp(at)
}

// spilled is fed, and its bodies leave memory.
type spilled struct {
	replica.Spilling
	fed fed
}

func (s spilled) Stamp(at int64) { s.fed.Stamp(at) }

// clientHost is where all clients are.
const clientHost = "client"

func newCluster(t *testing.T, p plan) *group {
	w := newWorld(p.seed)
	c := &group{t: t, plan: p, world: w, net: newNetwork(w), rng: w.dice("faults")}
	c.others, c.stamp, c.stamped = runtime.NumGoroutine(), int64(epoch), w.began
	meta := snapshot.Meta{Index: 1, Term: 1, ConfState: &raftpb.ConfState{}}
	for id := 1; id <= p.members; id++ {
		m := member.Member{
			ID: member.ID(id), Incarnation: 1, Name: fmt.Sprintf("n%d", id), Addr: fmt.Sprintf("127.0.0.1:%d", id),
		}
		meta.ConfState.Voters = append(meta.ConfState.Voters, uint64(m.ID))
		meta.Members = append(meta.Members, m)
	}
	raftpb.EnsureConfState(meta.ConfState)
	for i, m := range meta.Members {
		p, err := c.newMachine(m, meta, fmt.Sprintf("127.0.0.1:%d", 1001+i))
		if err != nil {
			t.Fatal(err)
		}
		c.machines = append(c.machines, p)
	}
	return c
}

// wrong notes that something is not as it must be.
func (c *group) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrongs = append(c.wrongs, fmt.Sprintf(format, args...))
}

// failed tells whether something is wrong, so that the history need not go on. So are more events than members and
// clients can have a use for.
func (c *group) failed() bool {
	const most = 5_000 // in a second, on average
	if n, lasted := c.world.events(); n > most*(1+int(lasted.Seconds())) {
		c.wrong("there were %d events in %v", n, lasted)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wrongs) > 0
}

// led notes a leadership. Nothing that begins in one after a later one has begun is committed: no time of it counts.
func (c *group) led(m *machine, l leadership) {
	c.world.note(m.name, fmt.Sprintf("serves: %+v", l), nil)
	c.recorder.Serves()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaderships = append(c.leaderships, l)
	later := func(o leadership) bool { return o.term > l.term }
	if c.stamped != c.world.began && l.now < c.stamp && !slices.ContainsFunc(c.leaderships, later) {
		c.wrongs = append(c.wrongs, fmt.Sprintf("leadership %+v begins before the time of a committed entry, %d", l, c.stamp))
	}
}

// chances are those that a message is lost, and that it comes twice.
func (c *group) chances() (loss, twice float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loss, c.twice
}

func (c *group) set(loss, twice float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loss, c.twice = loss, twice
}

func (c *group) nodes() (all []member.Node) {
	for _, m := range c.machines {
		all = append(all, m.self.Node())
	}
	return all
}

func (c *group) hosts() (names []string) {
	for _, m := range c.machines {
		names = append(names, m.name)
	}
	return names
}

// dial connects a host to a member, at its address for clients or at that for members.
func (c *group) dial(ctx context.Context, from, addr string) (net.Conn, error) {
	for _, m := range c.machines {
		if addr == m.addr || addr == m.self.Addr {
			return c.net.dial(ctx, from, m.name, addr)
		}
	}
	return nil, syscall.EHOSTUNREACH
}

// running yields the machines on which a process runs.
func (c *group) running() iter.Seq2[*machine, *process] {
	return func(yield func(*machine, *process) bool) {
		for _, m := range c.machines {
			if p := m.running(); p != nil && !yield(m, p) {
				return
			}
		}
	}
}

// within waits until something is so, but not longer than that.
func (c *group) within(d time.Duration, what string, so func() bool) bool {
	for began := time.Now(); time.Since(began) < d && !c.failed(); c.world.sleep(20 * time.Millisecond) {
		if so() {
			return true
		}
	}
	c.wrong("not within %v: %s", d, what)
	return false
}

// patience is how long it may take until all is well when all faults have ended.
const patience = 10 * time.Second

// serves tells whether a member leads, and serves clients.
func (c *group) serves() bool {
	return slices.ContainsFunc(c.machines, func(m *machine) bool {
		p := m.running()
		return p.leads() && p.status().Serves
	})
}

// settled tells whether all members have applied all that there is.
func (c *group) settled() bool {
	var first replica.Status
	for i, m := range c.machines {
		p := m.running()
		if p == nil {
			return false
		}
		s := p.status()
		if i == 0 {
			first = s
		}
		if s.Applied != s.Last || s.Applied != first.Applied || s.ToLoad > 0 {
			return false
		}
	}
	return true
}

// compare checks that members who have applied the same have the same jobs. Those that lead are ahead of
// what they have applied, unless the cluster is quiet.
func (c *group) compare(quiet bool) {
	type view struct {
		name   string
		digest replica.Digest
	}
	stamp := int64(0)
	views := map[uint64]view{}
	for m, p := range c.running() {
		s := p.status()
		if stamp == 0 {
			stamp = s.Stamp
		}
		if s.ToLoad > 0 || s.Applying > 0 || !quiet && (p.leads() || s.Leads) {
			continue
		}
		v := view{m.name, p.queue.Digest(stamp)}
		if !quiet && c.plan.cold && v.digest == (replica.Digest{}) {
			continue // its disk fails
		}
		if o, ok := views[s.Applied]; ok && o.digest != v.digest {
			c.wrong("%s and %s have applied entry %d, and hold %v and %v", o.name, v.name, s.Applied, o.digest, v.digest)
		}
		views[s.Applied] = v
	}
}

// checkLeaderships checks that terms and ids have only grown.
func (c *group) checkLeaderships() {
	c.mu.Lock()
	all := slices.SortedFunc(slices.Values(c.leaderships), func(a, b leadership) int { return int(a.term) - int(b.term) })
	c.mu.Unlock()
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.term == b.term || a.nextID > b.nextID {
			c.wrong("leadership %+v is followed by %+v", a, b)
		}
	}
}

// plan is how a history goes.
type plan struct {
	seed    uint64
	members int
	faults  int
	tubes   int           // of each kind that a workload knows
	clients int           // of each tube
	rest    time.Duration // of clients between two commands, at most
	sync    time.Duration // of disks without faults, at most
	calm    bool          // all that happens is that leaders change
	brisk   bool          // one leader follows the other
	pause   time.Duration // between two faults, at most
	older   bool          // members begin with a program that cannot read the present entries
	cold    bool          // members may have most bodies on disk only

	// Mistakes that must be found.
	quorum bool // one member too few makes a majority
	lies   bool // disks say that they have stored what they have not
	fast   bool // the first machine's clock runs twice as fast
}

// planOf is that of a seed.
func planOf(seed uint64) plan {
	p := plan{
		seed: seed, members: 3, faults: 30, tubes: 3, clients: 2, rest: 1500 * time.Millisecond, sync: 2 * time.Millisecond,
	}
	if seed%3 == 0 {
		p.sync = 30 * time.Millisecond
	}
	if seed%4 == 3 {
		p.members = 5
	}
	p.calm, p.pause = seed%5 == 0, 3*time.Second
	if p.brisk = seed%5 > 0 && seed%2 == 1; p.brisk {
		p.faults, p.pause = 60, 600*time.Millisecond
	}
	p.older = seed%7 == 1 && !p.calm
	p.cold = seed%9 == 4 || seed%9 == 6
	return p
}

// outcome is what became of a history.
type outcome struct {
	leaderships int
	lasted      time.Duration // simulated
	sum         uint64
	commands    int
	undecided   bool // whether the commands had an order
	wrongs      []string
	trace       *trace
}

// run has a history happen, and checks it.
func (p plan) run(t *testing.T) (o outcome) {
	var c *group
	var rec *faults.Recorder
	func() {
		defer func() {
			if r := recover(); r != nil && c != nil {
				c.wrong("%v", r)
			}
		}()
		synctest.Test(t, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, p.seed)
			c = newCluster(t, p)
			predetermine(p.seed)
			rec = faults.NewRecorder()
			rec.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return c.dial(ctx, clientHost, addr) }
			rec.Pause, rec.Silent = 400*time.Millisecond, c.silent
			c.recorder = rec
			c.live(rec)
			o.lasted = time.Since(c.world.began)
		})
	}()
	rouse()
	c.checkLeaderships()
	history := rec.History()
	if len(c.wrongs) == 0 { // otherwise nobody need look for an order of the commands, which may take long
		err := faults.Check(history)
		if o.undecided = errors.Is(err, faults.ErrUndecided); err != nil && !o.undecided {
			c.wrong("%v", err)
		}
	}
	o.leaderships, o.commands, o.wrongs = len(c.leaderships), len(history), c.wrongs
	o.sum, o.trace = c.world.trace.sum, &c.world.trace
	return o
}

// live is the history.
func (c *group) live(rec *faults.Recorder) {
	p := c.plan
	for i, m := range c.machines {
		m.disk.lies = p.lies
		if p.older {
			m.newest = replica.VersionOfTrunks - uint32(p.seed/7%2) // before linger, or before trunks, too
		}
		if p.fast && i == 0 {
			m.clock.set(2, 0)
		}
	}
	w := &faults.Workload{
		Recorder: rec, Clients: p.clients, Jobs: 6, Seed: p.seed, Full: true, Waits: true, Recorded: p.calm, Rest: p.rest,
	}
	var addrs []string
	for _, m := range c.machines {
		c.world.sleep(time.Millisecond)
		if err := m.start(); err != nil {
			c.t.Fatal(err)
		}
		addrs = append(addrs, m.addr)
	}
	calls := 0
	w.Addrs = func() []string {
		c.mu.Lock()
		defer c.mu.Unlock()
		calls++
		return slices.Concat(addrs[calls%len(addrs):], addrs[:calls%len(addrs)])
	}
	for i := range 5 * p.tubes {
		w.Tubes = append(w.Tubes, fmt.Sprintf("tube%d", i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	working, setting := make(chan error, 1), make(chan error, 1)
	go func() { working <- w.Run(ctx) }()
	set := &faults.Setter{}
	go func() { setting <- set.Run(ctx, rec.NewClient(faults.SetTube, w.Addrs)) }()
	for i := 0; i < p.faults && !c.failed(); i++ {
		c.world.sleep(upTo(c.rng, p.pause))
		c.compare(false)
		c.checkMemory()
		c.disturb()
	}
	if !c.failed() {
		c.heal()
		c.upgrade(c.machines...)
		answered := rec.Answered()
		c.within(patience, "a leader", c.serves)
		c.within(patience, "replies", func() bool { return rec.Answered() > answered })
		c.heal() // a member whose disk failed until just now may have ended since
		c.within(patience, "all machines are members", func() bool { return !c.replaces.Load() })
		c.world.sleep(time.Second)
	}
	cancel()
	for _, err := range []error{<-working, <-setting} {
		if err != nil {
			c.wrong("%v", err)
		}
	}
	c.operators.Wait()
	if !c.failed() {
		c.audit(w, set)
	}
	for _, m := range c.machines {
		m.kill(false, nil)
	}
}

// audit checks what is there when no client does anything any more.
func (c *group) audit(w *faults.Workload, set *faults.Setter) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.Audit(ctx); err != nil {
		c.wrong("the jobs cannot be looked at: %v", err)
	}
	c.within(patience, "nothing is left of clients", c.idle)
	if c.within(patience, "all members have applied all", c.settled) {
		c.compare(true)
		c.checkSetting(set)
		c.checkLeft()
	}
}

// idle reports whether nothing is left of clients, who have all gone. What a reactor can never have seen is wrong.
func (c *group) idle() bool {
	left := false
	for _, m := range c.machines {
		r := m.running().reactor()
		if r == nil {
			return false
		}
		s := r.Stats()
		l := &s.Loops[0]
		left = left || l.Connections+s.Channels+s.Relayed != 0 || l.Ending != 0 || l.PendingInput != 0 || l.PendingOutput != 0
		if l.Misfits+l.Panics > 0 {
			c.wrong("%s has counted %d effects where no command ends, and %d panics", m.name, l.Misfits, l.Panics)
		}
	}
	return !left
}

// checkSetting checks that all members know the last setting that was acknowledged, or one that may have come later.
func (c *group) checkSetting(s *faults.Setter) {
	for m, p := range c.running() {
		got := uint32(0)
		err := p.queue.Settings(func(x *journal.Setting) error {
			if x.Tube == faults.SetTube {
				got = x.Attempts
			}
			return nil
		})
		if err != nil || !s.MayBe(got) {
			c.wrong("the setting at %s is %d, %v, and not one of %+v", m.name, got, err, s)
		}
	}
}
