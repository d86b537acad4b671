package reactor

import (
	"trellis/engine"
	"trellis/reactor/internal/accept"
)

// PeerAddr implements engine.Carrier.
func (l *loop) PeerAddr(s *engine.Session) string {
	return connOf(s).endpoint().String()
}

// TokenSent implements engine.Carrier.
func (l *loop) TokenSent(s *engine.Session) {
	if n, ok := l.server.tokens.Allow(); ok {
		l.server.log.Warn(
			"a client has sent a token for the name of a tube; it is refused, because this server asks for none",
			"peer", l.PeerAddr(s), "unreported", n)
	}
}

// endpoint is where the client is.
func (c *conn) endpoint() accept.Endpoint {
	if c.listener == accept.Own {
		return accept.Endpoint{Own: true}
	}
	if h := c.channel(); h != nil {
		return h.client
	}
	if e, ok := c.loop.proxied[c]; ok {
		return e
	}
	return accept.PeerOf(c.FD())
}

// setProxied notes what the header of a proxy says of a client. Connections have no field for it, so that those that
// come without a proxy are not bigger.
func (l *loop) setProxied(c *conn, client accept.Endpoint) {
	if l.proxied == nil {
		l.proxied = make(map[*conn]accept.Endpoint)
	}
	l.proxied[c] = client
}

// peer is what is known of who is at the other end.
func (c *conn) peer() Peer {
	e := c.endpoint()
	p := Peer{Addr: e.String(), UID: -1}
	if t := c.tlsConn(); t != nil {
		state := t.tls.ConnectionState()
		p.TLS = &state
	}
	if _, proxied := c.loop.proxied[c]; e.Unix && !proxied { // a proxy's user is not its client's
		if uid, err := accept.UserOf(c.FD()); err == nil {
			p.UID = uid
		}
	}
	return p
}
