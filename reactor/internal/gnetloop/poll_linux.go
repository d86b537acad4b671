package gnetloop

import (
	"math"
	"os"
	"reflect"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is gnet's, and one of our own for output.
type poller struct {
	fd     int // of the epoll instance
	wakeFD int // an eventfd, whose reports are edge-triggered, so that nobody has to read it
	output int // an epoll instance, which fd reports: one of them cannot have a descriptor twice
}

func (p *poller) find(el reflect.Value) (err error) {
	if p.fd, err = descriptor(el, "poller", "fd"); err == nil {
		p.wakeFD, err = descriptor(el, "poller", "efd")
	}
	return err
}

// open adds the poller for output.
func (p *poller) open() (err error) {
	if p.output, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	err = p.control(unix.EPOLL_CTL_ADD, p.output, unix.EpollEvent{Fd: byNumber, Pad: outputNumber, Events: unix.EPOLLIN})
	if err != nil {
		p.close()
	}
	return os.NewSyscallError("epoll_ctl", err)
}

func (p *poller) close() { _ = unix.Close(p.output) }

type event = unix.EpollEvent

// byNumber is the descriptor in reports of what is watched. The number is in their field Pad.
const byNumber = -1

// outputNumber is nobody else's number.
const outputNumber = math.MinInt32

//go:linkname processIO github.com/panjf2000/gnet/v2.(*conn).processIO
func processIO(c unsafe.Pointer, fd int, events uint32, flags uint16) error

// poll fills events with what there is to report. It waits until there is something, or does
// not; there may be nothing even so. The runtime is told only of a call that may block.
func (p *poller) poll(events []event, wait bool) (n int, err error) {
	var r uintptr
	var errno unix.Errno
	fd, to := uintptr(p.fd), uintptr(unsafe.Pointer(&events[0]))
	if wait {
		r, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, fd, to, uintptr(len(events)), ^uintptr(0), 0, 0)
	} else {
		r, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, to, uintptr(len(events)), 0, 0, 0)
	}
	switch errno {
	case 0:
		return int(r), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// report deals with a report. One of a descriptor that is not known here is that of the poller's wakeFD.
func (l *Loop) report(ev *event) {
	const (
		input = unix.EPOLLIN | unix.EPOLLPRI
		ended = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	)
	if ev.Fd == byNumber && ev.Pad == outputNumber {
		l.reportOutput()
	} else if ev.Fd == byNumber {
		l.handler.Reported(ev.Pad, ev.Events&input != 0, ev.Events&ended != 0)
	} else if gc := l.conns[ev.Fd]; gc != nil {
		// What goes wrong with a connection ends it, of which OnClose tells.
		_ = processIO(pointer(gc), int(ev.Fd), ev.Events, 0)
	}
}

func (l *Loop) reportOutput() {
	var events [maxReports]event
	n, _ := unix.EpollWait(l.poller.output, events[:], 0)
	for i := range max(0, n) {
		l.handler.Writable(int(events[i].Fd))
	}
}

// AwaitOutput asks for one report of fd when it can be written to. again tells that this is not
// the first time, and that ForgetOutput, which has to come before fd is closed, was not called since.
func (l *Loop) AwaitOutput(fd int, again bool) error {
	if l.simulated != nil {
		l.simulated.poller.AwaitOutput(fd)
		return nil
	}
	op := unix.EPOLL_CTL_ADD
	if again {
		op = unix.EPOLL_CTL_MOD
	}
	ev := unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLOUT | unix.EPOLLONESHOT}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.poller.output, op, fd, &ev))
}

// ForgetOutput undoes AwaitOutput.
func (l *Loop) ForgetOutput(fd int) {
	if l.simulated == nil { // there, the end of what is watched is that of output, too
		_ = unix.EpollCtl(l.poller.output, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// interrupt makes a poll that waits return.
func (p *poller) interrupt() error {
	one := [8]byte{0: 1, 7: 1} // a number in any byte order
	for {
		switch _, err := unix.Write(p.wakeFD, one[:]); err {
		case unix.EINTR:
		case unix.EAGAIN: // the counter is full
			_, _ = unix.Read(p.wakeFD, one[:])
		default:
			return err
		}
	}
}

// Pause stops reading from a connection. The peer's end of sending is still noticed: gnet then
// takes the connection for ended without reading what is left.
func (l *Loop) Pause(fd int) error {
	return l.control(unix.EPOLL_CTL_MOD, fd, unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLRDHUP})
}

// Resume undoes Pause. The events are those that gnet registers for.
func (l *Loop) Resume(fd int) error {
	return l.control(unix.EPOLL_CTL_MOD, fd, unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLIN | unix.EPOLLPRI})
}

// Watch has the loop report a descriptor that is none of its connections, for as long as it has
// input. Several may have the same number.
func (l *Loop) Watch(fd int, number int32) error {
	return l.control(unix.EPOLL_CTL_ADD, fd, unix.EpollEvent{Fd: byNumber, Pad: number, Events: unix.EPOLLIN})
}

// WatchNews is Watch for reports of input each time when more has come, and of the end.
func (l *Loop) WatchNews(fd int, number int32) error {
	return l.watchNews(unix.EPOLL_CTL_ADD, fd, number)
}

// WatchAgain has a descriptor of WatchNews reported once more if it has input that was reported before.
func (l *Loop) WatchAgain(fd int, number int32) error {
	return l.watchNews(unix.EPOLL_CTL_MOD, fd, number)
}

func (l *Loop) watchNews(op, fd int, number int32) error {
	const events = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET
	return l.control(op, fd, unix.EpollEvent{Fd: byNumber, Pad: number, Events: events})
}

// Unwatch undoes Watch and WatchNews. Any goroutine may call it.
func (l *Loop) Unwatch(fd int) error { return l.control(unix.EPOLL_CTL_DEL, fd, unix.EpollEvent{}) }

// control has the poller, or that of a simulation, report a descriptor.
func (l *Loop) control(op, fd int, ev unix.EpollEvent) error {
	if l.simulated != nil {
		l.simulated.poller.Watch(fd, ev.Pad, ev.Events&unix.EPOLLIN != 0, ev.Events&unix.EPOLLRDHUP != 0)
		return nil
	}
	return l.poller.control(op, fd, ev)
}

func (p *poller) control(op, fd int, ev unix.EpollEvent) error {
	return unix.EpollCtl(p.fd, op, fd, &ev)
}
