package reactor

import (
	"time"

	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/stream"
)

// open is the beginning of a connection that gnet has.
func (c *conn) open(now time.Duration) {
	l := c.loop
	defer l.recovered()
	early := l.streams.Begin(&c.Stream)
	c.join()
	if l.server.aborting.Load() {
		c.reset(now)
		return
	}
	if l.server.cfg.Access == nil {
		c.forgetCertificates()
	}
	switch {
	case l.server.cfg.Access != nil && c.listener != accept.Own:
		c.identify(now)
	case l.gateway != nil:
		c.enter(forwarded)
		c.forward(now)
	default:
		c.openNow(nil, now)
		c.limitLife(now)
	}
	if early && c.phase < broken {
		c.received(now, nil) // the handshake may have read the client's first commands
	}
}

// received takes what was read of the client. p is valid only during the call.
func (c *conn) received(now time.Duration, p []byte) {
	l := c.loop
	defer l.recovered()
	if c.phase >= draining || l.server.aborting.Load() {
		l.streams.Counts.BytesIn.Add(uint64(len(p)))
		return // it is thrown away
	}
	l.executing = c // a panic of crypto/tls is one of this client's input
	p, err := l.streams.Decrypt(&c.Stream, p)
	l.executing = nil
	if err == stream.ErrLost {
		c.fail()
		c.conclude(now)
		return
	}
	if len(p) > 0 {
		c.traffic(now, p)
	}
	switch {
	case err != nil && c.phase < draining:
		c.inputEnds(now, err)
	case c.backlogOrNil() == nil && l.streams.Sendable(&c.Stream):
		c.conclude(now) // so that what TLS has to say is sent
	}
}

// traffic takes the plain text that the client has sent.
func (c *conn) traffic(now time.Duration, p []byte) {
	l := c.loop
	l.streams.Counts.BytesIn.Add(uint64(len(p)))
	if c.phase == forwarded {
		c.pass(now, p)
		return
	}
	c.session.Received(len(p))
	c.take(now, p)
}

// take executes what the client has sent, or keeps it.
func (c *conn) take(now time.Duration, p []byte) {
	l := c.loop
	if c.phase == authenticating {
		if c.throttled() {
			return // it is refused in any case
		}
		if l.held {
			l.streams.Keep(&c.Stream, p)
			c.postpone()
			c.conclude(now)
			return
		}
		var ok bool
		if p, ok = c.authenticate(now, p); !ok {
			return
		}
		if l.gateway != nil {
			c.beginPassing(now, p)
			return
		}
	}
	c.noteActivity(now)
	switch {
	case c.phase == waiting || c.Pending() != nil || l.held:
		c.flush() // the reply to a token may stand in l.out
		first := c.InputLen() == 0
		l.streams.Keep(&c.Stream, p)
		switch {
		case c.phase != waiting || !first:
		case l.held:
			c.postpone()
		default:
			c.interrupt(now)
		}
	default:
		rest := c.execute(now, p)
		c.flush()
		if len(rest) > 0 && c.phase < broken {
			l.streams.Keep(&c.Stream, rest)
		}
	}
	c.limitBody(now)
	if c.Pending() != nil || c.phase >= draining || l.draining {
		c.conclude(now)
	}
}

// pass passes on what the client has sent, or keeps it until that can be done.
func (c *conn) pass(now time.Duration, p []byte) {
	l := c.loop
	g := l.gateway
	f := g.clients[c]
	if !g.Input(f, now, p) {
		l.streams.Keep(&c.Stream, p)
		g.AskTurn(f)
	}
	if c.Pending() != nil || l.draining {
		c.conclude(now)
	}
}

// beginPassing sends a client of a gateway the reply to its token, and passes on what has come behind it.
func (c *conn) beginPassing(now time.Duration, p []byte) {
	c.flush()
	c.noteActivity(now)
	if len(p) > 0 && c.phase == forwarded {
		c.pass(now, p)
	} else if c.Pending() != nil || c.loop.draining {
		c.conclude(now)
	}
}
