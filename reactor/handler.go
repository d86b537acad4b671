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
	c, ok := gc.Context().(*conn)
	if !ok {
		return nil, gnet.None
	}
	l := h.server.byEL[gc.EventLoop()]
	l.serving = c
	now := h.server.cfg.Now()
	h.server.addresses.forget(gc)
	c.open(l, gc, now)
	l.deliver(now)
	l.serving = nil
	return nil, c.action()
}

func (h *handler) OnTraffic(gc gnet.Conn) gnet.Action {
	// Whatever is left here gnet copies to a buffer, and from then on every read.
	p, _ := gc.Next(-1)
	c, ok := gc.Context().(*conn)
	if !ok {
		return gnet.None
	}
	l := c.loop
	now := h.server.cfg.Now()
	l.serving = c
	c.traffic(now, p)
	l.deliver(now)
	l.serving = nil
	return c.action()
}

// OnClose comes also for connections that the server closes itself. gnet closes
// the descriptor as soon as it returns.
func (h *handler) OnClose(gc gnet.Conn, err error) gnet.Action {
	switch c := gc.Context().(type) {
	case *scout:
		close(c.closed)
	case *conn:
		now := h.server.cfg.Now()
		c.gc = nil
		c.closing(now, err)
		c.loop.deliver(now)
		h.server.descriptorFreed()
	}
	return gnet.None
}
