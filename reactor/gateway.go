package reactor

import (
	"cmp"
	"time"

	"trellis/codec"
	"trellis/engine"
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
	line    *trunkLine  // nil while there is none
	ended   chan<- bool // told of the end of the trunk, with whether its leader took clients
}

func newGateway(l *loop, now time.Duration) *gateway {
	g := &gateway{loop: l, clients: make(map[*conn]*relay.Client)}
	g.Gateway = relay.NewGateway(g, cmp.Or(l.server.hooks.trunks, trunk.Version), now)
	return g
}

// connect forwards over a trunk, when its leader is ready. Its end is sent to ended.
func (g *gateway) connect(t *trunkLine, number uint32, ended chan<- bool) *gateway {
	g.line, g.ended = t, ended
	g.Connect(t, number)
	g.loop.effects.number.Store(number)
	return g
}

// take implements trunkEnd.
func (g *gateway) take(now time.Duration, it *trunk.Item) error {
	w, err := g.Item(now, it)
	if w.Do != relay.Nothing {
		g.fulfil(now, &w)
	}
	return err
}

// writable implements trunkEnd. Who is next in line goes on in this round.
func (g *gateway) writable(time.Duration) {}

// disconnected implements trunkEnd.
func (g *gateway) disconnected(now time.Duration, err error) {
	l := g.loop
	if n, ok := l.server.trunkEnds.Allow(); ok && !l.stopping {
		l.server.log.Info("clients are not forwarded for now", "reason", err, "unreported", n)
	}
	ready := g.IsReady()
	g.line = nil
	g.Disconnected(now, err)
	g.ended <- ready
	l.gnet.Wake()
}

// turn does what is to be done beside reading, a bit of each kind.
func (g *gateway) turn(now time.Duration) (did bool) {
	if w := g.Next(now); w.Do != relay.Nothing {
		g.fulfil(now, &w)
		did = true
	}
	if g.hasApplied() {
		g.takeApplied()
		did = true
	}
	if g.Turn(now) {
		did = true
	}
	if w := g.NextLoss(); w.Do != relay.Nothing {
		g.fulfil(now, &w)
		did = true
	}
	return did
}

// hasWork reports whether turn would do something.
func (g *gateway) hasWork(now time.Duration) bool {
	return g != nil && (g.HasWork(now) || g.hasApplied())
}

// nextTurn is when turn is to be called, by the loop's clock.
func (g *gateway) nextTurn() time.Duration {
	if g == nil {
		return never
	}
	return g.NextTurn()
}

// look is called at the beginning of each round, before anything is said to clients: it ends them all if there was no
// contact with the leader for too long.
func (g *gateway) look() {
	if g == nil {
		return
	}
	if err := g.Check(); err != nil {
		defer g.loop.recovered()
		g.giveUp(g.loop.server.now(), err)
	}
}

// giveUp resets the clients that may have something to lose, and forgets all sessions.
func (g *gateway) giveUp(now time.Duration, why error) {
	if g.line != nil {
		g.line.fail(now, why)
		return
	}
	g.Disconnected(now, why)
	g.loop.gnet.Wake()
}

// leave tells the leader that the loop ends.
func (g *gateway) leave() {
	if g != nil {
		g.Leave()
	}
}

// finish reads each client once more, and ends those that no leader serves. The server is shut down.
func (g *gateway) finish(now time.Duration) {
	if g == nil {
		return
	}
	g.Finish()
	for c := range g.clients {
		if c.phase == forwarded {
			c.conclude(now)
		}
	}
}

// fulfil does what is wished for a client.
func (g *gateway) fulfil(now time.Duration, w *relay.Wish) {
	l, c := g.loop, (*conn)(w.Client.Conn().(*forwardedConn))
	defer l.recovered()
	l.engine.Spend(connCost)
	switch w.Do {
	case relay.Write:
		if c.deliver(now, w.Data); c.Pending() == nil && c.phase < draining && !l.draining {
			g.GiveCredit(w.Client)
			return
		}
	case relay.Read:
		c.needBacklog()
		if c.readOn(now); !c.Ended() {
			c.Pending().In.Rest = false
		}
		g.AskTurn(w.Client)
	case relay.End:
		if count := l.counts.lost(w.Cause); count != nil && c.closure == open {
			count.Add(1)
		}
	}
	c.conclude(now)
}

// deliver writes replies to a client that is forwarded.
func (c *conn) deliver(now time.Duration, p []byte) {
	if !c.Owes() {
		c.noteActivity(now)
	}
	if !c.loop.streams.Deliver(&c.Stream, p) {
		c.fail()
	}
}

// BootTime implements relay.Host.
func (g *gateway) BootTime() time.Duration { return g.loop.server.bootTime() }

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

// takeMemory counts n bytes more in Config.GatewayMemory, if there is room.
func (s *Server) takeMemory(n int) bool {
	if s.gatewayMemory.Add(int64(n)) > s.cfg.GatewayMemory {
		s.gatewayMemory.Add(-int64(n))
		return false
	}
	return true
}

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

var started = time.Now()

// sinceStart is a clock that need not go on while the machine sleeps.
func sinceStart() time.Duration { return time.Since(started) }

// bootTime is the time of contact with the leader.
func (s *Server) bootTime() time.Duration {
	if clock := s.hooks.boot; clock != nil {
		return clock()
	}
	return bootTime()
}
