package reactor

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"trellis/codec"
	"trellis/engine"
)

// loop is the reactor's side of one of gnet's event loops. It is the engine's
// Bell for the sessions on it. What is not marked otherwise belongs to the
// loop's goroutine.
type loop struct {
	server  *Server
	el      gnet.EventLoop
	engine  *engine.Loop
	pause   pauser // does not change
	counts  counts
	latency latency
	members atomic.Int64 // connections that it has, or is about to have; written by anybody

	// The replies of the batch of commands that is being executed, or of the
	// wait that is being ended. It is empty whenever another connection may be
	// dealt with: at the calls of engine's Deliver and Expire.
	out     engine.Output
	replies int   // in out
	tally   tally // of the commands that they answer
	cmd     codec.Command

	commits committing

	executing *conn // whose command the engine or the decoder is dealing with
	serving   *conn // whose input gnet has reported; gnet closes it when told so on return
	draining  bool  // who is read is not read again: what has come is to be answered, and no more
	stopping  bool  // connections that end now are not waited for

	// Connections that are being ended, which have deadlines.
	ending  map[*conn]struct{}
	sweep   *time.Timer // for the earliest deadline in ending
	sweepAt engine.Time // for when sweep is set; MaxTime if it is not

	waits *time.Timer // for the earliest time-out of a waiting session
	idle  idlers

	gate   sync.RWMutex
	closed bool // no more tasks are posted; guarded by gate

	rings struct {
		mu     sync.Mutex
		posted bool    // a ringTask is on its way; guarded by mu
		conns  []*conn // whose descriptors can be written to; guarded by mu
	}
	rung []*conn // the spare slice for rings.conns
}

func newLoop(s *Server, el gnet.EventLoop) *loop {
	l := &loop{server: s, el: el, ending: make(map[*conn]struct{}), sweepAt: engine.MaxTime}
	l.waits = time.AfterFunc(time.Hour, l.Ring)
	l.waits.Stop()
	l.sweep = time.AfterFunc(time.Hour, func() { l.post((*sweepTask)(l)) })
	l.sweep.Stop()
	l.idle.init(l, s.cfg.IdleTimeout)
	l.engine = s.cfg.Engine.NewLoop(l) // it may ring at once
	return l
}

// What other goroutines make a loop do. Each task is the loop itself under
// another name, so that posting it allocates nothing of ours.
type (
	deliverTask loop
	ringTask    loop
	sweepTask   loop
)

// Ring implements engine.Bell. Any goroutine may call it.
func (l *loop) Ring() { l.post((*deliverTask)(l)) }

func (t *deliverTask) Run(context.Context) error {
	l := (*loop)(t)
	l.deliver(l.server.cfg.Now())
	return nil
}

// Alarm implements engine.Bell.
func (l *loop) Alarm(at engine.Time) {
	l.waits.Reset(max(0, time.Duration(at-l.server.cfg.Now())))
}

// post makes the loop's goroutine run a task soon. Any goroutine may call it. It
// reports false when the loop has ended.
func (l *loop) post(task gnet.Runnable) bool {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		return false
	}
	if err := l.el.Execute(context.Background(), task); err != nil {
		// Its queue has no bound: only waking the loop can have failed, which
		// leaves sessions asleep for ever.
		l.server.die("an event loop cannot be woken", "error", err)
		return false
	}
	return true
}

// shut makes post do nothing from now on. Any goroutine may call it.
func (l *loop) shut() {
	l.gate.Lock()
	l.closed = true
	l.gate.Unlock()
}

// ringFor tells the loop that c's descriptor can be written to. Any goroutine
// may call it.
func (l *loop) ringFor(c *conn) {
	l.rings.mu.Lock()
	l.rings.conns = append(l.rings.conns, c)
	post := !l.rings.posted
	l.rings.posted = true
	l.rings.mu.Unlock()
	if post {
		l.post((*ringTask)(l))
	}
}

func (t *ringTask) Run(context.Context) error {
	l := (*loop)(t)
	l.rings.mu.Lock()
	conns := l.rings.conns
	l.rings.conns = l.rung[:0]
	l.rings.posted = false
	l.rings.mu.Unlock()
	now := l.server.cfg.Now()
	for i, c := range conns {
		conns[i] = nil
		c.writable(now)
	}
	l.rung = conns[:0]
	l.deliver(now)
	return nil
}

// deliver wakes the connections whose sessions got a job. It ends everything that
// makes the engine work, because what a loop's own commands hand over to its own
// sessions does not ring.
func (l *loop) deliver(now engine.Time) {
	defer l.recovered()
	l.engine.Refill()
	for o := l.engine.Next(now); o != nil; o = l.engine.Next(now) {
		o.(*conn).Wake(now)
	}
}

// addEnding gives a connection that is being ended until cut.
func (l *loop) addEnding(c *conn, cut engine.Time) {
	c.x.cut = cut
	if !c.x.timed {
		c.x.timed = true
		l.ending[c] = struct{}{}
		l.counts.ending.Add(1)
	}
	l.sweepBy(cut)
}

func (l *loop) sweepBy(at engine.Time) {
	if at < l.sweepAt {
		l.sweepAt = at
		l.sweep.Reset(max(0, time.Duration(at-l.server.cfg.Now())))
	}
}

// Run ends the connections whose time is over.
func (t *sweepTask) Run(context.Context) error {
	l := (*loop)(t)
	now := l.server.cfg.Now()
	l.sweepAt = engine.MaxTime
	next := engine.MaxTime
	for c := range l.ending {
		if c.x.cut <= now {
			c.giveUp(now)
		} else {
			next = min(next, c.x.cut)
		}
	}
	if next != engine.MaxTime {
		l.sweepBy(next)
	}
	l.deliver(now)
	return nil
}

// onceTask runs something on a loop.
type onceTask struct {
	loop *loop
	run  func(*loop)
	done func()
}

func (t *onceTask) Run(context.Context) error {
	defer t.done()
	t.run(t.loop)
	return nil
}

// prepareToStop makes a loop ready for its end.
func (l *loop) prepareToStop() {
	now := l.server.cfg.Now()
	l.stopping = true
	// gnet knows nothing of those that it has closed.
	for c := range l.ending {
		if c.gc == nil {
			c.abandon(now)
		}
	}
	l.deliver(now)
}

// recovered is deferred around everything that gnet, a timer or another
// connection makes the loop do. A panic inside a command costs the client that
// sent it, unless the engine was interrupted with a lock held: then, and if the
// panic came from elsewhere, nobody knows what is broken, and the process ends.
func (l *loop) recovered() {
	r := recover()
	if r == nil {
		return
	}
	s := l.server
	c := l.executing
	stack := string(debug.Stack())
	busy := l.engine.Busy() || s.hooks.busy != nil && s.hooks.busy()
	switch {
	case busy:
		s.die("a panic has interrupted the engine", "panic", r, "stack", stack)
	case c == nil:
		s.die("a panic outside of any command", "panic", r, "stack", stack)
	}
	l.out.Buf, l.out.Pos, l.replies, l.tally = nil, 0, 0, tally{}
	if c == nil {
		return
	}
	l.executing = nil
	l.counts.panics.Add(1)
	if n, ok := s.panics.allow(); ok {
		s.log.Error("a command has panicked; its connection is closed",
			"panic", r, "stack", stack, "unreported", n)
	}
	defer func() {
		if r := recover(); r != nil {
			s.die("a panic while closing a connection after a panic", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	c.broken = true
	c.end(s.cfg.Now())
}
