package reactor

import (
	"fmt"

	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/stream"
)

// Poller implements accept.Loop.
func (l *loop) Poller() *gnetloop.Loop { return l.gnet }

// Call implements accept.Loop.
func (l *loop) Call(f func()) { l.call(func(*loop) { f() }) }

// Least implements accept.Loop: of the loops that have a trunk, or else of all, it is the one with the fewest
// connections.
func (l *loop) Least() accept.Loop {
	least, fewest, forwards := l, l.members.Load(), l.forwarding.Load()
	for _, l := range l.server.loops {
		n, f := l.members.Load(), l.forwarding.Load()
		if f == forwards && n < fewest || f && !forwards {
			least, fewest, forwards = l, n, f
		}
	}
	least.members.Add(1)
	return least
}

// Post implements accept.Loop.
func (l *loop) Post(n accept.Arrival) {
	l.arrivals.Post(n)
	l.gnet.Wake()
}

// Admit implements accept.Loop.
func (l *loop) Admit(n accept.Arrival) error {
	if l.held {
		l.Post(n)
		return nil
	}
	return l.admit(n)
}

// MakeRoom implements accept.Loop.
func (l *loop) MakeRoom() bool {
	s := l.server
	if s.cfg.Access == nil || l.giveUpUnauthenticated(s.now()) {
		return s.cfg.Access != nil
	}
	for _, other := range s.loops {
		if other != l {
			other.call(func(l *loop) { l.giveUpUnauthenticated(s.now()) })
		}
	}
	return false
}

// admitNext takes in the connection that arrived first.
func (l *loop) admitNext() {
	l.engine.Spend(connCost)
	n := l.arrivals.Pop()
	if err := l.admit(n); err != nil {
		l.server.acceptor.Failed(n, err)
	}
}

// admitAll takes in all connections that have arrived.
func (l *loop) admitAll() {
	for l.arrivals.Take(); !l.arrivals.Empty(); {
		l.admitNext()
	}
}

// admit begins a connection. If it fails, the descriptor is closed.
func (l *loop) admit(n accept.Arrival) error {
	c, kind := new(conn), stream.OnSocket
	if n.TLS != nil {
		c, kind = &newTLS(n).conn, stream.OnTLS
	}
	c.loop, c.listener = l, n.Listener
	c.Init(n.FD, kind)
	if n.Client != nil {
		l.setProxied(c, *n.Client)
	}
	if err := l.gnet.Adopt(n.FD, c); err != nil {
		delete(l.proxied, c)
		l.members.Add(-1)
		return fmt.Errorf("giving a connection to a loop: %w", err)
	}
	l.server.acceptor.Opened(n.Listener)
	now := l.server.now()
	c.open(now)
	l.serve(now)
	return nil
}
