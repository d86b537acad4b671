package accept

import (
	"errors"
	"syscall"
	"time"
)

// A listener pauses before it tries again when the system is out of descriptors or memory. The pause doubles each time,
// and is over sooner when the server closes a connection.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// failed notes that accepting has failed for want of something.
func (l *listener) failed(err error, first bool) {
	a := l.acceptor
	a.counts.failures.Add(1)
	if !first {
		return
	}
	a.counts.pauses.Add(1)
	if n, ok := l.logs.Allow(); ok {
		l.logged = true
		a.log.Warn("accepting connections has paused", "listener", l.socket.Addr(), "error", err, "unreported", n)
	}
}

func (l *listener) resumed() {
	if l.logged {
		l.logged = false
		l.acceptor.log.Info("accepting connections goes on", "listener", l.socket.Addr())
	}
}

// sleep waits for d. It returns earlier, and true, when the server has closed a connection.
func (l *listener) sleep(d time.Duration) (freed bool) {
	a := l.acceptor
	a.counts.paused.Add(1)
	defer a.counts.paused.Add(-1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-a.done:
		return false
	case <-l.ended:
		return false
	case <-a.freed:
	}
	// The loop reports it before gnet has closed the descriptor.
	t.Reset(time.Millisecond)
	select {
	case <-t.C:
	case <-a.done:
	}
	return true
}

// isShortage reports whether an error goes away by itself: it concerns resources that others hold, or a connection
// that died before it was accepted.
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
