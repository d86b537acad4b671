package replica

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entry"
	"trellis/codec"
	"trellis/engine"
)

// servedQueue is an engine with one loop. Its clients are on record as soon as that
// is allowed. The model tells when it serves, and waits for commits: it has no jobs, and its mu
// is the loop's goroutine.
type servedQueue struct {
	*model
	office *office

	// Guarded by model.mu, but for what the engine guards.
	engine   *engine.Engine
	follower *engine.Follower
	start    int64
	serving  *Leadership
	loop     *engine.Loop
	woken    bool
	alarm    engine.Time
	clients  map[*engine.Session]*recorded
	number   uint32 // of the loop; 0 until somebody needs it
}

// office is what the queues of a cluster have in common.
type office struct {
	t        *testing.T
	nonce    atomic.Uint64 // of the last leadership that had a number for its loop
	sessions atomic.Uint64 // that were ever on record
	last     atomic.Uint64 // id that a client was told of
	held     atomic.Int64  // jobs that were held when a leadership began
	quiet    atomic.Bool   // no loop has its turn
	resumes  bool          // sessions go on in the next leadership, and have one number
	resumed  atomic.Int64  // sessions that have gone on with something reserved

	mu     sync.Mutex
	queues []*servedQueue
}

// newServedCluster makes a cluster whose queues are engines.
func newServedCluster(t *testing.T, n int) (*cluster, *office) {
	o := &office{t: t}
	t.Cleanup(func() { // when the nodes have ended
		for _, q := range o.queues {
			q.discard()
		}
	})
	c := newCluster(t, n, 1)
	c.timeout = 100
	c.queue = func(m *model) Queue {
		q := &servedQueue{model: m, office: o}
		m.onTick = q.turn
		o.mu.Lock()
		defer o.mu.Unlock()
		o.queues = append(o.queues, q)
		return q
	}
	return c, o
}

// discard gives up the engine. Nothing that it has read contradicted itself.
func (q *servedQueue) discard() {
	q.mu.Lock()
	e := q.engine
	q.engine, q.follower, q.loop, q.serving = nil, nil, nil, nil
	q.mu.Unlock()
	if e == nil {
		return
	}
	if n := e.Contradictions(); n != 0 {
		q.office.t.Errorf("%d records of reservations contradict those before them", n)
	}
	e.Discard()
}

func (q *servedQueue) Standby(start int64) (Standby, error) {
	if _, err := q.model.Standby(start); err != nil {
		return nil, err
	}
	q.discard()
	e := engine.New(engine.Config{MaxJobSize: 1000, Shards: 4, Start: time.Unix(0, start)})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.engine, q.follower, q.start = e, e.Follow(engine.Always), start
	return q.follower, nil
}

// now is the engine's time. With mu held.
func (q *servedQueue) now() engine.Time { return engine.Time(q.serving.Now() - q.start) }

func (q *servedQueue) Serve(l *Leadership) error {
	q.mu.Lock()
	if l.NextID() > 1<<(64-journal.NumberBits) {
		q.office.t.Errorf("the next job would be %d: that is a session", l.NextID())
	}
	q.serving = l
	now := q.now()
	q.office.held.Add(int64(q.engine.Snapshot(now).Reserved))
	q.follower.RecordIn(l)
	if q.office.resumes {
		q.follower.ServeOn(l.NextID(), now)
	} else if q.follower.Serve(l.NextID(), now); q.engine.Snapshot(now).Reserved != 0 {
		q.office.t.Error("jobs are reserved when a leadership begins")
	}
	q.follower, q.clients, q.alarm = nil, map[*engine.Session]*recorded{}, engine.MaxTime
	q.loop, q.number = q.engine.NewLoop(loopBell{q}), 0
	q.mu.Unlock()
	return q.model.Serve(l)
}

func (q *servedQueue) Retire(l *Leadership) {
	q.model.Retire(l)
	q.discard()
}

// loopBell is the loop's Waker. The loop has its turn behind each command anyway.
type loopBell struct{ q *servedQueue }

func (b loopBell) Wake()                { b.q.woken = true }
func (b loopBell) Alarm(at engine.Time) { b.q.alarm = at }

// turn is called when time has passed.
func (q *servedQueue) turn() {
	if q.loop != nil && q.leadership != nil && !q.held && !q.office.quiet.Load() {
		q.run()
		q.leadership.Flush()
	}
}

// run lets the loop do what waits for it. With mu held.
func (q *servedQueue) run() {
	for now := q.now(); q.woken || q.alarm <= now; {
		q.woken = false
		if q.alarm <= now {
			q.alarm = engine.MaxTime
		}
		q.loop.Refill()
		for s := q.loop.Next(now); s != nil; s = q.loop.Next(now) {
			q.clients[s].resume(now)
		}
	}
}

