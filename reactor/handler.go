package reactor

import (
	"github.com/panjf2000/gnet/v2"
)

// handler is what gnet calls, on the goroutine of the connection's loop.
type handler struct {
	gnet.BuiltinEventEngine
	server *Server
}

func (h *handler) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	var c *conn
	switch context := gc.Context().(type) {
	case *conn:
		c = context
	case *tlsConn:
		c = &context.conn
	case *bell:
		context.opened = true
		return nil, gnet.None
	case *acceptor:
		context.opened(gc)
		context.loop.enrolled(gc)
		return nil, gnet.None
	default:
		return nil, gnet.None
	}
	l := h.server.byEL[gc.EventLoop()]
	l.enrolled(gc)
	before := l.dealing // a loop may adopt a connection while it deals with another
	l.dealing = c
	now := h.server.cfg.Now()
	c.open(l, gc, now)
	if c.listener.tls() && c.phase < broken {
		c.tls().begin(now)
	}
	l.serve(now)
	l.dealing = before
	return nil, c.action()
}

func (h *handler) OnTraffic(gc gnet.Conn) gnet.Action {
	// gnet would copy what is left here to a buffer, and from then on every read.
	p, _ := gc.Next(-1)
	switch c := gc.Context().(type) {
	case *bell:
		c.heard()
		c.loop.polled()
		if c.loop.canPoll() {
			c.loop.poll()
		}
	case *acceptor:
		c.arrived()
	case *conn:
		return c.arrived(p)
	case *tlsConn:
		return c.conn.arrived(p)
	}
	return gnet.None
}

// arrived takes what the client has sent, and goes on with whatever that allows. p is
// valid only during the call.
func (c *conn) arrived(p []byte) gnet.Action {
	l := c.loop
	now := l.server.cfg.Now()
	l.dealing = c
	l.reported(&c.round)
	if c.listener.tls() {
		c.tls().received(now, p)
	} else {
		c.traffic(now, p)
	}
	l.serve(now)
	l.dealing = nil
	return c.action()
}

// OnClose comes also for connections that the server closes itself. gnet closes
// the descriptor as soon as it returns.
func (h *handler) OnClose(gc gnet.Conn, err error) gnet.Action {
	switch c := gc.Context().(type) {
	case *scout:
		close(c.closed)
	case *acceptor:
		c.loop.dismissed(gc)
		c.closed(gc)
	case *conn:
		c.loop.dismissed(gc)
		h.closed(c, err)
	case *tlsConn:
		c.loop.dismissed(gc)
		h.closed(&c.conn, err)
	}
	return gnet.None
}

func (h *handler) closed(c *conn, err error) {
	now := h.server.cfg.Now()
	if c.gc != nil { // otherwise it goes on without gnet already
		c.gc = nil
		c.closing(now, err)
	}
	c.loop.serve(now)
	h.server.descriptorFreed()
}
