//go:build darwin || freebsd

package reactor

import (
	"os"

	"golang.org/x/sys/unix"
)

// poll tells which descriptors can be written to.
type poll struct {
	fd     int
	wakeFD [2]int // a pipe
	events [128]unix.Kevent_t
}

func openPoll() (*poll, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(fd)
	p := &poll{fd: fd}
	if err = unix.Pipe(p.wakeFD[:]); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("pipe", err)
	}
	for _, end := range p.wakeFD {
		unix.CloseOnExec(end)
		_ = unix.SetNonblock(end, true)
	}
	if err = p.add(p.wakeFD[0], unix.EVFILT_READ, unix.EV_ADD); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poll) add(fd, filter, flags int) error {
	ev := make([]unix.Kevent_t, 1)
	unix.SetKevent(&ev[0], fd, filter, flags)
	_, err := unix.Kevent(p.fd, ev, nil, nil)
	return os.NewSyscallError("kevent", err)
}

// arm asks for one report of fd.
func (p *poll) arm(fd int, _ bool) error {
	return p.add(fd, unix.EVFILT_WRITE, unix.EV_ADD|unix.EV_ONESHOT)
}

func (p *poll) forget(fd int) {
	_ = p.add(fd, unix.EVFILT_WRITE, unix.EV_DELETE) // gone already if it was reported
}

// wait appends the descriptors that can be written to or are broken. It returns
// an error after wake.
func (p *poll) wait(fds []int) ([]int, error) {
	n, err := unix.Kevent(p.fd, nil, p.events[:], nil)
	if err == unix.EINTR {
		return fds, nil
	}
	if err != nil {
		return fds, os.NewSyscallError("kevent", err)
	}
	for i := range p.events[:n] {
		fd := int(p.events[i].Ident)
		if fd == p.wakeFD[0] {
			return fds, errPollClosed
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// wake makes wait return its error. Any goroutine may call it.
func (p *poll) wake() { _, _ = unix.Write(p.wakeFD[1], []byte{1}) }

func (p *poll) close() {
	_ = unix.Close(p.wakeFD[0])
	_ = unix.Close(p.wakeFD[1])
	_ = unix.Close(p.fd)
}