func (q *servedQueue) present() *engine.Engine {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.engine
}

var errNoQueue = errors.New("there is no queue")

func (q *servedQueue) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (uint64, error) {
	if e := q.present(); e != nil {
		return e.Walk(from, n, f)
	}
	return 0, errNoQueue
}

func (q *servedQueue) Settings(f func(*journal.Setting) error) error {
	if e := q.present(); e != nil {
		return e.Settings(f)
	}
	return errNoQueue
}

func (q *servedQueue) Numbers(f func(*journal.Numbers) error) error {
	if e := q.present(); e != nil {
		return e.Numbers(f)
	}
	return errNoQueue
}

func (q *servedQueue) Digest(stamp int64) Digest {
	d := journal.NewDigester(math.MaxInt64, stamp) // that a delay has ended, a leader alone knows
	for from := uint64(1); from != 0; {
		var err error
		if from, err = q.Walk(from, 1000, d.Add); err != nil {
			q.office.t.Error(err)
			return Digest{}
		}
	}
	if err := q.Settings(d.AddSetting); err != nil {
		q.office.t.Error(err)
	}
	return Digest(d.Digest())
}

// recorded is a client, which is on record if that is allowed.
type recorded struct {
	office   *office
	q        *servedQueue // to which it is connected
	serving  *Leadership  // in which it is
	session  *engine.Session
	onRecord bool
	decoder  codec.Decoder
	out      engine.Output
	offset   uint64
	waits    bool // its reserve does

	id    uint64           // of a session that goes on; 0 for none
	wants engine.Interests // as of its last replies
}

// connect opens a session in a leadership. With mu held.
func (k *recorded) connect(q *servedQueue, l *Leadership) error {
	before := *k
	*k = recorded{office: k.office, q: q, serving: l, session: new(engine.Session), onRecord: l.RecordsHolds()}
	k.decoder = codec.Decoder{MaxJobSize: 1000, Extensions: true}
	q.clients[k.session] = k
	if !k.onRecord {
		q.loop.Open(k.session, q.now())
		return nil
	}
	if q.number == 0 {
		// Of some members, each of which has been restarted.
		n := uint64(1)
		if !k.office.resumes {
			n = k.office.nonce.Add(1)
		}
		given, _, err := q.engine.GiveNumbers(100+n%3, n, 1)
		if err != nil {
			return err
		}
		q.number = given[0]
	}
	if before.id != 0 && journal.NumberOf(before.id) == q.number {
		k.id, k.offset, k.wants = before.id, before.offset, before.wants
		return k.goOn(q)
	}
	id := uint64(q.number)<<(64-journal.NumberBits) | k.office.sessions.Add(1)
	if k.office.resumes {
		k.id = id
	}
	return q.loop.OpenAs(k.session, id, nil, q.now())
}

// goOn resumes the client's session. With mu held.
func (k *recorded) goOn(q *servedQueue) error {
	d, err := engine.Absent(k.id, nil, k.wants, 0)
	if err != nil {
		return err
	}
	now := q.now()
	switch err := q.loop.GoOn(k.session, d, 0, now); {
	case errors.Is(err, engine.ErrSessionID): // it is still being handed something
		delete(q.clients, k.session)
		k.serving = nil
		return errReset
	case err != nil:
		return err
	case k.session.Reserves(now):
		k.office.resumed.Add(1)
	}
	return nil
}

// resume goes on with a command, unless the client has left.
func (k *recorded) resume(now engine.Time) {
	if k != nil && k.session.Resume(now, &k.out) != engine.Wait {
		k.waits = false
	}
}

// say executes commands, unless the one before waits, and returns the replies when they are committed.
func (k *recorded) say(q *servedQueue, commands string) (replies string, err error) {
	if k.q != q && k.q != nil {
		k.part()
	}
	err = q.execute(func(l *Leadership) (journal.Pos, error) {
		if k.serving != l {
			if err := k.connect(q, l); err != nil {
				return 0, err
			}
		}
		now := q.now()
		var cmd codec.Command
		for in := []byte(commands); len(in) > 0 && !k.waits; {
			n, whole := k.decoder.Next(in, &cmd)
			in = in[n:]
			if k.offset += uint64(n); !whole {
				break
			}
			if k.onRecord {
				k.session.CommandEnds(k.offset)
			}
			k.waits = k.session.Execute(now, &cmd, &k.out) == engine.Wait
		}
		q.woken = true
		q.run()
		k.session.Replied(len(k.out.Buf), &k.out)
		pos := k.out.Pos
		replies = string(k.out.Buf)
		k.out.Buf, k.out.Pos = nil, 0
		if k.id != 0 {
			k.wants = k.session.Interests()
		}
		return pos, nil
	})
	if err != nil {
		k.part()
	}
	return replies, err
}

