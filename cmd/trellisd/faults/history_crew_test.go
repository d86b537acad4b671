package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Crew is stock clients, some at each member of a cluster, that do what those of a queue do:
// producers put, workers wait for jobs, work a bit and finish them. A client stays at its member
// and keeps its connection. One that is lost although the member has lived all the time is
// an error, and so is a reply that a queue that goes on as if nothing happened would not give.
type Crew struct {
	Recorder *Recorder
	Tube     string        // with this their tubes' names begin
	Each     int           // of each kind, at each member
	Pace     time.Duration // that a client rests between commands, about
	Full     atomic.Bool   // disks are, so that changes may be refused

	posts []*Post
	pools [tubes]atomic.Int64 // jobs of a tube that are there, about

	mu     sync.Mutex
	broken []Broken      // guarded by mu
	where  map[int]*Post // guarded by mu; the sessions
}

// The tubes of a crew differ in how long their jobs may be worked on, and in how many there are.
const (
	busy   = iota // there are always some
	seldom        // workers wait
	brief         // jobs come back to those who forget them
	tubes
)

// briefTTR is short enough to end during a test, and so long that most workers are done.
const briefTTR = 2 * time.Second

// backlog is how many jobs of a busy tube there are, about.
const backlog = 100

// Post is a member as the clients know it that work there.
type Post struct {
	Name, Addr string

	mu    sync.Mutex
	gone  bool  // guarded by mu
	goes  int   // guarded by mu; how often it has gone
	heard int64 // guarded by mu; when it has last replied to somebody
}

// Broken is a connection that was lost at a member that lived.
type Broken struct {
	Post    string
	Session int
	At      time.Duration // since the history began
	Why     error
	Silent  time.Duration // since the member has replied to anybody
}

func (b Broken) String() string {
	return fmt.Sprintf("%v: session %d at %s, %v after the member's last reply: %v", b.At, b.Session, b.Post, b.Silent, b.Why)
}

// NewCrew makes a crew of a cluster's members.
func NewCrew(tube string, posts ...*Post) *Crew {
	return &Crew{Recorder: NewRecorder(), Tube: tube, Each: 1, Pace: 2 * time.Millisecond, posts: posts, where: map[int]*Post{}}
}

// Goes tells that a member ends connections from now on, as it is killed. Its clients go on elsewhere.
func (p *Post) Goes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.goes++
}

// Comes tells that it serves again. Its clients come back.
func (p *Post) Comes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = false
}

func (p *Post) left() (gone bool, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone, p.goes
}

// hears notes a reply.
func (p *Post) hears(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = max(p.heard, now)
}

func (p *Post) silent(now int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(now - p.heard)
}

func (c *Crew) tube(n int) string { return fmt.Sprintf("%s-%d", c.Tube, n) }

// Broken are the connections that should not have been lost.
func (c *Crew) Broken() []Broken {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken[:len(c.broken):len(c.broken)]
}

// Run has all clients work until ctx ends, and closes them. Its error tells of replies that no
// server may give.
func (c *Crew) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, p := range c.posts {
		for _, act := range []func(*mate, *rand.Rand) error{
			(*mate).produce, (*mate).work, (*mate).wait, (*mate).hurry, (*mate).keep, (*mate).visit,
		} {
			for range c.Each {
				m := &mate{crew: c, ctx: ctx, home: p}
				all.Go(func() error { return m.run(act) })
			}
		}
	}
	return all.Wait()
}

// mate is a client of a crew.
type mate struct {
	*Client
	crew *Crew
	ctx  context.Context
	home *Post
	kept map[uint64]int // turns for which it goes on to hold a job

	at    *Post // where it is connected
	times int   // how often that had gone when it was
}

// crewWaits is how long a client waits for a reply. That a member answers nobody for so long is an error.
const crewWaits = time.Minute

func (m *mate) run(act func(*mate, *rand.Rand) error) error {
	m.Client = m.crew.Recorder.NewClient(m.crew.tube(busy), func() []string { return []string{m.at.Addr} })
	m.waits, m.opens = crewWaits, crewWaits
	m.kept = map[uint64]int{}
	defer m.Close()
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for m.ctx.Err() == nil {
		if err := m.connect(); err != nil {
			continue
		}
		lost := m.Lost()
		session := m.session
		err := act(m, rng)
		switch {
		case m.Lost() > lost:
			m.noteLost(session, m.why)
		case err != nil && !errors.Is(err, ErrLost) && !(m.crew.Full.Load() && errors.Is(err, ErrNoRoom)):
			return fmt.Errorf("at %s, %w", m.at.Name, err)
		default:
			m.at.hears(m.crew.Recorder.now())
		}
		m.rest(time.Duration(rng.Int64N(int64(2*m.crew.Pace + 1))))
	}
	return nil
}

// connect has the client connected, at home if that is there.
func (m *mate) connect() error {
	if gone, _ := m.home.left(); m.conn != nil && m.at != m.home && !gone {
		m.Close()
	}
	if m.conn != nil {
		return nil
	}
	clear(m.kept)
	m.at = m.home
	for _, p := range m.crew.posts {
		if gone, _ := m.at.left(); !gone {
			break
		}
		m.at = p
	}
	_, m.times = m.at.left()
	if err := m.dial(m.ctx, m.at.Addr); err != nil {
		if m.ctx.Err() == nil {
			m.noteLost(0, err)
		}
		m.rest(pause)
		return err
	}
	m.crew.mu.Lock()
	defer m.crew.mu.Unlock()
	m.crew.where[m.session] = m.at
	return nil
}

