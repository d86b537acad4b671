package reactor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// arrival is a connection that has a place and is counted in its loop's members.
type arrival struct {
	fd  int
	by  *acceptor
	tls *tlsConn // nil for a client that does not speak TLS
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
	// If the listener has been closed its descriptor may be somebody else's.
	closed := a.raw.Control(func(listener uintptr) {
		for range n {
			if drained, err = a.acceptOne(int(listener)); drained || err != nil {
				return
			}
		}
	})
	if closed != nil {
		return false, closed
	}
	if drained && optionsInherited {
		// Those who came before the listener had the options are gone.
		a.options = nil
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
	if !a.server.takePlace() {
		a.server.handshakes.giveUpOldest() // whoever comes next may have its place
		a.refuse(fd)
		return false, nil
	}
	for _, o := range a.options {
		// This fails for a connection that has ended, which is noticed when it is read.
		_ = unix.SetsockoptInt(fd, o.level, o.name, o.value)
	}
	if a.tls != nil {
		a.server.handshakes.begin(a, fd)
		return false, nil
	}
	if l := a.leastLoop(); l != a.loop {
		l.arrive(arrival{fd: fd, by: a})
		return false, nil
	}
	return false, a.loop.admit(arrival{fd: fd, by: a})
}

// leastLoop is the loop with the fewest connections, and counts one more for it.
func (a *acceptor) leastLoop() *loop {
	least, fewest := a.loop, a.loop.members.Load()
	for _, l := range a.server.loops {
		if n := l.members.Load(); n < fewest {
			least, fewest = l, n
		}
	}
	least.members.Add(1)
	return least
}

// arrive gives a connection to the loop. Any goroutine may call it.
func (l *loop) arrive(n arrival) {
	l.arrivals.leave(n)
	l.bell.ring()
}

// admitNext takes in the connection that arrived first.
func (l *loop) admitNext() {
	l.engine.Spend(connSteps)
	n := l.arrivals.pop()
	if err := l.admit(n); err != nil {
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

// admit begins a connection. It returns an error only if that tells of a shortage.
// The descriptor is closed, and the place given back, if it fails.
func (l *loop) admit(n arrival) error {
	s := l.server
	c, context := l.newConn(n)
	err := l.adopt.Adopt(n.fd, context)
	if err == nil {
		s.accepting.accepted.Add(1)
		s.listening.counts[c.listener].accepted.Add(1)
		return nil
	}
	if c.loop != nil {
		return nil // it was opened, and its end gives back the place
	}
	s.open.Add(-1)
	l.members.Add(-1)
	s.accepting.refused.Add(1)
	if isShortage(err) {
		return fmt.Errorf("giving a connection to a loop: %w", err)
	}
	s.log.Debug("connection refused", "listener", n.by.listener.Addr(), "error", err)
	return nil
}

// newConn returns the connection that n begins, and what gnet is to know it by.
func (l *loop) newConn(n arrival) (c *conn, context any) {
	if n.tls != nil {
		c, context = &n.tls.conn, n.tls
	} else {
		c = new(conn)
		context = c
	}
	c.listener = n.by.id
	return c, context
}