// part takes the session out of the leadership, to go on if it may.
func (k *recorded) part() {
	id := k.id
	k.end((*engine.Session).Part)
	k.id = id
}

// leave closes the session, if its leadership goes on.
func (k *recorded) leave() { k.end((*engine.Session).Close) }

func (k *recorded) end(close func(*engine.Session, engine.Time) bool) {
	k.id = 0
	if k.serving == nil {
		return
	}
	k.q.mu.Lock()
	defer k.q.mu.Unlock()
	if k.q.serving == k.serving && k.q.leadership == k.serving {
		delete(k.q.clients, k.session)
		close(k.session, k.q.now())
		k.q.woken = true
	}
	k.serving = nil
}

// next is what a client does next: anything.
func (k *recorded) next(rng *rand.Rand) string {
	id := func() uint64 { last := k.office.last.Load(); return last - min(last, rng.Uint64N(40)) + 1 }
	tube := func() string { return "t" + string(rune('a'+rng.IntN(5))) }
	switch rng.IntN(18) {
	case 0, 1, 2:
		keys := ""
		if rng.IntN(3) == 0 {
			keys = fmt.Sprintf(" idp:k%d", rng.IntN(4))
		}
		body := strings.Repeat("x", 800) // so that snapshots come soon
		return fmt.Sprintf("use %s\r\nput %d %d %d %d%s\r\n%s\r\n", tube(), rng.IntN(9), rng.IntN(2), 1+rng.IntN(60), len(body), keys, body)
	case 3, 4, 5:
		return fmt.Sprintf("watch %s\r\nreserve-with-timeout %d\r\n", tube(), rng.IntN(3))
	case 6:
		return fmt.Sprintf("watch %s\r\nreserve-batch 4\r\n", tube())
	case 7:
		return fmt.Sprintf("reserve-job %d\r\n", id())
	case 8:
		return fmt.Sprintf("touch %d\r\ntouch-all\r\n", id())
	case 9:
		return fmt.Sprintf("release %d %d %d\r\n", id(), rng.IntN(9), rng.IntN(2))
	case 10:
		return fmt.Sprintf("bury %d 3\r\n", id())
	case 11:
		return fmt.Sprintf("use %s\r\nkick 3\r\nkick-job %d\r\n", tube(), id())
	case 12:
		return fmt.Sprintf("move-job %d %s\r\n", id(), tube())
	case 13:
		return fmt.Sprintf("set-dlq %s %d dead\r\n", tube(), rng.IntN(3))
	case 14:
		return fmt.Sprintf("flush-tube %s\r\n", tube())
	case 15, 16:
		return fmt.Sprintf("delete %d\r\ndelete %d\r\n", id(), id())
	}
	return "" // it leaves
}

// work lets clients do what they like on whoever serves, until stop is closed.
func (o *office) work(c *cluster, clients []*recorded, seed uint64) (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	for i, k := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				q := c.nodes[rng.IntN(len(c.nodes))].served()
				if q == nil {
					time.Sleep(100 * time.Microsecond)
					continue
				}
				commands := k.next(rng)
				if commands == "" {
					k.leave()
					continue
				}
				replies, err := k.say(q, commands)
				if err != nil && !errors.Is(err, errReset) && !errors.Is(err, errRefused) {
					o.t.Error(err)
				}
				for line := range strings.Lines(replies) {
					var id uint64
					if _, err := fmt.Sscanf(line, "INSERTED %d", &id); err == nil {
						for last := o.last.Load(); last < id && !o.last.CompareAndSwap(last, id); last = o.last.Load() {
						}
					}
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(done); group.Wait() })
}

// settledQuietly is settled while no time to run ends.
func (o *office) settledQuietly(c *cluster) Digest {
	o.t.Helper()
	o.quiet.Store(true)
	defer o.quiet.Store(false)
	return c.settled()
}

// served is the queue of a node that serves, nil if it does not.
func (p *peer) served() *servedQueue {
	if n := p.running(); n != nil {
		if q := n.opts.Queue.(*servedQueue); q.serves() {
			return q
		}
	}
	return nil
}

// must sends a client's commands until the replies have that in them.
func (o *office) must(c *cluster, k *recorded, commands, want string) {
	o.t.Helper()
	c.eventually("a reply", func() bool {
		for _, p := range c.nodes {
			if q := p.served(); q != nil {
				replies, err := k.say(q, commands)
				return err == nil && strings.Contains(replies, want)
			}
		}
		return false
	})
}

