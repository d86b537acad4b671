package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"

	"trellis/reactor/internal/link"
	"trellis/reactor/internal/sockets"
	"trellis/reactor/internal/trunk"
)

// TrunkConn is a connection that two members have agreed to use as a trunk.
type TrunkConn struct {
	// Conn is the socket. It is closed when the trunk has taken it over, and goes on under another
	// descriptor.
	Conn net.Conn
	// TLS is the connection above Conn after its handshake, nil without TLS. Nobody reads from it or
	// writes to it any more. Exchange makes it use another net.Conn than Conn from then on.
	TLS      *tls.Conn
	Exchange func(net.Conn)
	// Rest is what was read from Conn, or from TLS, and belongs to the trunk.
	Rest []byte
	// Peer is the name of the member at the other end.
	Peer string
	// Number is that of the gateway's loop, with which the ids of its sessions begin.
	Number uint32
	// Version is the latest of what is said on trunks that the gateway speaks; 0 is 1. It is for the leader's
	// end, as are the next three.
	Version uint16
	// Term is the one in which this server leads, and Fence an index of the log: what was executed for the
	// loop before is in entries up to that, or never will be anywhere.
	Term, Fence uint64
	// Leaves is told, once, that the gateway ends and that all sessions that came over this trunk have. It does
	// not block. Nil does nothing.
	Leaves func()
	// Until ends the trunk, with its cause, when it is done. Nil is never.
	Until context.Context
	// Ended is told, once, that the connection is over and why, also if it never became a trunk. It does not
	// block. Nil does nothing.
	Ended func(error)
}

func (c *TrunkConn) ended(err error) {
	if c.Ended != nil {
		c.Ended(err)
	}
}

// trunkConn is the connection of a trunk.
type trunkConn struct {
	*link.Link
	loop   *loop
	forget func() bool // of TrunkConn.Until; nil without one
}

var errNoRole = errors.New("reactor: the server has changed its role")

// layTrunk makes a connection a trunk of a loop, which brings what one side sends. The loop makes its end, nil if it
// has no use for one any more: all that goes wrong from then on is told there. After an error, Conn is closed. It
// does not wait. Any goroutine may call it.
func (s *Server) layTrunk(l *loop, c TrunkConn, from trunk.Side, end func(*link.Link) link.End) error {
	if !s.beginHold() {
		_ = c.Conn.Close()
		c.ended(ErrClosed)
		return ErrClosed
	}
	fd, err := s.takeDescriptor(c.Conn)
	if err != nil {
		s.holds.Done()
		err = fmt.Errorf("reactor: making a connection with %s a trunk: %w", c.Peer, err)
		c.ended(err)
		return err
	}
	t := &trunkConn{loop: l}
	t.Link = link.New(&l.links, fd, from, c.Peer, func(err error) {
		if t.forget != nil {
			t.forget()
		}
		c.ended(err)
	})
	if c.TLS != nil {
		t.UseTLS(c.TLS, c.Exchange)
	}
	l.call(func(l *loop) {
		defer s.holds.Done()
		t.begin(end(t.Link), &c)
	})
	return nil
}

// takeDescriptor takes a connection out of Go's poller, and returns the descriptor that it
// has now.
func (s *Server) takeDescriptor(c net.Conn) (fd int, err error) {
	defer c.Close()
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a %T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	if closed := raw.Control(func(old uintptr) { fd, err = s.acceptor.Duplicate(int(old)) }); closed != nil {
		return -1, closed
	}
	if err == nil {
		s.acceptor.KeepAlive(fd)
	}
	return fd, err
}

// begin is a trunk's beginning.
func (t *trunkConn) begin(end link.End, c *TrunkConn) {
	l := t.loop
	defer l.recovered()
	now := l.server.now()
	if end == nil {
		sockets.Close(t.FD())
		l.server.acceptor.Freed()
		c.ended(errNoRole)
		return
	}
	l.links.Add(t.Link, end, now)
	if err := l.gnet.Adopt(t.FD(), t); err != nil {
		t.Closed(now, err)
		return
	}
	if ctx := c.Until; ctx != nil {
		t.forget = context.AfterFunc(ctx, func() {
			l.call(func(l *loop) { t.Part(l.server.now(), context.Cause(ctx)) })
		})
	}
	if l.server.aborting.Load() {
		t.Fail(now, errAborted)
		return
	}
	t.Begin(now, c.Rest)
}
