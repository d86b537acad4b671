package reactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// How long an acceptor waits before it tries again when the system is out of
// descriptors or memory. The wait doubles, and is over sooner when the server
// closes a connection.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// acceptStats are written by any acceptor.
type acceptStats struct {
	accepted atomic.Uint64 // connections that were given to a loop
	failures atomic.Uint64 // attempts that failed for want of descriptors or memory
	refused  atomic.Uint64 // connections that were accepted and closed again because something failed
	over     atomic.Uint64 // the same, because there was no room under the limit
	pauses   atomic.Uint64
	paused   atomic.Int64 // acceptors that are paused now
}

// maxAdmitting is how many connections of one listener may be on their way to a
// loop, which takes them between two rounds of events: a busy one seldom.
const maxAdmitting = 16

// acceptor accepts on one listener.
type acceptor struct {
	server   *Server
	listener net.Listener
	// gnet makes a descriptor of its own for a connection before ours is
	// closed. The spare keeps room for it, so that running out of descriptors
	// shows before a client was accepted and not after.
	spare     spare
	admitting chan struct{} // an element for each connection that is on its way
	shortages chan error    // why one that was on its way did not get to a loop
	logs      limiter
	logged    bool // that accepting has paused
}

// Serve accepts connections on l, which must be a TCP or Unix stream listener,
// until Shutdown, which closes l; it then returns nil. It may be called for
// several listeners at once. When descriptors or memory run out it waits for
// better times; any other failure to accept ends it with an error.
//
// Connections have TCP_NODELAY and SO_KEEPALIVE set. Keep-alive's timings are
// the listener's (see [net.ListenConfig]), or the system's if the listener does
// not turn keep-alive on.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.acceptors.Add(1)
	s.mu.Unlock()
	a := &acceptor{
		server: s, listener: l, spare: spare{from: s.watch.poll.fd},
		admitting: make(chan struct{}, maxAdmitting), shortages: make(chan error, 1),
	}
	defer func() {
		for range maxAdmitting { // until none is on its way
			a.admitting <- struct{}{}
		}
		a.spare.release()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		s.acceptors.Done()
	}()
	return a.run()
}

func (a *acceptor) run() error {
	s := a.server
	first := s.hooks.acceptPause
	pause := first
	for {
		err := a.accept()
		select {
		case <-s.done:
			return nil
		default:
		}
		if err == nil {
			if pause != first {
				pause = first
				a.resumed()
			}
			continue
		}
		if !isShortage(err) {
			return fmt.Errorf("accepting on %s: %w", a.listener.Addr(), err)
		}
		a.failed(err, pause == first)
		if a.sleep(pause) {
			pause = first
		}
		pause = min(2*pause, max(maxAcceptPause, 2*first))
	}
}

// accept accepts one connection and gives it to a loop, or sends it on its way. It
// returns errors that concern the listener or the system, and none that concern the
// connection only.
func (a *acceptor) accept() error {
	select {
	case err := <-a.shortages:
		return err
	default:
	}
	if !a.spare.hold() {
		return syscall.EMFILE
	}
	nc, err := a.listener.Accept()
	if err != nil {
		return err
	}
	if !a.server.takePlace() {
		a.spare.release()
		a.refuse(nc)
		return nil
	}
	a.admitting <- struct{}{}
	l := a.server.leastLoop()
	if a.server.hasDescriptors() {
		go func() {
			if err := a.admit(nc, l); err != nil {
				select {
				case a.shortages <- err:
				default:
				}
			}
		}()
		return nil
	}
	a.spare.release()
	return a.admit(nc, l)
}

// admit gives a connection to a loop. It returns an error only if that tells of a
// shortage.
func (a *acceptor) admit(nc net.Conn, l *loop) error {
	defer func() { <-a.admitting }()
	err := a.server.admit(nc, l)
	if err == nil {
		a.server.accepting.accepted.Add(1)
		return nil
	}
	a.server.accepting.refused.Add(1)
	if isShortage(err) {
		return err
	}
	a.server.log.Debug("connection refused", "listener", a.listener.Addr(), "error", err)
	return nil
}

// failed notes that accepting has failed for want of something.
func (a *acceptor) failed(err error, first bool) {
	st := &a.server.accepting
	st.failures.Add(1)
	if !first {
		return
	}
	st.pauses.Add(1)
	if n, ok := a.logs.allow(); ok {
		a.logged = true
		a.server.log.Warn("accepting connections has paused",
			"listener", a.listener.Addr(), "error", err, "unreported", n)
	}
}

func (a *acceptor) resumed() {
	if a.logged {
		a.logged = false
		a.server.log.Info("accepting connections goes on", "listener", a.listener.Addr())
	}
}

// sleep waits for d. It returns earlier, and true, when the server has closed a
// connection.
func (a *acceptor) sleep(d time.Duration) (freed bool) {
	s := a.server
	s.accepting.paused.Add(1)
	defer s.accepting.paused.Add(-1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-s.done:
		return false
	case <-s.freed:
	}
	// The loop tells before gnet has closed the descriptor.
	t.Reset(time.Millisecond)
	select {
	case <-t.C:
	case <-s.done:
	}
	return true
}

// descriptorFreed tells a paused acceptor to try again.
func (s *Server) descriptorFreed() {
	if s.accepting.paused.Load() > 0 {
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
}

// admit gives a connection, which has a place, to a loop, which counts it. In any
// case nc is closed or not ours any more when it returns.
func (s *Server) admit(nc net.Conn, l *loop) error {
	c := new(conn)
	defer func() {
		if c.loop == nil { // otherwise its end gives the place back
			s.open.Add(-1)
			l.members.Add(-1)
		}
	}()
	if nc.RemoteAddr() == nil || nc.LocalAddr() == nil {
		_ = nc.Close()
		return errors.New("it has no address, as one that was aborted")
	}
	switch tc := nc.(type) {
	case *net.TCPConn:
		// net has set TCP_NODELAY, and keep-alive unless its listener says no.
		if err := tc.SetKeepAlive(true); err != nil {
			_ = nc.Close()
			return fmt.Errorf("setting keep-alive: %w", err)
		}
		// gnet looks up the interface of a scoped address, which may fail, and
		// gives the memory of the name, which belongs to package net, to a pool.
		clearZone(tc.LocalAddr())
		clearZone(tc.RemoteAddr())
	case *net.UnixConn:
	default:
		_ = nc.Close()
		return fmt.Errorf("a %T is neither TCP nor Unix", nc)
	}
	enrolled, err := l.el.Enroll(gnet.NewContext(context.Background(), c), nc)
	if err == nil {
		err = (<-enrolled).Err
	} else {
		_ = nc.Close()
	}
	if err == nil && c.loop == nil {
		err = syscall.ENOMEM // gnet reports no error when its poller has refused the descriptor
	}
	if err != nil {
		return fmt.Errorf("giving a connection to a loop: %w", err)
	}
	return nil
}

// leastLoop is the loop with the fewest connections, and counts one more for it.
func (s *Server) leastLoop() *loop {
	least := slices.MinFunc(s.loops, func(a, b *loop) int {
		return cmp.Compare(a.members.Load(), b.members.Load())
	})
	least.members.Add(1)
	return least
}

func clearZone(a net.Addr) {
	if ta, ok := a.(*net.TCPAddr); ok {
		ta.Zone = ""
	}
}

// isShortage tells errors that go away by themselves: resources that others
// hold, and connections that died before they were accepted.
func isShortage(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC:
		return true
	// What accept may report of the connection or the network: see accept(2).
	case syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN, syscall.ENETUNREACH,
		syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP:
		return true
	}
	return false
}
