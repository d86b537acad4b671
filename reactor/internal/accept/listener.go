package accept

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"trellis/codec"
	"trellis/reactor/throttle"
)

// maxAccepted is how many connections a listener accepts at most before its loop looks after other connections.
const maxAccepted = 16

// listener accepts on one listening socket. It does so on the goroutine of one loop. The goroutine that has called
// Serve decides what happens when accepting fails.
type listener struct {
	acceptor *Acceptor
	socket   net.Listener
	raw      descriptor // keeps the socket's descriptor valid while it is used
	loop     Loop
	id       ListenerID
	number   int32       // under which the loop watches the socket; negative
	tls      *tls.Config // nil for clients that do not speak TLS
	proxied  bool        // connections begin with a PROXY header

	shortages chan error    // why a loop could not take in a connection
	ended     chan struct{} // closed when no more is accepted
	end       func()        // closes ended

	// Of the goroutine of Serve.
	logs   throttle.Throttle
	logged bool // that accepting has paused

	// Of the loop's goroutine.
	header   []byte       // room for a PROXY header
	options  []option     // of TCP: what is to be set on each connection
	stopped  chan<- error // gets the reason why the loop accepts no more; nil while the socket is not watched
	attempts int          // how many connections to try to accept in one round
}

// descriptor is what a listener needs of a [syscall.RawConn].
type descriptor interface {
	Control(f func(fd uintptr)) error
}

// prepare finds the socket's descriptor, sets its options, and takes it out of Go's poller.
func (l *listener) prepare() error {
	if err := l.setOptions(); err != nil {
		return err
	}
	return l.leaveGoPoller()
}

// setOptions finds the socket's descriptor and sets its options.
func (l *listener) setOptions() error {
	sc, ok := l.socket.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T has no descriptor", l.socket)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	l.raw = raw
	switch network := l.socket.Addr().Network(); network {
	case "unix":
		return nil
	case "tcp":
		if e := l.raw.Control(func(fd uintptr) { l.options, err = prepareTCP(int(fd), l.acceptor.cfg.KeepAlive) }); e != nil {
			return e
		}
		return os.NewSyscallError("setsockopt", err)
	default:
		return fmt.Errorf("%s is neither TCP nor a Unix stream", network)
	}
}

// leaveGoPoller takes a TCP socket out of Go's poller, which otherwise wakes a thread for everybody who connects
// although no goroutine waits for it: the socket goes on under a descriptor of the acceptor's, and package net's is
// closed. A Unix socket stays where it is, because its Close removes the socket's file.
func (l *listener) leaveGoPoller() error {
	tcp, ok := l.socket.(*net.TCPListener)
	if !ok {
		return nil
	}
	var fd int
	var err error
	if closed := l.raw.Control(func(old uintptr) { fd, err = duplicate(int(old)) }); closed != nil {
		return closed
	}
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	l.raw = ownDescriptor(fd)
	return tcp.Close()
}

// ownDescriptor is a descriptor that is valid as long as its listener runs.
type ownDescriptor int

func (d ownDescriptor) Control(f func(fd uintptr)) error {
	f(uintptr(d))
	return nil
}

// close keeps Abort off the socket, and closes its descriptor if that is the acceptor's.
func (l *listener) close() {
	a := l.acceptor
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.listening, l)
	if own, ok := l.raw.(ownDescriptor); ok {
		_ = unix.Close(int(own))
	}
}

// run returns when accepting has failed for good, or no more is to be accepted.
func (l *listener) run() error {
	first := l.acceptor.hooks.pause
	pause := first
	for {
		err := l.round()
		if err == nil {
			if pause != first {
				pause = first
				l.resumed()
			}
			err = l.await()
		}
		select {
		case <-l.acceptor.done:
			return nil
		case <-l.ended:
			return nil
		default:
		}
		if !isShortage(err) {
			return fmt.Errorf("accepting on %s: %w", l.socket.Addr(), err)
		}
		l.failed(err, pause == first)
		if l.sleep(pause) {
			pause = first
		}
		pause = min(2*pause, max(maxPause, 2*first))
	}
}

// await makes the loop accept whenever somebody connects. It returns when that has failed, with the reason, or when
// no more is to be accepted.
func (l *listener) await() error {
	failed := make(chan error, 1)
	var err error
	l.onLoop(func() { err = l.watch(failed) })
	if err != nil {
		return err
	}
	defer l.onLoop(l.unwatch)
	select {
	case err = <-failed:
		return err
	case <-l.acceptor.done:
		return nil
	case <-l.ended:
		return nil
	}
}

// watch makes the loop accept from now on. When that fails, failed gets the reason, and nothing more is accepted.
func (l *listener) watch(failed chan<- error) error {
	err := l.control(func(socket int) error { return l.loop.Poller().Watch(socket, l.number) })
	if err != nil {
		return os.NewSyscallError("watching a listener", err)
	}
	l.stopped = failed
	l.acceptor.watched.Store(l.number, l)
	return nil
}

