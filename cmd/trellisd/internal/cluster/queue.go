package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/binlog/spill"
	"trellis/engine"
	"trellis/reactor"
)

// QueueConfig is what a queue needs.
type QueueConfig struct {
	// Engine and Reactor are how engines and reactors are made. The queue sets Journal
	// and Start of the one, and Engine, Now and Journal of the other.
	Engine  engine.Config
	Reactor reactor.Config

	// Listen opens the sockets for clients: those without TLS, and those with it.
	Listen func() (plain, tls []net.Listener, err error)

	// TLS is for the latter; nil if there are none.
	TLS *tls.Config

	// Serves is told of each reactor before it serves anybody. Nil does nothing.
	Serves func(*reactor.Server)

	// Mono runs evenly and is never set, as the node's clock does. Nil means the system's.
	Mono func() time.Duration

	// FreeMemory has the process give memory back that an engine had. Nil is debug.FreeOSMemory.
	FreeMemory func()

	// Log gets what an operator should know.
	Log *slog.Logger
}

// Queue is a node's jobs, and the clients that it serves while it leads: a
// replica.Queue. Make one with NewQueue.
type Queue struct {
	cfg    QueueConfig
	trunks uint16 // version of what trunks carry that it speaks; tests change it before the node runs

	// handOver transfers leadership to another member. Set before the node runs.
	handOver func(context.Context) error
	// fail ends the node. Set before the node runs.
	fail func(error)
	// resign ends the leadership of the node. Set before the node runs.
	resign func(why string)
	// leads reports whether the node was elected. Set before the node runs.
	leads func() bool
	// fence is that of the node. Set before the node runs.
	fence func(ctx context.Context, l *replica.Leadership, executed bool) (uint64, error)
	// newGateway makes what a new server of so many loops says of itself to leaders. Set before the node runs.
	newGateway func(loops int) *gateway
	// changed is called when Serving may tell something else. It must not block. Set before
	// the node runs.
	changed func()

	life atomic.Pointer[spill.Life] // where bodies are that are not in memory; nil if all are

	holding     sync.Mutex  // held by Hold, and when a held server loses its engine
	numbersTold atomic.Bool // numbers of loops may be gone

	mu             sync.Mutex
	engine         *engine.Engine   // nil before the first standby
	follower       *engine.Follower // nil when the engine serves
	start          int64            // cluster time at the engine's Time 0
	service        *service         // nil while there is no leadership
	waitingClients *clients         // those of a leadership that was settled; nil if there are none
	gateway        *clients         // those that are forwarded to another member; nil if there are none
	onHold         bool             // nothing executes: see Hold
	news           chan struct{}    // closed when service or held change
	stopping       bool             // no more gateway begins
	draining       bool             // leaderships to come begin in drain mode
	leaderships    uint64           // that were served
	contradictions uint64           // that the engines before this one have counted
	freedLoops     uint64           // loops of members whose clients' jobs it has freed
}

// Leaderships is how often the queue began to serve. Any goroutine may call it.
func (q *Queue) Leaderships() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leaderships
}

// Gone is of how many loops of members the queue has freed what their clients held. Any goroutine may call it.
func (q *Queue) Gone() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.freedLoops
}

// Contradictions is how many records of reservations did not fit those before them, since the
// process began. Any goroutine may call it.
func (q *Queue) Contradictions() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.contradictions
	if q.engine != nil {
		n += q.engine.Contradictions()
	}
	return n
}

// NewQueue makes a queue without jobs.
func NewQueue(cfg QueueConfig) *Queue {
	if cfg.Mono == nil {
		began := time.Now()
		cfg.Mono = func() time.Duration { return time.Since(began) }
	}
	if cfg.FreeMemory == nil {
		cfg.FreeMemory = debug.FreeOSMemory
	}
	return &Queue{cfg: cfg, trunks: trunkVersion, changed: func() {}, news: make(chan struct{})}
}

var errNoQueue = errors.New("this node has no jobs yet, or was about to lose them")

// Standby implements replica.Queue.
func (q *Queue) Standby(start int64) (replica.Standby, error) {
	q.discard()
	q.cfg.FreeMemory() // what an engine had on the collected heap is garbage now, and this one is about to take as much
	cfg := q.cfg.Engine
	cfg.Start = time.Unix(0, start)
	e := engine.New(cfg)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.engine, q.follower, q.start = e, e.Follow(engine.Always), start
	if q.cfg.Engine.Limits.Bodies > 0 {
		return spilling{fed{q.follower, q}, e}, nil
	}
	return fed{q.follower, q}, nil
}

// discard gives all memory of the present engine back, if there is one.
func (q *Queue) discard() {
	q.mu.Lock()
	e := q.engine
	q.engine, q.follower = nil, nil
	if e != nil {
		q.contradictions += e.Contradictions()
	}
	q.mu.Unlock()
	if e != nil {
		e.Discard()
	}
}

