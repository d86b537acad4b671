package reactor

import (
	"time"

	"trellis/reactor/internal/link"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// connect forwards over a trunk, when its leader is ready. Its end is sent to ended.
func (g *gateway) connect(t *link.Link, number uint32, ended chan<- bool) *gateway {
	g.line, g.ended = t, ended
	g.Connect(t, number)
	g.loop.effects.number.Store(number)
	return g
}

// TakeItem implements link.End.
func (g *gateway) TakeItem(now time.Duration, it *trunk.Item) error {
	w, err := g.Item(now, it)
	if w.Do != relay.Nothing {
		g.fulfil(now, &w)
	}
	return err
}

// HasRoom implements link.End. Who is next in line goes on in this round.
func (g *gateway) HasRoom(time.Duration) {}

// Disconnect implements link.End.
func (g *gateway) Disconnect(now time.Duration, err error) {
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
		g.line.Fail(now, why)
		return
	}
	g.Disconnected(now, why)
	g.loop.gnet.Wake()
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

// takeApplied takes what the log has told.
func (g *gateway) takeApplied() {
	b := &g.loop.effects
	index := g.loop.server.applied.Load()
	if b.fence.Load() <= index {
		b.fence.Store(relay.NoIndex)
	}
	list, isLost := b.take()
	g.Applied(index, list, isLost)
}

// NumberGone tells a server that the log says that a number is gone with all its sessions. The clients that have them
// are reset.
func (s *Server) NumberGone(number uint32) {
	if l := s.loopOf(number); l != nil {
		l.call(func(l *loop) {
			if g := l.gateway; g != nil && g.hasNumber(number) {
				g.giveUp(s.now(), relay.ErrNumberGone)
			}
		})
	}
}
