//go:build linux && !poll_opt

package reactor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// gate lets a loop's own poller tell when somebody connects, so that no other
// goroutine has to be woken. gnet reads from whatever its poller reports, and a
// listener cannot be read; but an epoll event carries a number that whoever
// registers a descriptor chooses. The listener is registered with the number of
// an eventfd, which gnet takes for a connection: when somebody connects, gnet reads
// the eventfd, which always has something to be read, and calls OnTraffic. A loop that
// polls by itself goes by the number.
type gate struct {
	gc     gnet.Conn // gnet's connection for the eventfd; nil while there is none
	fd     int       // the eventfd
	failed chan<- error
}

// canGate tells whether gates work on the loop: gnet's poller has to be known.
func (l *loop) canGate() bool { return l.poller.Works() }

// openGate has the loop accept from now on. When that fails, the reason is sent
// to failed, and nothing more is accepted.
func (a *acceptor) openGate(failed chan<- error) error {
	// As a semaphore, an eventfd is decremented by one when it is read. This one
	// lasts for some hundred thousand years.
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	var most [8]byte
	binary.NativeEndian.PutUint64(most[:], math.MaxUint64-1)
	if _, err := unix.Write(fd, most[:]); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("write", err)
	}
	a.gate = gate{fd: fd, failed: failed}
	if err := a.loop.adopt.Adopt(fd, a); err != nil {
		return fmt.Errorf("registering an eventfd: %w", err)
	}
	err = a.loop.poller.Silence(fd) // it is for the listener to make gnet read it
	if err == nil {
		err = a.control(func(listener int) error {
			return a.loop.poller.Report(listener, fd)
		})
	}
	if err != nil {
		a.closeGate()
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// opened notes gnet's connection for the eventfd.
func (a *acceptor) opened(gc gnet.Conn) { a.gate.gc = gc }

// arrived accepts those who have connected.
func (a *acceptor) arrived() {
	if a.gate.gc == nil {
		return
	}
	// An attempt that finds nobody costs about as much as one that succeeds. So
	// there are about as many as found somebody lately; the poller tells again
	// if some are left.
	drained, err := a.accept(a.attempts)
	switch {
	case err != nil:
		failed := a.gate.failed
		a.closeGate()
		failed <- err
	case drained:
		a.attempts = max(1, a.attempts/2)
	case a.attempts < maxAccepted:
		a.attempts++
	}
}

// closed is called when gnet closes its connection for the eventfd. Unless that was
// asked for by closeGate, gnet has done so because the listener reports an error, as
// it does when another process that has it too shuts it down. Accepting then tells
// which error. The listener must leave the poller, which would report it for ever.
func (a *acceptor) closed(gc gnet.Conn) {
	if a.gate.gc != gc {
		return
	}
	failed := a.gate.failed
	a.closeGate()
	_, err := a.accept(1)
	if err == nil {
		err = errors.New("the poller has reported an error")
	}
	failed <- err
}

// closeGate ends what openGate has begun.
func (a *acceptor) closeGate() {
	if a.gate.gc == nil {
		return
	}
	// This matters even if the listener is about to be closed: while another
	// process has it too, an epoll instance goes on reporting it.
	_ = a.control(func(listener int) error {
		return a.loop.poller.Unreport(listener)
	})
	a.loop.closeSoon(a.gate.gc)
	a.gate = gate{}
}

// control calls f with the listener's descriptor, unless that has been closed.
func (a *acceptor) control(f func(listener int) error) (err error) {
	if closed := a.raw.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
		return closed
	}
	return err
}
