package accept

import (
	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// option is a socket's option with a whole number for its value.
type option struct{ level, name, value int }

// disconnect makes the system refuse clients on all listeners, even if the loop that accepts them hangs.
func (a *Acceptor) disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aborted = true
	for l := range a.listening {
		_ = l.raw.Control(func(fd uintptr) { disconnect(int(fd)) }) // it may be closed already
	}
}

// disconnect makes the system refuse clients, and resets those that were not accepted yet. TCP does so by itself, but a
// Unix socket keeps them until it is closed.
func disconnect(listener int) {
	if sockets.Of(listener) != nil {
		return // nobody's loop hangs
	}
	if err := unix.Shutdown(listener, unix.SHUT_RDWR); err != nil {
		return
	}
	for {
		fd, err := acceptFD(listener)
		switch err {
		case nil:
			_ = unix.Close(fd)
		case unix.EINTR, unix.ECONNABORTED:
		default:
			return
		}
	}
}
