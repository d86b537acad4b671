package reactor

import (
	"bytes"
	"crypto/tls"
	"time"

	"trellis/codec"
	"trellis/engine"
)

// Access decides who may do what. Its methods are called on the goroutines of loops, also
// of several at a time, and must not block.
type Access interface {
	// Identify returns the rights of a client that is known by the user at the other end
	// of its Unix socket, or by its certificate. It returns nil for a client that has to
	// authenticate. It is not called for plain TCP, which tells nothing of a client.
	Identify(p *Peer) *engine.Grant
	// Authenticate returns the rights of the client to whom a token belongs, nil if the
	// token is nobody's. token is valid during the call only.
	Authenticate(p *Peer, token []byte) *engine.Grant
	// Refused reports a client that is disconnected because it has sent something else
	// than a token, or no line for too long or while others wanted its slot.
	Refused(p *Peer, why Refusal)
}

// Refusal is why a client that has not authenticated is disconnected. A token that is
// nobody's is no such reason: Authenticate has seen it.
type Refusal uint8

// The reasons.
const (
	RefusedUnauthenticated Refusal = iota // it has sent a command
	RefusedSilent                         // it has sent no line in time
	RefusedCrowded                        // it has sent no line yet, and others want its slot
)

// Peer is what is known of who is at the other end of a connection.
type Peer struct {
	// Addr is its address and port, "unix" on a Unix socket, "" if the system does not
	// tell.
	Addr string
	// UID is the user on a Unix socket as whom it has connected, or -1.
	UID int
	// TLS is the state of the connection after its handshake, nil without TLS. It is valid
	// during the call.
	TLS *tls.ConnectionState
}

// authTimeout is how long a client may take to authenticate.
const authTimeout = 10 * time.Second

// identify begins a connection of a server with access control. The engine gets a session for
// a client only when the client is known.
func (c *conn) identify(now time.Duration) {
	l := c.loop
	if p := c.peer(); p.known() {
		l.executing = c
		g := l.server.cfg.Access.Identify(&p)
		l.executing = nil
		if g != nil {
			if !c.admitAs(g, now) {
				c.refuse(codec.ReplyOutOfMemory, now)
			}
			return
		}
	}
	c.beginAuthentication(now)
}

// known reports whether the connection itself may say who the peer is.
func (p *Peer) known() bool { return p.UID >= 0 || p.TLS != nil }

// admitAs begins to serve a client. It reports false if the client's account has as many
// connections as it may have.
func (c *conn) admitAs(g *engine.Grant, now time.Duration) bool {
	l := c.loop
	if l.gateway != nil {
		c.enter(forwarded)
	} else if !c.openAs(g, now) {
		return false
	}
	if d := c.deadline; d != nil {
		l.deadlines.remove(d)
		c.deadline = nil
	}
	l.granted[c] = g
	c.forgetCertificates()
	if l.gateway != nil {
		c.forward(now)
	} else {
		c.limitLife(now)
	}
	return true
}

// openAs opens the session of a client. It reports false as admitAs does.
func (c *conn) openAs(g *engine.Grant, now time.Duration) bool {
	l := c.loop
	l.executing = c
	opened := l.engine.OpenGranted(&c.session, g, l.time(now))
	l.executing = nil
	if !opened {
		return false
	}
	if r := c.session.Rate(); r != nil {
		r.Take(l.time(now), rateConnection)
	}
	c.enter(serving)
	return true
}

// refuse ends a connection whose client is not to be served with a reply.
func (c *conn) refuse(reply string, now time.Duration) {
	c.loop.out.Buf = append(c.loop.out.Buf, reply...)
	c.flush()
	if c.phase < draining {
		c.enter(draining)
	}
	c.conclude(now)
}

// authenticate takes the first line of a client that has to authenticate. ok says that it has
// succeeded, and rest is what it has sent behind that line.
func (c *conn) authenticate(now time.Duration, p []byte) (rest []byte, ok bool) {
	l := c.loop
	l.executing = c
	n, whole := c.decoder.Next(p, &l.cmd)
	if !whole && !c.decoder.Refusing() {
		l.executing = nil
		if c.Pending() != nil || l.draining {
			c.conclude(now)
		}
		return nil, false
	}
	token, reply := firstToken(whole, &l.cmd)
	peer := c.peer()
	var g *engine.Grant
	if token == nil {
		l.server.cfg.Access.Refused(&peer, RefusedUnauthenticated)
	} else if g = l.server.cfg.Access.Authenticate(&peer, token); g == nil && l.cmd.Op == codec.OpAuth {
		reply = codec.ReplyUnauthorized
	} else if g == nil {
		// Not UNAUTHORIZED: there are clients that take a word which they do not know
		// for success.
		reply = codec.ReplyUnknownCommand
	}
	l.executing = nil
	switch {
	case g == nil:
		l.counts.unauthorized.Add(1)
	case c.admitAs(g, now):
		l.out.Buf = append(l.out.Buf, reply...)
		return p[n:], true
	default:
		reply = codec.ReplyOutOfMemory
	}
	if n < len(p) {
		c.needBacklog().behindQuit = true
	}
	if g == nil || !c.refuseLater(g, now) {
		c.refuse(reply, now)
	}
	return nil, false
}

// firstToken returns the token in a client's first line, nil if there is none, and the
// reply if the token is right, or to a line without one. It may be in a use, because that
// is a command which every client library has.
func firstToken(whole bool, cmd *codec.Command) (token []byte, reply string) {
	if whole && cmd.Op == codec.OpAuth {
		return cmd.Token, codec.ReplyAuthenticated
	}
	if whole && cmd.Op == codec.OpUse {
		if token, ok := bytes.CutPrefix(cmd.Tube, []byte(engine.TokenTube)); ok && len(token) > 0 {
			return token, string(codec.AppendUsing(nil, "default"))
		}
	}
	return nil, codec.ReplyUnknownCommand
}

// countRefusal is for a client that is disconnected because it has not authenticated.
func (c *conn) countRefusal(why Refusal) {
	c.loop.counts.unauthorized.Add(1)
	p := c.peer()
	c.loop.server.cfg.Access.Refused(&p, why)
}

// Revoke ends the connections of clients with these grants. What they have reserved is
// given back, and what they are owed is sent. It returns when the loops have listed them.
// Clients that are known only after that are not looked at: Access must not return any of
// these grants from the time on when Revoke is called. Any goroutine may call it.
//
// On a server that is being shut down, or has ended, it does nothing: that ends all
// connections, and each client is read at most once more.
func (s *Server) Revoke(gone func(*engine.Grant) bool) {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	s.onLoops(func(l *loop) {
		for c, g := range l.granted {
			if gone(g) {
				l.revoked = append(l.revoked, c)
			}
		}
	})
}

// revoke ends a connection whose client may do nothing any more.
func (c *conn) revoke(now time.Duration) {
	defer c.loop.recovered()
	c.loop.engine.Spend(connCost)
	if c.phase < draining {
		c.enter(draining)
	}
	c.conclude(now)
}
