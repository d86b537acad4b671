package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/throttle"
)

// An acceptor pauses before it tries again when the system is out of descriptors or
// memory. The pause doubles each time, and is over sooner when the server closes a
// connection.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// maxAccepted is how many connections an acceptor accepts at most before its loop
// looks after other connections.
const maxAccepted = 16

// acceptStats are written by any acceptor and any loop.
type acceptStats struct {
	accepted  atomic.Uint64 // connections that were given to a loop
	failures  atomic.Uint64 // attempts that failed for want of descriptors or memory
	refused   atomic.Uint64 // connections that were accepted and closed again because something failed
	over      atomic.Uint64 // the same, because there was no room under the limit
	strangers atomic.Uint64 // the same, because they came to a listener for proxies from elsewhere
	pauses    atomic.Uint64
	paused    atomic.Int64 // acceptors that are paused now
}

// acceptor accepts on one listener. It does so on the goroutine of one loop, and
// gives the connections to all loops. The goroutine that has called Serve decides
// what happens when accepting fails.
type acceptor struct {
	server   *Server
	listener net.Listener
	raw      rawListener // keeps the listener's descriptor valid while it is used
	loop     *loop
	id       listenerID
	number   int32       // under which the loop watches the listener; negative
	tls      *tls.Config // nil for a listener whose clients do not speak TLS
	proxied  bool        // connections begin with a PROXY header

	shortages chan error    // why a connection that was accepted did not get to its loop
	ended     chan struct{} // closed when no more is accepted
	end       func()        // closes ended

	// Of the goroutine of Serve.
	logs   throttle.Throttle
	logged bool // that accepting has paused

	// Of the loop's goroutine.
	header   []byte       // room for a PROXY header
	options  []option     // of TCP: what is to be set on each connection
	stopped  chan<- error // where to tell why the loop does not accept any more; nil while the listener is not watched
	attempts int          // how many connections to try to accept in one round
}

// rawListener is what an acceptor needs of a [syscall.RawConn].
type rawListener interface {
	Control(f func(fd uintptr)) error
}

// Serve accepts connections on l, which must be a TCP or Unix stream listener that
// the system knows by a descriptor, or a [Proxied] one, until Shutdown or Unserve, and then closes l and
// returns nil. l belongs to the server: its socket may go on under another descriptor, and
// nobody else may accept on l or close it. Serve may be called for
// several listeners at once. When descriptors or memory run out it waits for
// better times; any other failure to accept ends it with an error.
//
// Connections have TCP_NODELAY and SO_KEEPALIVE set. Keep-alive's timings are
// those of l's socket; what [net.ListenConfig] says of them is not followed.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, nil) }

// ServeTLS is Serve for clients that speak TLS. A connection is given to a loop after
// the handshake, for which it has 10 s. config must have a certificate or a
// GetConfigForClient, and is not to be changed any more; its ClientAuth has to say
// whether clients are asked for certificates, whatever GetConfigForClient returns.
// It should set DynamicRecordSizingDisabled. An error of its VerifyConnection counts
// as one of the client's certificate if it is a [tls.CertificateVerificationError].
func (s *Server) ServeTLS(l net.Listener, config *tls.Config) error { return s.serve(l, config) }

func (s *Server) serve(l net.Listener, config *tls.Config) error {
	p, proxied := l.(Proxied)
	if proxied {
		l = p.Listener
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	on := s.loops[s.listeners%len(s.loops)]
	s.listeners++
	number := -int32(s.listeners)
	id := s.listening.add(l.Addr(), config != nil)
	s.acceptors.Add(1)
	s.mu.Unlock()
	defer s.acceptors.Done()
	defer l.Close()
	a := &acceptor{server: s, listener: l, loop: on, id: id, number: number, tls: config, proxied: proxied, attempts: 1, shortages: make(chan error, 1), ended: make(chan struct{})}
	a.end = sync.OnceFunc(func() { close(a.ended) })
	if proxied {
		a.header = make([]byte, maxProxyHeader)
	}
	defer a.close()
	err := a.prepare()
	if err == nil {
		err = a.leaveGoPoller()
	}
	if err != nil {
		return fmt.Errorf("reactor: preparing to accept on %s: %w", l.Addr(), err)
	}
	s.mu.Lock()
	s.accepts[a] = struct{}{}
	s.mu.Unlock()
	if s.aborting.Load() {
		return nil // Abort may not have seen this listener, and run might wait for a loop that hangs
	}
	return a.run()
}

// Unserve ends all calls of Serve and ServeTLS that are under way: clients cannot connect any more. Those who are
// connected stay, and other listeners may follow. It does not wait.
func (s *Server) Unserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.accepts {
		a.end()
	}
}

// close keeps Abort off the listener, and closes its descriptor if that is the acceptor's.
func (a *acceptor) close() {
	s := a.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accepts, a)
	if own, ok := a.raw.(ownDescriptor); ok {
		_ = unix.Close(int(own))
	}
}

