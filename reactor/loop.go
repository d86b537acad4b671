package reactor

import (
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/clock"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/latency"
	"trellis/reactor/internal/link"
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
	alarm   *clock.Alarm    // does not change
	streams *stream.Streams // of the connections; does not change
	counts  counts
	latency latency.Recorder
	relief  atomic.Bool  // closeLargest is to be called; set by any loop
	members atomic.Int64 // connections that it has, or is about to have; written by anybody

	forwarding atomic.Bool // has a trunk to a leader; written by the loop

	// The replies of the commands that are being executed, or of the wait that is
	// being ended. It is empty whenever another connection may be dealt with, so
	// when serve is called.
	out   engine.Output
	batch latency.Batch // of the commands that are answered
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

	links       link.Links // the trunks
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

// setEngine gives the loop an engine.
func (l *loop) setEngine(e *engine.Loop, j Committer) {
	l.engine, l.streams.Engine, l.links.Engine, l.journal = e, e, e, j
}

// Wake implements engine.Waker. Any goroutine may call it.
func (l *loop) Wake() { l.gnet.Wake() }

// Alarm implements engine.Waker. Any goroutine may call it.
func (l *loop) Alarm(at engine.Time) { l.alarm.Ask(clock.Engine, l.duration(at)) }

// time is a time of the loop's clock by that of its engine.
func (l *loop) time(at time.Duration) engine.Time { return engine.Time(at) + l.offset }

// duration is the reverse of time. Never stays never.
func (l *loop) duration(at engine.Time) time.Duration {
	if at == engine.MaxTime {
		return clock.Never
	}
	return time.Duration(at - l.offset)
}

// call makes the loop call f soon, or never if the loop is being ended: who waits for f keeps
// it from that (see Server.beginHold). Any goroutine may call it.
func (l *loop) call(f func(*loop)) {
	l.calls.Post(f)
	l.gnet.Wake()
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

// Duplicate implements stream.Owner.
func (l *loop) Duplicate(fd int) (int, error) { return l.server.acceptor.Duplicate(fd) }

// DescriptorFreed implements stream.Owner.
func (l *loop) DescriptorFreed() { l.server.acceptor.Freed() }

func (l *loop) newRound() {
	if hook := l.server.hooks.round; hook != nil {
		hook(l)
	}
	l.round++
	l.engine.Refill()
}

// resumes reports whether sessions that wait go on.
func (l *loop) resumes() bool { return !l.held || l.finishing }

// patience is asked, at the end of the loop, whether to wait for a client that does not take the rest of a TLS
// record. It is nil while others wait for the loop.
func (l *loop) patience() func() bool {
	if !l.stopping {
		return nil
	}
	return func() bool {
		select {
		case <-l.server.giveUp:
			return false
		default:
			return !l.server.aborting.Load()
		}
	}
}
