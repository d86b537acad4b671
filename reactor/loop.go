package reactor

import (
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/queue"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
)

// loop is the reactor's side of one of gnet's event loops. It is the engine's
// Waker for the sessions on it. What is not marked otherwise belongs to the
// loop's goroutine.
type loop struct {
	server  *Server
	gnet    *gnetloop.Loop  // does not change
	engine  *engine.Loop    // a zero Loop while there is no engine
	offset  engine.Time     // the engine's time at the zero of the loop's clock
	journal Committer       // of the engine; nil for none
	alarm   *alarm          // does not change
	streams *stream.Streams // of the connections; does not change
	counts  counts
	latency latency
	relief  atomic.Bool  // closeLargest is to be called; set by any loop
	members atomic.Int64 // connections that it has, or is about to have; written by anybody

	forwarding atomic.Bool // has a trunk to a leader; written by the loop

	// The replies of the commands that are being executed, or of the wait that is
	// being ended. It is empty whenever another connection may be dealt with, so
	// when serve is called.
	out   engine.Output
	batch batch // of the commands that are answered
	cmd   codec.Command

	// What serve does.
	round           uint32             // the number of the round
	conns           []*conn            // all that have not ended, in no order
	run             queue.Queue[*conn] // connections that can go on
	commits         commits
	backlogs        []*backlog // unused
	deadlines       deadlines
	throttled       throttled
	unauthenticated *accept.Crowd[*conn] // nil without access control
	revoked         []*conn              // whose clients may do nothing any more
	unverified      []*conn              // whose clients' certificates are not accepted any more
	postponed       []*conn              // for which something is to be made up when held ends
	nextLook        time.Duration        // when the alarm was asked to go off for a deadline

	gateway  *gateway                   // of a server that forwards its clients; nil otherwise
	number   uint32                     // begins the ids of its sessions in the next engine or gateway; 0 for none
	sessions uint64                     // that have had one of the ids
	detached map[*conn]*engine.Detached // sessions without an engine
	replays  map[*conn]*relay.Replay    // of sessions that were resumed
	granted  map[*conn]*engine.Grant    // clients that are known; nil without access control
	proxied  map[*conn]accept.Endpoint  // what proxies have told of their clients; nil before the first

	trunks      trunks
	resumptions queue.Queue[resumption]

	executing *conn // whose command the engine or the decoder is dealing with
	serving   bool  // inside serve
	behind    bool  // serve has left something that is not the engine's
	held      bool  // nothing is executed for now: see Server.Hold. It is so while there is no engine
	finishing bool  // although held, what waits goes on: see holdLoops
	draining  bool  // Shutdown waits: each client is read at most once more
	stopping  bool  // connections that end now are not waited for

	effects  effects                       // what the log tells a gateway
	calls    queue.Mailbox[func(*loop)]    // see call
	arrivals queue.Mailbox[accept.Arrival] // connections that were accepted on another loop
}

// newLoop returns a loop that the engine does not know yet.
func newLoop(s *Server, g *gnetloop.Loop) (*loop, error) {
	if hook := s.hooks.loop; hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	l := &loop{
		server: s, gnet: g, nextLook: never, throttled: throttled{at: engine.MaxTime}, trunks: trunks{tick: never},
	}
	l.streams = stream.New(stream.Config{
		Owner: l, Poller: g, MaxOutput: s.cfg.MaxOutput, MaxOutputTotal: s.cfg.MaxOutputTotal,
	})
	if s.cfg.Access != nil {
		l.granted = make(map[*conn]*engine.Grant)
		places := max(1, min(maxUnauthenticated, s.cfg.MaxConnections/4)/s.cfg.Loops)
		l.unauthenticated = accept.NewCrowd[*conn](places, 1)
	}
	l.effects.fence.Store(relay.NoIndex)
	l.alarm = newAlarm(g.Wake, s.now)
	return l, nil
}

// setEngine has the loop go on with an engine.
func (l *loop) setEngine(e *engine.Loop, j Committer) {
	l.engine, l.streams.Engine, l.journal = e, e, j
}

// Wake implements engine.Waker. Any goroutine may call it.
func (l *loop) Wake() { l.gnet.Wake() }

// Alarm implements engine.Waker. Any goroutine may call it.
func (l *loop) Alarm(at engine.Time) { l.alarm.ask(engineAlarm, l.duration(at)) }

// time is a time of the loop's clock by that of its engine.
func (l *loop) time(at time.Duration) engine.Time { return engine.Time(at) + l.offset }

// duration is the reverse of time. Never stays never.
func (l *loop) duration(at engine.Time) time.Duration {
	if at == engine.MaxTime {
		return never
	}
	return time.Duration(at - l.offset)
}

// call has the loop call f soon, or never if the loop is being ended: who waits for f keeps
// it from that (see Server.beginHold). Any goroutine may call it.
func (l *loop) call(f func(*loop)) {
	l.calls.Post(f)
	l.gnet.Wake()
}

// takeMail takes what others have left, and makes the calls.
func (l *loop) takeMail() {
	l.arrivals.Take()
	if l.effects.full.Load() && l.gateway != nil {
		l.gateway.takeApplied()
	}
	for l.calls.Take(); !l.calls.Empty(); {
		l.calls.Pop()(l)
	}
}

// prepareToStop makes a loop ready for its end.
func (l *loop) prepareToStop() {
	now := l.server.now()
	l.stopping = true
	l.engine.Stop()
	for _, c := range slices.Clone(l.conns) {
		if !c.Polled() {
			c.abandon(now)
		}
	}
	if !l.server.aborting.Load() {
		l.gateway.leave()
	}
}

// enlist adds a connection to the loop's.
func (l *loop) enlist(c *conn) {
	c.at = int32(len(l.conns))
	l.conns = append(l.conns, c)
}

// strike undoes enlist.
func (l *loop) strike(c *conn) {
	last := len(l.conns) - 1
	l.conns[c.at] = l.conns[last]
	l.conns[c.at].at = c.at
	l.conns[last] = nil
	l.conns = l.conns[:last]
}

// recovered is deferred around everything that the loop does for a connection,
// and around the rest. A panic inside a command costs the client that sent it its
// connection, unless the engine was interrupted with a lock held: then, and if the
// panic came from elsewhere, nobody knows what is broken, and the process ends.
func (l *loop) recovered() {
	r := recover()
	if r == nil {
		return
	}
	l.gnet.Wake() // whoever comes behind is served after the next poll
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
	l.batch = batch{}
	if !busy { // otherwise a body's lock may be held
		stream.Empty(&l.out)
	}
	if c == nil {
		return
	}
	l.executing = nil
	l.counts.panics.Add(1)
	if n, ok := s.panics.Allow(); ok {
		s.log.Error("a command has panicked; its connection is closed",
			"panic", r, "stack", stack, "unreported", n)
	}
	defer func() {
		if r := recover(); r != nil {
			s.die("a panic while closing a connection after a panic", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	c.fail()
	c.end(s.now())
}

// TLS implements stream.Owner.
func (l *loop) TLS(s *stream.Stream) *stream.TLS { return &connOfStream(s).tlsConn().tls }

// Channel implements stream.Owner.
func (l *loop) Channel(s *stream.Stream) *stream.Channel { return &connOfStream(s).channel().Channel }

// Duplicate implements stream.Owner.
func (l *loop) Duplicate(fd int) (int, error) { return l.server.acceptor.Duplicate(fd) }

// DescriptorFreed implements stream.Owner.
func (l *loop) DescriptorFreed() { l.server.acceptor.Freed() }