// Serve implements replica.Queue.
func (q *Queue) Serve(l *replica.Leadership) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, start := q.engine, q.start
	// That of a clock which only runs as fast could be early from the beginning. What such an engine records would be due
	// early for the next leader, which goes by the time of the leadership.
	now := func() engine.Time { return engine.Time(l.Now() - start) }
	q.follower.RecordIn(l)
	if q.resumes() && l.TakesTrunks() {
		q.follower.ServeOn(l.NextID(), now())
	} else {
		q.follower.Serve(l.NextID(), now())
	}
	q.follower = nil
	e.Drain(q.draining)
	c, before := q.waitingClients, (*clients)(nil)
	switch {
	case c != nil:
	case q.resumes():
		c = q.gateway
	default:
		before = q.gateway // it has the port
	}
	q.waitingClients, q.gateway = nil, nil
	lives := c != nil
	if !lives {
		var err error
		if c, err = q.newClients(e, now, l); err != nil {
			return err
		}
	}
	c.leads.Store(true)
	l.Attach(replica.Hooks{
		OnCommit: func(journal.Pos) { c.server.Committed() },
		OnRoom:   e.Room,
	})
	s := &service{clients: c, leadership: l, now: now, absences: newAbsences()}
	s.ended, s.end = context.WithCancel(c.ctx)
	q.service, q.onHold = s, false
	q.announce()
	q.leaderships++
	if lives {
		c.server.Attach(e, now, l)
	}
	c.working.Go(func() {
		before.reset()
		if q.resumes() {
			s.number(e)
		}
		c.open()
		q.changed() // which may ask who serves
	})
	s.guarding.Go(s.guard)
	s.guarding.Go(func() { s.watchGateways(e) })
	return nil
}

// newClients starts a server that nobody listens for yet, of a leadership; l is nil, as e is, for one that
// forwards clients.
func (q *Queue) newClients(e *engine.Engine, now func() engine.Time, l *replica.Leadership) (*clients, error) {
	cfg := q.cfg.Reactor
	cfg.Engine, cfg.Now = e, now
	if l != nil {
		cfg.Journal = l
	}
	srv, err := reactor.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("starting the event loops: %w", err)
	}
	if q.cfg.Serves != nil {
		q.cfg.Serves(srv)
	}
	c := &clients{queue: q, server: srv, self: q.newGateway(srv.Loops())}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Retire implements replica.Queue.
func (q *Queue) Retire(l *replica.Leadership) {
	q.mu.Lock()
	s := q.service
	q.service, q.onHold = nil, false
	q.announce()
	if s != nil && !q.engine.Draining() {
		q.draining = false // a client has ended it
	}
	q.mu.Unlock()
	if s == nil {
		return
	}
	q.changed()
	s.end()
	if lives := l.Settled() && (!l.HandedOver() || q.resumes() && l.TakesTrunks()); lives && q.detach(s) {
		q.mu.Lock()
		s.clients.leads.Store(false)
		q.waitingClients = s.clients
		q.mu.Unlock()
		if l.HandedOver() {
			q.forward()
		}
	} else {
		s.reset()
	}
	s.guarding.Wait()
	q.discard()
}

// detach takes a server out of its engine, when nobody is about to end its hold.
func (q *Queue) detach(s *service) bool {
	q.holding.Lock()
	defer q.holding.Unlock()
	return s.server.Detach()
}

// abandon resets the clients that wait for a leadership, and those that are forwarded: the node has ended.
func (q *Queue) abandon() {
	q.mu.Lock()
	waiting, gateway := q.waitingClients, q.gateway
	q.waitingClients, q.gateway, q.stopping = nil, nil, true
	q.mu.Unlock()
	waiting.reset()
	gateway.reset()
}

// Hold implements replica.Queue. What the server's own clients have reserved is put on record before the leadership is
// handed over: so they go on.
func (q *Queue) Hold(on bool) {
	q.holding.Lock()
	defer q.holding.Unlock()
	s := q.serving()
	if s == nil {
		return
	}
	if on {
		q.hold(s, true)
	}
	s.server.Hold(on)
	if on && q.resumes() && s.leadership.TakesTrunks() {
		s.server.Record()
	}
	if !on {
		q.hold(s, false)
	}
}

// hold notes whether a service is held.
func (q *Queue) hold(s *service, on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.service == s {
		q.onHold = on
		q.announce()
	}
}

// Flush implements replica.Queue.
func (q *Queue) Flush(ctx context.Context) {
	s := q.serving()
	if s == nil {
		return
	}
	if err := s.server.Flush(ctx); err != nil {
		q.cfg.Log.Info("some clients have not read their last replies", "error", err)
	}
}

// Stop has no clients be forwarded that are not already: the node is about to end.
func (q *Queue) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopping = true
}

const (
	// attachPatience is how long Shutdown waits until clients are connected with the leader that has taken over.
	attachPatience = 2 * time.Second
	// attachPause is between two looks.
	attachPause = 5 * time.Millisecond
)

// Shutdown ends the service in order, while the node still leads, or while clients are forwarded to
// another: clients get what they are owed until ctx ends. It does nothing without clients.
func (q *Queue) Shutdown(ctx context.Context) error {
	c := q.living(ctx)
	if c == nil {
		return nil
	}
	c.cancel()
	return c.server.Shutdown(ctx)
}

