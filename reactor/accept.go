package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
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
	accepted atomic.Uint64 // connections that were given to a loop
	failures atomic.Uint64 // attempts that failed for want of descriptors or memory
	refused  atomic.Uint64 // connections that were accepted and closed again because something failed
	over     atomic.Uint64 // the same, because there was no room under the limit
	pauses   atomic.Uint64
	paused   atomic.Int64 // acceptors that are paused now
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
	tls      *tls.Config // nil for a listener whose clients do not speak TLS

	shortages chan error // why a connection that was accepted did not get to its loop

	// Of the goroutine of Serve.
	logs   throttle.Throttle
	logged bool // that accepting has paused

	// Of the loop's goroutine.
	options  []option // of TCP: what is to be set on each connection
	gate     gate
	attempts int // how many connections to try to accept in one round
}

// rawListener is what an acceptor needs of a [syscall.RawConn].
type rawListener interface {
	Control(f func(fd uintptr)) error
}

// Serve accepts connections on l, which must be a TCP or Unix stream listener that
// the system knows by a descriptor, until Shutdown, and then closes l and returns
// nil. l belongs to the server: its socket may go on under another descriptor, and
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
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	on := s.loops[s.listeners%len(s.loops)]
	s.listeners++
	id := s.listening.add(l.Addr(), config != nil)
	s.acceptors.Add(1)
	s.mu.Unlock()
	defer s.acceptors.Done()
	defer l.Close()
	a := &acceptor{server: s, listener: l, loop: on, id: id, tls: config, attempts: 1, shortages: make(chan error, 1)}
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
	if a.server.hooks.ungated || !a.loop.canGate() {
		return a.awaitByPoll()
	}
	failed := make(chan error, 1)
	var err error
	a.onLoop(func() { err = a.openGate(failed) })
	if err != nil {
		return err
	}
	defer a.onLoop(a.closeGate)
	select {
	case err = <-failed:
		return err
	case <-a.server.done:
		return nil
	}
}

// awaitByPoll is await where gnet's poller cannot be made to watch a listener. It
// keeps a thread, which waits and then wakes the loop.
func (a *acceptor) awaitByPoll() error {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return os.NewSyscallError("pipe", err)
	}
	unix.CloseOnExec(pipe[0])
	unix.CloseOnExec(pipe[1])
	returned, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-a.server.done:
		case <-returned:
		}
		_ = unix.Close(pipe[1]) // which ends Poll
	}()
	var err error
	closed := a.raw.Control(func(listener uintptr) {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(pipe[0]), Events: unix.POLLIN}}
		for err == nil && fds[1].Revents == 0 {
			if _, e := unix.Poll(fds, -1); e != nil && e != unix.EINTR {
				err = os.NewSyscallError("poll", e)
			} else if fds[0].Revents != 0 {
				err = a.round()
			}
		}
	})
	close(returned)
	<-ended
	_ = unix.Close(pipe[0])
	if closed != nil {
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
