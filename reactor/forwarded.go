package reactor

import (
	"time"

	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/trunk"
)

// forward begins to forward a client whose phase says so.
func (c *conn) forward(now time.Duration) {
	g := c.loop.gateway
	g.clients[c] = g.Forward(now, (*forwardedConn)(c), c.loop.granted[c])
}

// forwarding is what is known of a client that is forwarded, nil for any other.
func (c *conn) forwarding() *relay.Client {
	if g := c.loop.gateway; g != nil {
		return g.clients[c]
	}
	return nil
}

// awaitsLeader reports whether a leader is to hear of the client, and none has yet.
func (c *conn) awaitsLeader() bool {
	f := c.forwarding()
	if f == nil || c.phase != forwarded {
		return false
	}
	_, awaits := f.AwaitsLeader()
	return awaits
}

// closeForwarded ends the session of a client that is or might have been forwarded.
func (c *conn) closeForwarded() {
	if c.closure > postponed {
		return
	}
	c.decoder.Release()
	c.closure = closed
	if f := c.forwarding(); f != nil && c.loop.gateway.Close(f) {
		c.closure = closing // until the leader has given back what the client has reserved
	}
}

// forgetForwarded is for a connection that has ended.
func (c *conn) forgetForwarded() {
	if f := c.forwarding(); f != nil {
		c.loop.gateway.Forget(f)
		delete(c.loop.gateway.clients, c)
	}
}

// forwardedConn is a connection as the gateway's end of a trunk has it.
type forwardedConn conn

// Open implements relay.Conn.
func (f *forwardedConn) Open(session uint64) trunk.Open {
	e := (*conn)(f).endpoint()
	o := trunk.OpenOf(session, e.Addr)
	switch {
	case e.Own:
		o.Network = trunk.NetworkOwn
	case e.Unix:
		o.Network = trunk.NetworkUnix
	}
	return o
}

// Intake implements relay.Conn.
func (f *forwardedConn) Intake() relay.Intake {
	p := f.Pending()
	switch {
	case p != nil && p.In.Rest:
		return relay.Unread
	case f.Ended():
		return relay.Ended
	}
	return relay.Reading
}

// Input implements relay.Conn.
func (f *forwardedConn) Input() []byte {
	if f.InputLen() == 0 {
		return nil
	}
	return f.Pending().In.Bytes()
}

// TakeInput implements relay.Conn.
func (f *forwardedConn) TakeInput(n int) {
	in := &f.Pending().In
	in.KeepLast(in.Len()-n, &f.loop.streams.Counts)
}

// ReturnInput implements relay.Conn.
func (f *forwardedConn) ReturnInput(pieces [][]byte) {
	(*conn)(f).needBacklog().In.Prepend(&f.loop.streams.Counts, pieces...)
}

// Owed implements relay.Conn.
func (f *forwardedConn) Owed() int { return f.Stream.Owed() }

// AwaitLeader implements relay.Conn.
func (f *forwardedConn) AwaitLeader(now, until time.Duration) {
	if f.deadline == nil {
		f.deadline = &deadline{conn: (*conn)(f), active: now, index: -1}
	}
	f.loop.deadlines.set(f.deadline, until)
}

// LeaderHeard implements relay.Conn.
func (f *forwardedConn) LeaderHeard() { (*conn)(f).forgetDeadline() }

// Drain implements relay.Conn.
func (f *forwardedConn) Drain(more bool) {
	c := (*conn)(f)
	if c.phase != forwarded {
		return // it turns out to be broken
	}
	if more {
		c.needBacklog().behindQuit = true
	}
	c.enter(draining)
}

// Reset implements relay.Conn.
func (f *forwardedConn) Reset() {
	c := (*conn)(f)
	c.resetOnClose()
	c.fail()
}

// GaveBack implements relay.Conn.
func (f *forwardedConn) GaveBack() { f.closure = closed }