// noteLost notes a connection that was lost, or refused. That of a member that has gone meanwhile is no error.
func (m *mate) noteLost(session int, why error) {
	if _, times := m.at.left(); times != m.times {
		return
	}
	now := m.crew.Recorder.now()
	m.crew.mu.Lock()
	defer m.crew.mu.Unlock()
	m.crew.broken = append(m.crew.broken, Broken{
		Post: m.at.Name, Session: session, At: time.Duration(now), Why: why, Silent: m.at.silent(now),
	})
}

func (m *mate) rest(d time.Duration) {
	select {
	case <-m.ctx.Done():
	case <-time.After(d):
	}
}

// use has the client use and watch a tube of the crew, if it does not.
func (m *mate) use(tube int) error {
	if m.tube == m.crew.tube(tube) {
		return nil
	}
	return m.SetTube(m.crew.tube(tube))
}

// put puts a job, if there are not enough.
func (m *mate) put(tube int, most int64, ttr time.Duration, sizes ...int) error {
	if m.crew.pools[tube].Load() >= most {
		return nil
	}
	if err := m.use(tube); err != nil {
		return err
	}
	m.crew.pools[tube].Add(int64(len(sizes)))
	return m.PutAll(ttr, sizes...)
}

// anySize is that of a small body, mostly, and seldom of one that is larger than all that may be under way.
func anySize(rng *rand.Rand) int {
	if rng.IntN(50) == 0 {
		return rng.IntN(50_000)
	}
	return rng.IntN(200)
}

// produce puts jobs of all kinds, now and then some at once.
func (m *mate) produce(rng *rand.Rand) error {
	switch n := rng.IntN(30); {
	case n == 0:
		return m.put(seldom, 2, longTTR*time.Second, anySize(rng))
	case n < 4:
		return m.put(brief, 20, briefTTR, anySize(rng))
	case n < 8:
		return m.put(busy, backlog, longTTR*time.Second, anySize(rng), anySize(rng), anySize(rng), anySize(rng))
	}
	return m.put(busy, backlog, longTTR*time.Second, anySize(rng))
}

// work reserves a job and finishes it.
func (m *mate) work(rng *rand.Rand) error { return m.workOn(busy, 1+rng.IntN(3), m.crew.Pace, rng) }

// wait waits for a job, for as long as a change of leader takes.
func (m *mate) wait(rng *rand.Rand) error { return m.workOn(seldom, 1+rng.IntN(8), m.crew.Pace, rng) }

// hurry works on jobs that come back to those who are late, and sometimes is.
func (m *mate) hurry(rng *rand.Rand) error {
	work := briefTTR / 4
	switch rng.IntN(8) {
	case 0, 1:
		work = briefTTR
	case 2: // it forgets that it has a job
		_, err := m.ReserveWithin(1 + rng.IntN(3))
		return err
	}
	return m.workOn(brief, 1+rng.IntN(3), work, rng)
}

// workOn reserves a job, works for up to twice so long and finishes it.
func (m *mate) workOn(tube, seconds int, work time.Duration, rng *rand.Rand) error {
	if err := m.use(tube); err != nil {
		return err
	}
	id, err := m.ReserveWithin(seconds)
	if err != nil || id == 0 {
		return err
	}
	m.rest(time.Duration(rng.Int64N(int64(2*work + 1))))
	return m.finish(tube, id, rng)
}

// finish does with a job that is held what workers do in the end.
func (m *mate) finish(tube int, id uint64, rng *rand.Rand) error {
	switch rng.IntN(10) {
	case 0:
		return m.Release(id, rng.Uint32N(10), rng.Uint32N(2))
	case 1:
		if err := m.Bury(id, rng.Uint32N(10)); err != nil {
			return err
		}
		_, err := m.Job(KickJob, id)
		return err
	case 2:
		if _, err := m.Job(Touch, id); err != nil {
			return err
		}
	}
	o, err := m.Job(Delete, id)
	if o.Reply == "DELETED" {
		m.crew.pools[tube].Add(-1)
	}
	return err
}

// keep holds some jobs for long.
func (m *mate) keep(rng *rand.Rand) error {
	if len(m.Holds()) < 5 {
		id, err := m.ReserveWithin(0)
		if id != 0 {
			m.kept[id] = 10 + rng.IntN(100)
		}
		return err
	}
	m.rest(10 * m.crew.Pace)
	id := m.Holds()[rng.IntN(len(m.Holds()))]
	if m.kept[id]--; m.kept[id] > 0 {
		_, err := m.Job(Touch, id)
		return err
	}
	return m.finish(busy, id, rng)
}

// visit connects, puts a job and leaves.
func (m *mate) visit(rng *rand.Rand) error {
	err := m.put(busy, 2*backlog, longTTR*time.Second, anySize(rng))
	m.Close()
	m.rest(20 * m.crew.Pace)
	return err
}