// leaveGoPoller takes a TCP listener out of Go's poller, which otherwise wakes a
// thread for everybody who connects although no goroutine waits for it: the socket
// goes on under a descriptor of the acceptor's, and package net's is closed. A Unix
// listener stays where it is, because its Close removes the socket's file.
func (a *acceptor) leaveGoPoller() error {
	l, ok := a.listener.(*net.TCPListener)
	if !ok {
		return nil
	}
	var fd int
	var err error
	if closed := a.raw.Control(func(old uintptr) { fd, err = duplicate(int(old)) }); closed != nil {
		return closed
	}
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	a.raw = ownDescriptor(fd)
	return l.Close()
}

// ownDescriptor is a descriptor that is valid as long as its acceptor runs.
type ownDescriptor int

func (d ownDescriptor) Control(f func(fd uintptr)) error {
	f(uintptr(d))
	return nil
}

// prepare finds the listener's descriptor and sets options.
func (a *acceptor) prepare() error {
	sc, ok := a.listener.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T has no descriptor", a.listener)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	a.raw = raw
	switch network := a.listener.Addr().Network(); network {
	case "unix":
		return nil
	case "tcp":
		if e := a.raw.Control(func(fd uintptr) { a.options, err = prepareTCP(int(fd)) }); e != nil {
			return e
		}
		return os.NewSyscallError("setsockopt", err)
	default:
		return fmt.Errorf("%s is neither TCP nor a Unix stream", network)
	}
}

// run returns when accepting has failed for good, or the server is shut down.
func (a *acceptor) run() error {
	s := a.server
	first := s.hooks.acceptPause
	pause := first
	for {
		err := a.round()
		if err == nil {
			if pause != first {
				pause = first
				a.resumed()
			}
			err = a.await()
		}
		select {
		case <-s.done:
			return nil
		case <-a.ended:
			return nil
		default:
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

// await has the loop accept whenever somebody connects. It returns when that has
// failed, with the reason, or when the server is shut down.
func (a *acceptor) await() error {
	failed := make(chan error, 1)
	var err error
	a.onLoop(func() { err = a.watch(failed) })
	if err != nil {
		return err
	}
	defer a.onLoop(a.unwatch)
	select {
	case err = <-failed:
		return err
	case <-a.server.done:
		return nil
	case <-a.ended:
		return nil
	}
}

// watch has the loop accept from now on. When that fails, the reason is sent to failed, and
// nothing more is accepted.
func (a *acceptor) watch(failed chan<- error) error {
	err := a.control(func(listener int) error { return a.loop.gnet.Watch(listener, a.number) })
	if err != nil {
		return os.NewSyscallError("watching a listener", err)
	}
	a.stopped = failed
	a.loop.acceptors[a.number] = a
	return nil
}

// unwatch undoes watch. This matters even if the listener is about to be closed: while
// another process has it too, it would go on to be reported.
func (a *acceptor) unwatch() {
	if a.stopped != nil {
		a.stopped = nil
		delete(a.loop.acceptors, a.number)
		_ = a.control(a.loop.gnet.Unwatch)
	}
}

// reported accepts those who have connected. ended without input is an error of the listener,
// as when another process that has it too shuts it down: accepting tells which.
func (a *acceptor) reported(input bool) {
	attempts := a.attempts
	if !input {
		attempts = 1
	}
	// An attempt that finds nobody costs about as much as one that succeeds. So
	// there are about as many as found somebody lately; the listener is reported again
	// if some are left.
	drained, err := a.accept(attempts)
	if err == nil && !input {
		err = errors.New("the poller has reported an error")
	}
	switch {
	case err != nil:
		stopped := a.stopped
		a.unwatch()
		stopped <- err
	case drained:
		a.attempts = max(1, a.attempts/2)
	case a.attempts < maxAccepted:
		a.attempts++
	}
}

// control calls f with the listener's descriptor, unless that has been closed.
func (a *acceptor) control(f func(listener int) error) (err error) {
	if closed := a.raw.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
		return closed
	}
	return err
}

// round has the loop accept those who are waiting now, up to maxAccepted. It
// returns errors that concern the listener or the system, and none that concern one
// connection only.
func (a *acceptor) round() error {
	var err error
	a.onLoop(func() { _, err = a.accept(maxAccepted) })
	return err
}

// onLoop runs f on the loop's goroutine, and returns when it has run. The loop does not end
// before Serve has returned.
func (a *acceptor) onLoop(f func()) {
	done := make(chan struct{})
	a.loop.call(func(*loop) {
		defer close(done)
		f()
	})
	<-done
}

// failed notes that accepting has failed for want of something.
func (a *acceptor) failed(err error, first bool) {
	st := &a.server.accepting
	st.failures.Add(1)
	if !first {
		return
	}
	st.pauses.Add(1)
	if n, ok := a.logs.Allow(); ok {
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
	case <-a.ended:
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
