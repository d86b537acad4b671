package reactor

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// endpoint is the other end of a connection. The zero endpoint is one that is gone.
type endpoint struct {
	addr   netip.AddrPort // of TCP
	onUnix bool           // it is a Unix socket
	own    bool           // it is this process: see Server.Connect
}

func (e endpoint) String() string {
	switch {
	case e.own:
		return ownAddr
	case e.onUnix:
		return "unix"
	case e.addr.IsValid():
		return e.addr.String()
	}
	return ""
}

// source is where the endpoint is, for shares of places.
func (e endpoint) source() source { return sourceOf(e.addr.Addr()) }

// endpointOf is what the system says of a socket's peer.
func endpointOf(fd int) endpoint {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return endpoint{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return endpoint{addr: netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))}
	case *unix.SockaddrInet6:
		return endpoint{addr: netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))}
	case *unix.SockaddrUnix:
		return endpoint{onUnix: true}
	}
	return endpoint{}
}

// clientOf is what a gateway says of a client.
func clientOf(o *trunk.Open) endpoint {
	return endpoint{addr: o.Client, onUnix: o.Network == trunk.NetworkUnix, own: o.Network == trunk.NetworkOwn}
}

// PeerAddr implements engine.Carrier.
func (l *loop) PeerAddr(s *engine.Session) string {
	return connOf(s).endpoint().String()
}

// Via implements engine.Carrier.
func (*loop) Via(s *engine.Session) string {
	if c := connOf(s); c.listener.channel() {
		return c.channel().trunk.name
	}
	return ""
}

// TokenSent implements engine.Carrier.
func (l *loop) TokenSent(s *engine.Session) {
	if n, ok := l.server.tokens.Allow(); ok {
		l.server.log.Warn("a client has sent a token for the name of a tube; it is refused, because this server asks for none",
			"peer", l.PeerAddr(s), "unreported", n)
	}
}

// endpoint is where the client is.
func (c *conn) endpoint() endpoint {
	if c.listener.own() {
		return endpoint{own: true}
	}
	if c.listener.channel() {
		return c.channel().client
	}
	if e, ok := c.loop.proxied[c]; ok {
		return e
	}
	return endpointOf(int(c.fd))
}

// setProxied notes what a proxy has told of a client. Connections have no field for it, so that
// those that come without a proxy are not bigger.
func (l *loop) setProxied(c *conn, client endpoint) {
	if l.proxied == nil {
		l.proxied = make(map[*conn]endpoint)
	}
	l.proxied[c] = client
}

// peer is what is known of who is at the other end.
func (c *conn) peer() Peer {
	e := c.endpoint()
	p := Peer{Addr: e.String(), UID: -1}
	if c.listener.tls() {
		state := c.tls().tls.ConnectionState()
		p.TLS = &state
	}
	if _, proxied := c.loop.proxied[c]; e.onUnix && !proxied { // a proxy's user is not its client's
		if uid, err := peerUID(int(c.fd)); err == nil {
			p.UID = uid
		}
	}
	return p
}
