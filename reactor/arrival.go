package reactor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// arrival is a connection on its way to its loop, which counts it in members already. It
// has a slot under the limit, unless the process has made it to itself.
type arrival struct {
	fd       int
	listener listenerID
	by       *acceptor // nil for one that the process has made to itself
	tls      *tlsConn  // nil for a client that does not speak TLS
	client   *endpoint // what a PROXY header has told of the client; nil without
}

// option is a socket's option with a whole number for its value.
type option struct{ level, name, value int }

// accept tries to accept up to n connections, and gives each to the loop that has
// fewest. drained tells that nobody waits any more. It is called on the goroutine
// of the acceptor's loop.
func (a *acceptor) accept(n int) (drained bool, err error) {
	select {
	case err := <-a.shortages:
		return false, err
	default:
	}
	if own, ok := a.raw.(ownDescriptor); ok {
		drained, err = a.acceptFrom(int(own), n) // with nothing on the heap
	} else {
		drained, err = a.acceptGuarded(n)
	}
	if drained && optionsInherited {
		// Whoever connected before the listener had the options has been accepted.
		a.options = nil
	}
	return drained, err
}

// acceptGuarded is acceptFrom for a listener whose descriptor is package net's: when that
// has closed it, the number may be a stranger's.
func (a *acceptor) acceptGuarded(n int) (drained bool, err error) {
	closed := a.raw.Control(func(listener uintptr) { drained, err = a.acceptFrom(int(listener), n) })
	if closed != nil {
		return false, closed
	}
	return drained, err
}

func (a *acceptor) acceptFrom(listener, n int) (drained bool, err error) {
	for range n {
		if drained, err = a.acceptOne(listener); drained || err != nil {
			break
		}
	}
	return drained, err
}

func (a *acceptor) acceptOne(listener int) (drained bool, err error) {
	if hook := a.server.hooks.accept; hook != nil {
		if err := hook(); err != nil {
			return false, err
		}
	}
	fd, err := acceptFD(listener)
	switch err {
	case nil:
	case unix.EAGAIN:
		return true, nil
	case unix.EINTR, unix.ECONNABORTED:
		return false, nil
	default:
		return false, os.NewSyscallError("accept", err)
	}
	if !a.allowed(fd) {
		_ = unix.Close(fd)
		return false, nil
	}
	if !a.server.takeSlot() && !(a.giveUpUnauthenticated() && a.server.takeSlot()) {
		a.server.handshakes.giveUpOldest() // whoever comes next may have its slot
		a.refuse(fd)
		return false, nil
	}
	for _, o := range a.options {
		// This fails for a connection that has ended, which is noticed when it is read.
		_ = unix.SetsockoptInt(fd, o.level, o.name, o.value)
	}
	if a.tls != nil || a.proxied {
		a.server.handshakes.add(a, fd)
		return false, nil
	}
	n := arrival{fd: fd, listener: a.id, by: a}
	if l := a.server.leastLoop(a.loop); l != a.loop || l.held {
		l.arrive(n)
		return false, nil
	}
	return false, a.loop.admitOrLog(n)
}

// leastLoop is the loop with the fewest connections of those that have a trunk, or else of all, preferred if
// it is one of several, and counts one more for it.
func (s *Server) leastLoop(preferred *loop) *loop {
	least, fewest, forwards := preferred, preferred.members.Load(), preferred.forwarding.Load()
	for _, l := range s.loops {
		n, f := l.members.Load(), l.forwarding.Load()
		if f == forwards && n < fewest || f && !forwards {
			least, fewest, forwards = l, n, f
		}
	}
	least.members.Add(1)
	return least
}

// arrive gives a connection to the loop. Any goroutine may call it.
func (l *loop) arrive(n arrival) {
	l.arrivals.post(n)
	l.gnet.Wake()
}

// admitNext takes in the connection that arrived first.
func (l *loop) admitNext() {
	l.engine.Spend(connCost)
	n := l.arrivals.pop()
	if err := l.admitOrLog(n); err != nil && n.by != nil {
		select {
		case n.by.shortages <- err:
		default:
		}
	}
}

// admitAll takes in all connections that have arrived.
func (l *loop) admitAll() {
	for l.arrivals.take(); !l.arrivals.empty(); {
		l.admitNext()
	}
}

// admitOrLog begins a connection that was accepted. It returns an error only if that
// tells of a shortage.
func (l *loop) admitOrLog(n arrival) error {
	err := l.admit(n)
	if err == nil || isShortage(err) {
		return err
	}
	l.server.log.Debug("connection refused", "listener", n.by.listener.Addr(), "error", err)
	return nil
}

// admit begins a connection. If it fails, the descriptor is closed, and the slot given
// back.
func (l *loop) admit(n arrival) error {
	s := l.server
	c := new(conn)
	if n.tls != nil {
		c = &n.tls.conn
	}
	c.loop, c.fd, c.listener = l, int32(n.fd), n.listener
	if n.client != nil {
		l.setProxied(c, *n.client)
	}
	if err := l.gnet.Adopt(n.fd, c); err != nil {
		delete(l.proxied, c)
		l.freeSlot(n.listener)
		s.accepting.refused.Add(1)
		return fmt.Errorf("giving a connection to a loop: %w", err)
	}
	s.accepting.accepted.Add(1)
	s.listening.counts[c.listener].accepted.Add(1)
	now := s.now()
	c.open(now)
	l.serve(now)
	return nil
}

// freeSlot undoes leastLoop and takeSlot for a connection that was given to the loop.
func (l *loop) freeSlot(from listenerID) {
	l.members.Add(-1)
	if !from.own() && !from.channel() {
		l.server.open.Add(-1)
	}
}