// reserved is what all members have when a client has reserved a job.
func (o *office) reserved(c *cluster, k *recorded) Digest {
	o.t.Helper()
	k.leave()
	o.must(c, k, "use mine\r\nwatch mine\r\nput 0 0 3600 1\r\nx\r\nreserve\r\n", "\r\nRESERVED ")
	return o.settledQuietly(c)
}

// returns starts a node that was down once the others have dropped what it lacks, and waits
// until it has a snapshot of theirs.
func (o *office) returns(c *cluster, away *peer, work func()) {
	o.t.Helper()
	last := away.lastIndex()
	c.eventually("the leader's log begins behind what the follower has", func() bool {
		work()
		n := c.leader().running()
		if n == nil {
			return false
		}
		first, err := n.log.FirstIndex()
		return err == nil && first > last+1
	})
	if err := c.start(away); err != nil {
		o.t.Fatal(err)
	}
	c.eventually("the snapshot is installed", func() bool {
		n := away.running()
		return n != nil && n.Status().Snapshot > last
	})
}

// versionTwo waits until reservations may be on record.
func (c *cluster) versionTwo() {
	c.t.Helper()
	c.eventually("all read version 2", func() bool {
		n := c.leader().running()
		return n != nil && n.Status().Version >= 2
	})
}

// Whoever takes over, comes back or gets a snapshot while clients work has their reservations as
// the leader has; and when a leadership begins, all of them end.
func TestMembersHaveTheReservationsOnRecord(t *testing.T) {
	t.Parallel()
	membersHaveReservations(t, false)
}

// The same where sessions go on with what they hold: nothing contradicts itself then, either, and those that are not heard
// of again end.
func TestMembersHaveWhatSessionsHoldThatGoOn(t *testing.T) {
	t.Parallel()
	membersHaveReservations(t, true)
}

func membersHaveReservations(t *testing.T, resumes bool) {
	c, o := newServedCluster(t, 3)
	o.resumes = resumes
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll().versionTwo()
	clients := make([]*recorded, 8)
	for i := range clients {
		clients[i] = &recorded{office: o}
	}
	holder := &recorded{office: o}
	rounds := 2
	if proof {
		rounds = 30
	}
	for round := range rounds {
		stop := o.work(c, clients, uint64(round))
		c.wait(10)
		switch l := c.leader(); c.rng.IntN(3) {
		case 0: // the leader dies
			c.restart(l, func() {
				c.leader(c.others(l)...)
				c.wait(10)
			})
		case 1:
			c.handOver(0)
		default: // it is cut off
			c.net.isolate(l, true)
			c.leader(c.others(l)...)
			c.net.isolate(l, false)
		}
		away := c.others(c.leader())[0]
		away.kill()
		o.returns(c, away, func() {})
		c.wait(10)
		stop()
		if resumes && round == rounds-1 {
			for _, k := range append(clients, holder) {
				k.part()
			}
			c.eventually("what nobody holds any more is ready", o.nothingHeld(c))
		}
		c.eventually("a job is held on record", func() bool { return o.reserved(c, holder).Holds != 0 })
	}
	if o.held.Load() == 0 {
		t.Error("no job was held when a leadership began")
	}
	if resumes && o.resumed.Load() == 0 {
		t.Error("no session has gone on with a job")
	}
}

// nothingHeld makes whoever serves end the sessions that are absent, and reports whether nothing is reserved there.
func (o *office) nothingHeld(c *cluster) func() bool {
	return func() bool {
		for _, p := range c.nodes {
			q := p.served()
			if q == nil {
				continue
			}
			reserved := -1
			err := q.execute(func(*Leadership) (journal.Pos, error) {
				if q.number == 0 {
					given, _, err := q.engine.GiveNumbers(101, 1, 1)
					if err != nil {
						return 0, err
					}
					q.number = given[0]
				}
				q.engine.CloseAbsent(q.number)
				q.woken = true
				q.run()
				reserved = q.engine.Snapshot(q.now()).Reserved
				return 0, nil
			})
			return err == nil && reserved == 0
		}
		return false
	}
}

// As long as one member cannot read of reservations, nothing of them is written.
func TestNothingIsHeldOnRecordUntilAllMembersReadIt(t *testing.T) {
	t.Parallel()
	c, o := newServedCluster(t, 3)
	old := c.nodes[1]
	old.newest = 1
	c.startAll()
	k := &recorded{office: o}
	c.wait(5 * electionTicks)
	if d := o.reserved(c, k); d.Holds != 0 || k.onRecord {
		t.Errorf("%v: a reservation is on record", d)
	}
	for _, p := range c.nodes {
		if v := p.running().Status().Version; v > 1 {
			t.Errorf("%s: version %d is allowed", p.name, v)
		}
	}
	c.replace(old, entry.Newest)
	c.versionTwo()
	c.eventually("a job is held on record", func() bool { return o.reserved(c, k).Holds != 0 })
}
