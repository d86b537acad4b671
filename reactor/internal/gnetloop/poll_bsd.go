//go:build darwin || freebsd

package gnetloop

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// What gnet calls the descriptor of its poller, which it interrupts by an event of its own.
const (
	pollerField = "fd"
	wakeField   = "fd"
)

type event = unix.Kevent_t

// watched is what is watched: the number of each descriptor.
type watched map[int32]int32

//go:linkname processIO github.com/panjf2000/gnet/v2.(*conn).processIO
func processIO(c unsafe.Pointer, fd int, filter int16, flags uint16) error

// poll fills events with what there is to report. It waits until there is something, or does
// not; there may be nothing even so.
func (l *Loop) poll(wait bool) (n int, err error) {
	timeout := new(unix.Timespec)
	if wait {
		timeout = nil
	}
	if n, err = unix.Kevent(l.poller, nil, l.events, timeout); err == unix.EINTR {
		return 0, nil
	}
	return n, err
}

// report deals with a report. One of a descriptor that is not known here is that of interrupt.
func (l *Loop) report(ev *event) {
	fd := int32(ev.Ident)
	if ev.Filter == unix.EVFILT_USER {
		return
	}
	if gc := l.conns[fd]; gc != nil {
		// What goes wrong with a connection ends it, of which OnClose tells.
		_ = processIO(pointer(gc), int(fd), ev.Filter, ev.Flags)
	} else if number, ok := l.watched[fd]; ok {
		l.handler.Reported(number, true, ev.Flags&unix.EV_EOF != 0)
	}
}

// interrupt makes a poll that waits return.
func (l *Loop) interrupt() error {
	for {
		_, err := unix.Kevent(l.wakeFD, []unix.Kevent_t{{Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER}}, nil, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// Pause stops reading from a connection. The peer's end of sending goes unnoticed until reading
// goes on.
func (l *Loop) Pause(fd int) error { return l.control(fd, unix.EV_DISABLE) }

// Resume undoes Pause.
func (l *Loop) Resume(fd int) error { return l.control(fd, unix.EV_ENABLE) }

// Watch has the loop report a descriptor that is none of its connections, for as long as it has
// input. Several may have the same number.
func (l *Loop) Watch(fd int, number int32) error {
	if l.watched == nil {
		l.watched = make(watched)
	}
	l.watched[int32(fd)] = number
	return l.control(fd, unix.EV_ADD)
}

// Unwatch undoes Watch.
func (l *Loop) Unwatch(fd int) error {
	delete(l.watched, int32(fd))
	return l.control(fd, unix.EV_DELETE)
}

func (l *Loop) control(fd, flags int) error {
	ev := make([]unix.Kevent_t, 1)
	unix.SetKevent(&ev[0], fd, unix.EVFILT_READ, flags)
	_, err := unix.Kevent(l.poller, ev, nil, nil)
	return err
}