// unwatch undoes watch. This matters even if the socket is about to be closed: while another process has it too, it
// would go on to be reported.
func (l *listener) unwatch() {
	if l.stopped != nil {
		l.stopped = nil
		l.acceptor.watched.Delete(l.number)
		_ = l.control(l.loop.Poller().Unwatch)
	}
}

// reported accepts those who have connected. A report without input is an error of the socket, as when another process
// that has it too shuts it down: accepting tells which.
func (l *listener) reported(input bool) {
	attempts := l.attempts
	if !input {
		attempts = 1
	}
	// An attempt that finds nobody costs about as much as one that succeeds. So there are about as many as found
	// somebody lately; the socket is reported again if some are left.
	drained, err := l.accept(attempts)
	if err == nil && !input {
		err = errors.New("the poller has reported an error")
	}
	switch {
	case err != nil:
		stopped := l.stopped
		l.unwatch()
		stopped <- err
	case drained:
		l.attempts = max(1, l.attempts/2)
	case l.attempts < maxAccepted:
		l.attempts++
	}
}

// control calls f with the socket's descriptor, unless that has been closed.
func (l *listener) control(f func(socket int) error) (err error) {
	if closed := l.raw.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
		return closed
	}
	return err
}

// round makes the loop accept those who are waiting now, up to maxAccepted. It returns errors that concern the socket
// or the system, and none that concern one connection only.
func (l *listener) round() error {
	var err error
	l.onLoop(func() { _, err = l.accept(maxAccepted) })
	return err
}

// onLoop runs f on the loop's goroutine, and returns when it has run. The loop does not end before Serve has returned.
func (l *listener) onLoop(f func()) {
	done := make(chan struct{})
	l.loop.Call(func() {
		defer close(done)
		f()
	})
	<-done
}

// accept tries to accept up to n connections, and passes each on. drained says that nobody waits any more. It is called
// on the loop's goroutine.
func (l *listener) accept(n int) (drained bool, err error) {
	select {
	case err := <-l.shortages:
		return false, err
	default:
	}
	if own, ok := l.raw.(ownDescriptor); ok {
		drained, err = l.acceptFrom(int(own), n) // with nothing on the heap
	} else {
		drained, err = l.acceptGuarded(n)
	}
	if drained && optionsInherited {
		// Whoever connected before the socket had the options has been accepted.
		l.options = nil
	}
	return drained, err
}

// acceptGuarded is acceptFrom for a socket whose descriptor is package net's: when that has closed it, the number may
// be a stranger's.
func (l *listener) acceptGuarded(n int) (drained bool, err error) {
	closed := l.raw.Control(func(socket uintptr) { drained, err = l.acceptFrom(int(socket), n) })
	if closed != nil {
		return false, closed
	}
	return drained, err
}

func (l *listener) acceptFrom(socket, n int) (drained bool, err error) {
	for range n {
		if drained, err = l.acceptOne(socket); drained || err != nil {
			break
		}
	}
	return drained, err
}

func (l *listener) acceptOne(socket int) (drained bool, err error) {
	a := l.acceptor
	if hook := a.hooks.accept; hook != nil {
		if err := hook(); err != nil {
			return false, err
		}
	}
	fd, err := acceptFD(socket)
	switch err {
	case nil:
	case unix.EAGAIN:
		return true, nil
	case unix.EINTR, unix.ECONNABORTED:
		return false, nil
	default:
		return false, os.NewSyscallError("accept", err)
	}
	if !l.allowed(fd) {
		_ = unix.Close(fd)
		return false, nil
	}
	if !a.TakePlace() && !(l.loop.MakeRoom() && a.TakePlace()) {
		a.handshakes.giveUpOldest() // whoever comes next may have its place
		l.refuse(fd)
		return false, nil
	}
	setOptions(fd, l.options)
	if l.tls != nil || l.proxied {
		a.handshakes.add(l, fd)
		return false, nil
	}
	n := Arrival{FD: fd, Listener: l.id, by: l}
	if to := l.loop.Least(); to != l.loop {
		to.Post(n)
	} else if err := to.Admit(n); err != nil {
		return false, a.failed(n, err)
	}
	return false, nil
}

// refuse answers a connection that is one too many, and closes it.
func (l *listener) refuse(fd int) {
	a := l.acceptor
	a.counts.over.Add(1)
	if n, ok := a.refusals.Allow(); ok {
		a.log.Warn("a connection is refused, there are too many",
			"listener", l.socket.Addr(), "limit", a.cfg.MaxConnections, "unreported", n)
	}
	// A new connection has room for the answer.
	answer := refusal
	if l.tls != nil {
		answer = tlsRefusal
	}
	_, _ = unix.Write(fd, answer)
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	// If the system found something unread when the connection is closed, it would tell the peer so, who might then
	// not see the answer.
	var arrived [4 << 10]byte
	_, _ = receive(fd, arrived[:], 0)
	_ = unix.Close(fd)
}

var refusal = []byte(codec.ReplyOutOfMemory)

// tlsRefusal is the alert internal_error, RFC 8446, section 6: something like a shortage of memory keeps the server
// from going on. Nothing can be said encrypted before the handshake.
var tlsRefusal = []byte{21, 3, 3, 0, 2, 2, 80}
