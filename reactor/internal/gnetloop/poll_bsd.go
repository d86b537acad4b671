//go:build darwin || freebsd

package gnetloop

import (
	"reflect"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is gnet's.
type poller struct {
	fd      int             // of the kqueue
	watched map[int32]int32 // the number of each descriptor that is watched
}

func (p *poller) find(el reflect.Value) (err error) {
	p.fd, err = descriptor(el, "poller", "fd")
	p.watched = make(map[int32]int32)
	return err
}

func (p *poller) open() error { return nil }
func (p *poller) close()      {}

type event = unix.Kevent_t

//go:linkname processIO github.com/panjf2000/gnet/v2.(*conn).processIO
func processIO(c unsafe.Pointer, fd int, filter int16, flags uint16) error

// poll fills events with what there is to report. It waits until there is something, or does
// not; there may be nothing even so.
func (p *poller) poll(events []event, wait bool) (n int, err error) {
	timeout := new(unix.Timespec)
	if wait {
		timeout = nil
	}
	if n, err = unix.Kevent(p.fd, nil, events, timeout); err == unix.EINTR {
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
	if ev.Filter == unix.EVFILT_WRITE { // which gnet never asks for: nobody writes by it
		l.handler.Writable(int(fd))
	} else if gc := l.conns[fd]; gc != nil {
		// What goes wrong with a connection ends it, of which OnClose tells.
		_ = processIO(pointer(gc), int(fd), ev.Filter, ev.Flags)
	} else if number, ok := l.poller.watched[fd]; ok {
		l.handler.Reported(number, true, ev.Flags&unix.EV_EOF != 0)
	}
}

// AwaitOutput asks for one report of fd when it can be written to. ForgetOutput has to come
// before fd is closed.
func (l *Loop) AwaitOutput(fd int, _ bool) error {
	return l.poller.control(fd, unix.EVFILT_WRITE, unix.EV_ADD|unix.EV_ONESHOT)
}

// ForgetOutput undoes AwaitOutput.
func (l *Loop) ForgetOutput(fd int) {
	_ = l.poller.control(fd, unix.EVFILT_WRITE, unix.EV_DELETE) // gone already if it was reported
}

// interrupt makes a poll that waits return, by gnet's event for that.
func (p *poller) interrupt() error {
	for {
		_, err := unix.Kevent(p.fd, []unix.Kevent_t{{Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER}}, nil, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// Pause stops reading from a connection. The peer's end of sending goes unnoticed until reading
// goes on.
func (l *Loop) Pause(fd int) error { return l.poller.control(fd, unix.EVFILT_READ, unix.EV_DISABLE) }

// Resume undoes Pause.
func (l *Loop) Resume(fd int) error { return l.poller.control(fd, unix.EVFILT_READ, unix.EV_ENABLE) }

// Watch has the loop report a descriptor that is none of its connections, for as long as it has
// input. Several may have the same number.
func (l *Loop) Watch(fd int, number int32) error {
	l.poller.watched[int32(fd)] = number
	return l.poller.control(fd, unix.EVFILT_READ, unix.EV_ADD)
}

// Unwatch undoes Watch.
func (l *Loop) Unwatch(fd int) error {
	delete(l.poller.watched, int32(fd))
	return l.poller.control(fd, unix.EVFILT_READ, unix.EV_DELETE)
}

func (p *poller) control(fd, filter, flags int) error {
	ev := make([]unix.Kevent_t, 1)
	unix.SetKevent(&ev[0], fd, filter, flags)
	_, err := unix.Kevent(p.fd, ev, nil, nil)
	return err
}
