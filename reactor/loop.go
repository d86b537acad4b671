package reactor

import (
	"runtime/debug"
	"sync/atomic"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/gnetloop"
)

// loop is the reactor's side of one of gnet's event loops. It is the engine's
// Waker for the sessions on it. What is not marked otherwise belongs to the
// loop's goroutine.
type loop struct {
	server  *Server
	gnet    *gnetloop.Loop // does not change
	engine  *engine.Loop   // does not change once the loop runs
	alarm   *alarm         // does not change
	counts  counts
	latency latency
	members atomic.Int64 // connections that it has, or is about to have; written by anybody

	// The replies of the commands that are being executed, or of the wait that is
	// being ended. It is empty whenever another connection may be dealt with, so
	// when serve is called.
	out    engine.Output
	pieces [][]byte // of a reply, for a write
	tls    tlsBuffers
	batch  batch // of the commands that are answered
	cmd    codec.Command

	// What serve does.
	round           uint32       // the number of the round
	run             queue[*conn] // connections that can go on
	commits         commits
	backlogs        []*backlog // unused
	deadlines       deadlines
	unauthenticated unauthenticated
	revoked         []*conn         // whose clients may do nothing any more
	stalled         map[int32]*conn // those of which gnetloop tells when they take output, by descriptor
	writable        []*conn         // whose clients take output again, perhaps
	nextLook        engine.Time     // when the alarm was asked to go off for a deadline

	granted   map[*conn]*engine.Grant // clients that are known; nil without access control
	acceptors map[int32]*acceptor     // those whose listeners are watched, by the number under which they are

	executing *conn // whose command the engine or the decoder is dealing with
	serving   bool  // inside serve
	behind    bool  // serve has left something that is not the engine's
	held      bool  // nothing is executed for now: see Server.Hold
	draining  bool  // Shutdown waits: each client is read at most once more
	stopping  bool  // connections that end now are not waited for

	calls    mailbox[func(*loop)] // see call
	arrivals mailbox[arrival]     // connections that were accepted on another loop
}

// newLoop returns a loop that the engine does not know yet.
func newLoop(s *Server, g *gnetloop.Loop) (*loop, error) {
	if hook := s.hooks.loop; hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	l := &loop{server: s, gnet: g, nextLook: engine.MaxTime, acceptors: make(map[int32]*acceptor), stalled: make(map[int32]*conn)}
	if s.cfg.Access != nil {
		l.granted = make(map[*conn]*engine.Grant)
		l.unauthenticated.init(&s.cfg)
	}
	l.alarm = newAlarm(g.Wake, s.cfg.Now)
	return l, nil
}

// Wake implements engine.Waker. Any goroutine may call it.
func (l *loop) Wake() { l.gnet.Wake() }

// Alarm implements engine.Waker. Any goroutine may call it.
func (l *loop) Alarm(at engine.Time) { l.alarm.ask(engineAlarm, at) }

// call has the loop call f soon, or never if the loop is being ended: who waits for f keeps
// it from that (see Server.beginHold). Any goroutine may call it.
func (l *loop) call(f func(*loop)) {
	l.calls.post(f)
	l.gnet.Wake()
}

// takeMail takes what others have left, and makes the calls.
func (l *loop) takeMail() {
	l.arrivals.take()
	for l.calls.take(); !l.calls.empty(); {
		l.calls.pop()(l)
	}
}

// prepareToStop makes a loop ready for its end.
func (l *loop) prepareToStop() {
	now := l.server.cfg.Now()
	l.stopping = true
	// gnet no longer knows the connections that go on without it. All of them have
	// deadlines.
	var left []*conn
	for _, d := range l.deadlines {
		if !d.conn.inGnet {
			left = append(left, d.conn)
		}
	}
	for _, c := range left {
		c.abandon(now)
	}
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
		l.discardReplies()
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
	c.end(s.cfg.Now())
}
