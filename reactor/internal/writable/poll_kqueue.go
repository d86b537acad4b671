//go:build darwin || freebsd

package writable

import (
	"os"

	"golang.org/x/sys/unix"
)

// Poll tells which descriptors can be written to. Wait is for one goroutine, and
// Close for when Wait has returned for good; the others are for any.
type Poll struct {
	fd     int
	wakeFD [2]int // a pipe
	events [128]unix.Kevent_t
}

// Open makes a Poll.
func Open() (*Poll, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(fd)
	p := &Poll{fd: fd}
	if err = unix.Pipe(p.wakeFD[:]); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("pipe", err)
	}
	for _, end := range p.wakeFD {
		unix.CloseOnExec(end)
		_ = unix.SetNonblock(end, true)
	}
	if err = p.add(p.wakeFD[0], unix.EVFILT_READ, unix.EV_ADD); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Poll) add(fd, filter, flags int) error {
	ev := make([]unix.Kevent_t, 1)
	unix.SetKevent(&ev[0], fd, filter, flags)
	_, err := unix.Kevent(p.fd, ev, nil, nil)
	return os.NewSyscallError("kevent", err)
}

// Arm asks for one report of fd.
func (p *Poll) Arm(fd int, _ bool) error {
	return p.add(fd, unix.EVFILT_WRITE, unix.EV_ADD|unix.EV_ONESHOT)
}

// Forget ends the interest in fd. It must be called before fd is closed.
func (p *Poll) Forget(fd int) {
	_ = p.add(fd, unix.EVFILT_WRITE, unix.EV_DELETE) // gone already if it was reported
}

// Wait appends the descriptors that can be written to or are broken. It returns
// ErrClosed after Wake.
func (p *Poll) Wait(fds []int) ([]int, error) {
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
			return fds, ErrClosed
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// Wake makes Wait return ErrClosed. Any goroutine may call it.
func (p *Poll) Wake() { _, _ = unix.Write(p.wakeFD[1], []byte{1}) }

// Close frees the poller.
func (p *Poll) Close() {
	_ = unix.Close(p.wakeFD[0])
	_ = unix.Close(p.wakeFD[1])
	_ = unix.Close(p.fd)
}

// FD is the poller's own descriptor, which is open until Close.
func (p *Poll) FD() int { return p.fd }
