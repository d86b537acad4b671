package reactor

import (
	"bytes"
	"time"

	"trellis/codec"
	"trellis/engine"
)

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

// openNow opens the session of a client that no engine has heard of. It reports false if the client's account has
// as many connections as it may have.
func (c *conn) openNow(g *engine.Grant, now time.Duration) bool {
	if g != nil {
		return c.openAs(g, now)
	}
	c.enter(serving)
	l := c.loop
	l.executing = c
	l.engine.Open(&c.session, l.time(now))
	l.executing = nil
	return true
}

// beginAuthentication gives the client a time to authenticate. If there are too many such clients, another one is
// disconnected.
func (c *conn) beginAuthentication(now time.Duration) {
	l := c.loop
	if l.unauthenticated.Full() {
		l.giveUpUnauthenticated(now)
	}
	c.deadline = &deadline{conn: c, active: now, index: -1}
	c.deadline.place = l.unauthenticated.Enter(0, c, c.endpoint().Source())
	l.deadlines.set(c.deadline, c.endsAt(now))
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

// refuse ends a connection whose client is not to be served with a reply.
func (c *conn) refuse(reply string, now time.Duration) {
	c.loop.out.Buf = append(c.loop.out.Buf, reply...)
	c.flush()
	if c.phase < draining {
		c.enter(draining)
	}
	c.conclude(now)
}

// refuseLater has a client for whom its account has no connection left wait for that answer if
// the account is beyond its rate: otherwise it could connect again and again at the expense of
// others. Until then it is one of those that have not authenticated, of which there are only so
// many. It reports false if the client is to be refused now.
func (c *conn) refuseLater(g *engine.Grant, now time.Duration) bool {
	l := c.loop
	r := l.engine.RateOf(g)
	if r == nil {
		return false
	}
	at := l.time(now)
	waits := r.Left(at) == 0 || l.throttled.lines[r] != nil
	r.Take(at, rateConnection)
	if waits {
		c.throttle(r, at)
		c.conclude(now)
	}
	return waits
}

// countRefusal is for a client that is disconnected because it has not authenticated.
func (c *conn) countRefusal(why Refusal) {
	c.loop.counts.unauthorized.Add(1)
	p := c.peer()
	c.loop.server.cfg.Access.Refused(&p, why)
}

// giveUpUnauthenticated disconnects the client that has been silent for longest, or of the source that has more than
// its share. It reports false if all clients of the loop have authenticated.
func (l *loop) giveUpUnauthenticated(now time.Duration) bool {
	c := l.unauthenticated.Oldest(0, nil)
	if c == nil {
		return false
	}
	c.countRefusal(RefusedCrowded)
	c.fail()
	c.end(now)
	return true
}