// living are the clients, nil if there are none. If this node has handed over, they are to be
// answered by the next leader.
func (q *Queue) living(ctx context.Context) *clients {
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	for {
		q.mu.Lock()
		s, c := q.service, q.gateway
		q.mu.Unlock()
		switch {
		case s != nil && !s.leadership.Over():
			return s.clients
		case s == nil && c == nil:
			return nil
		case s == nil:
			if loops, _ := c.server.Forwarding(); loops == c.server.Loops() {
				return c
			}
		}
		select {
		case <-ctx.Done():
			return c
		case <-time.After(attachPause):
		}
	}
}

// Drain turns drain mode on, also in leaderships to come, until a client turns it off.
func (q *Queue) Drain() {
	q.mu.Lock()
	q.draining = true
	if q.engine != nil {
		q.engine.Drain(true)
	}
	q.mu.Unlock()
}

// Walk implements replica.Queue.
func (q *Queue) Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (next uint64, err error) {
	e := q.Present()
	if e == nil {
		return 0, errNoQueue
	}
	return e.Walk(from, n, f)
}

// Settings implements replica.Queue.
func (q *Queue) Settings(f func(*journal.Setting) error) error {
	e := q.Present()
	if e == nil {
		return errNoQueue
	}
	return e.Settings(f)
}

// Numbers implements replica.Queue.
func (q *Queue) Numbers(f func(*journal.Numbers) error) error {
	e := q.Present()
	if e == nil {
		return errNoQueue
	}
	return e.Numbers(f)
}

// Applied implements replica.Queue.
func (q *Queue) Applied(index uint64, effects []journal.Effect) {
	c, e := q.clients()
	if c == nil {
		return
	}
	if q.numbersTold.Swap(false) {
		for _, n := range c.self.gone(e) {
			c.server.NumberGone(n)
		}
	}
	c.server.Applied(index, effects)
}

// EffectsLost implements replica.Queue.
func (q *Queue) EffectsLost() {
	q.numbersTold.Store(true)
	if c, _ := q.clients(); c != nil {
		c.server.EffectsLost()
	}
}

// clients are those of this node, whoever serves them, nil if there are none.
func (q *Queue) clients() (*clients, *engine.Engine) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.service != nil:
		return q.service.clients, q.engine
	case q.gateway != nil:
		return q.gateway, q.engine
	}
	return q.waitingClients, q.engine
}

// fed is an engine that is fed, which tells when numbers of loops may be gone. It is the applier's.
type fed struct {
	*engine.Follower
	queue *Queue
}

// Numbers implements replica.Standby.
func (f fed) Numbers(n *journal.Numbers) error {
	f.queue.numbersTold.Store(true)
	return f.Follower.Numbers(n)
}

// digestSlice is how many jobs are summed up before loops have their turn.
const digestSlice = 1024

// Digest implements replica.Queue. A queue that is given up meanwhile has no jobs.
func (q *Queue) Digest(stamp int64) replica.Digest {
	e := q.Present()
	if e == nil {
		return replica.Digest{}
	}
	d := journal.NewDigester(math.MaxInt64, stamp) // clocks of members differ, so that delays must not matter
	var bodies *spill.Reader
	if l := q.life.Load(); l != nil {
		bodies = l.Reader(nil)
		defer bodies.Close()
	}
	var cold []coldJob
	add := func(r *journal.Record, h *journal.Hold) error {
		if r.Absent == nil {
			return d.Add(r, h)
		}
		cold = append(cold, coldOf(r, h)) // a walk does not wait for a disk
		return nil
	}
	for from := uint64(1); from != 0; {
		var err error
		if from, err = e.Walk(from, digestSlice, add); err != nil {
			return replica.Digest{}
		}
		slices.SortFunc(cold, byPlace)
		for i := range cold {
			if err := cold[i].sum(d, bodies); err != nil {
				return replica.Digest{}
			}
		}
		cold = cold[:0]
		runtime.Gosched() // loops have work to do
	}
	if err := e.Settings(d.AddSetting); err != nil {
		return replica.Digest{}
	}
	return replica.Digest(d.Digest())
}

// Present is the engine that there is, also of a standby; nil if there is none. It may be given up meanwhile, and can
// still be looked at. Any goroutine may call it.
func (q *Queue) Present() *engine.Engine {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.engine
}

func (q *Queue) serving() *service {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.service
}

// Serving is the queue while it serves. Current waits, for a second at most, until it is
// certain that the node led when Current was called, and that all that was executed before
// is committed. What was read from the engine before counts only then.
type Serving struct {
	Engine   *engine.Engine
	Reactor  *reactor.Server
	Now      func() engine.Time
	Current  func() bool
	Addrs    []net.Addr // that clients connect to; nil while there are none
	Draining bool
}

// Serving tells who serves clients, nil if nobody does. Any goroutine may call it. What it
// returns may be ended meanwhile, and can still be looked at.
func (q *Queue) Serving() *Serving {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.service
	if s == nil {
		return nil
	}
	return &Serving{
		Engine: q.engine, Reactor: s.server, Now: s.now, Current: s.current, Addrs: s.addrs, Draining: q.engine.Draining(),
	}
}
