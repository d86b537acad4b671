package reactor

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/clock"
	"trellis/reactor/internal/link"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// LeaderPatience is how long a gateway forwards without contact with the leader before it resets its clients, and how
// long a client waits for a leader.
const LeaderPatience = relay.LeaderPatience

// gateway is what a loop of a server without an engine has beside others: its end of the trunk to the leader, and the
// connections that it forwards. It belongs to the loop's goroutine.
type gateway struct {
	*relay.Gateway
	loop    *loop
	clients map[*conn]*relay.Client
	line    *link.Link  // nil while there is none
	ended   chan<- bool // told of the end of the trunk, with whether its leader took clients
}

func newGateway(l *loop, now time.Duration) *gateway {
	g := &gateway{loop: l, clients: make(map[*conn]*relay.Client)}
	g.Gateway = relay.NewGateway(g, cmp.Or(l.server.hooks.trunks, trunk.Version), now)
	return g
}

// hasWork reports whether turn would do something.
func (g *gateway) hasWork(now time.Duration) bool {
	return g != nil && (g.HasWork(now) || g.hasApplied())
}

// nextTurn is when turn is to be called, by the loop's clock.
func (g *gateway) nextTurn() time.Duration {
	if g == nil {
		return clock.Never
	}
	return g.NextTurn()
}

// leave tells the leader that the loop ends.
func (g *gateway) leave() {
	if g != nil {
		g.Leave()
	}
}

// BootTime implements relay.Host.
func (g *gateway) BootTime() time.Duration { return g.loop.server.hooks.boot() }

// Leads implements relay.Host.
func (g *gateway) Leads(term uint64) bool {
	for s := g.loop.server; ; {
		latest := s.term.Load()
		if term < latest {
			return false
		}
		if s.term.CompareAndSwap(latest, term) {
			return true
		}
	}
}

// TakeMemory implements relay.Host.
func (g *gateway) TakeMemory(n int) bool { return g.loop.server.takeMemory(n) }

// GiveMemory implements relay.Host.
func (g *gateway) GiveMemory(n int) { g.loop.server.gatewayMemory.Add(-int64(n)) }

// LeaderReady implements relay.Host.
func (g *gateway) LeaderReady(w *trunk.Welcome, without time.Duration) {
	l := g.loop
	l.forwards(true, l.server.now())
	l.server.forwarding.fence.Store(w.Fence)
	l.counts.attaches.Add(1)
	l.counts.apart.Add(int64(without))
}

// LeaderLost implements relay.Host.
func (g *gateway) LeaderLost(contact time.Duration) { g.loop.forwards(false, contact) }

// InContact implements relay.Host.
func (g *gateway) InContact(at time.Duration) { g.loop.counts.contact.Store(int64(at)) }

// Denied implements relay.Host.
func (g *gateway) Denied(c relay.Conn, grant *engine.Grant, d *trunk.Denied) {
	audit := g.loop.server.cfg.Audit
	if audit == nil {
		return
	}
	peer := ""
	if c != nil { // otherwise it has gone
		peer = (*conn)(c.(*forwardedConn)).endpoint().String()
	}
	audit(engine.Deed{
		Client: grant.Name(), Op: codec.OpNamed(d.Command), Tube: d.Tube, To: d.To, ID: d.ID, Result: d.Result, Denied: true,
	}.At(peer))
}

// forwarding is whether a server without an engine forwards clients.
type forwarding struct {
	mu    sync.Mutex
	fence atomic.Uint64 // of the trunk that came last
	loops int           // that have a trunk; guarded by mu
	since time.Duration // when one was in contact last, or the server began to forward; guarded by mu
}

// begin notes that no loop has a trunk yet, and why: until now the server has led, or there was nobody who did.
func (f *forwarding) begin(now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = now
}

// forwards notes whether the loop has a trunk, and when it was in contact with a leader.
func (l *loop) forwards(on bool, at time.Duration) {
	l.forwarding.Store(on)
	f := &l.server.forwarding
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since = max(f.since, at); on {
		f.loops++
	} else {
		f.loops--
	}
}

// Forwarding tells how many loops of a server without an engine have a trunk to a leader, and if none has, for how
// long none was in contact with it. Any goroutine may call it.
func (s *Server) Forwarding() (loops int, without time.Duration) {
	f := &s.forwarding
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loops == 0 {
		without = s.now() - f.since
	}
	return f.loops, without
}

// Fence is an index of the log: what was executed for the clients before the leader took them lies up to it.
func (s *Server) Fence() uint64 { return s.forwarding.fence.Load() }

// AwaitApplied implements relay.Host.
func (g *gateway) AwaitApplied(index uint64) { g.loop.effects.fence.Store(index) }

// hasApplied reports whether this member has applied what the gateway waits for.
func (g *gateway) hasApplied() bool {
	return g.loop.effects.fence.Load() <= g.loop.server.applied.Load()
}

func (g *gateway) hasNumber(number uint32) bool {
	n, _ := g.Number()
	return n == number
}
