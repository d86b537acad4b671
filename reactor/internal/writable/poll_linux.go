package writable

import (
	"os"

	"golang.org/x/sys/unix"
)

// Poll tells which descriptors can be written to. Wait is for one goroutine, and
// Close for when Wait has returned for good; the others are for any.
type Poll struct {
	fd     int
	wakeFD int
	events [128]unix.EpollEvent
}

// Open makes a Poll.
func Open() (*Poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wakeFD, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		if err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wakeFD, &unix.EpollEvent{Fd: int32(wakeFD), Events: unix.EPOLLIN}); err == nil {
			return &Poll{fd: fd, wakeFD: wakeFD}, nil
		}
		_ = unix.Close(wakeFD)
	}
	_ = unix.Close(fd)
	return nil, os.NewSyscallError("eventfd", err)
}

// Arm asks for one report of fd. known tells that it was armed before and not
// forgotten.
func (p *Poll) Arm(fd int, known bool) error {
	op := unix.EPOLL_CTL_ADD
	if known {
		op = unix.EPOLL_CTL_MOD
	}
	ev := unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLOUT | unix.EPOLLONESHOT}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, &ev))
}

// Forget ends the interest in fd. It must be called before fd is closed.
func (p *Poll) Forget(fd int) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

// Wait appends the descriptors that can be written to or are broken. It returns
// ErrClosed after Wake.
func (p *Poll) Wait(fds []int) ([]int, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], -1)
	if err == unix.EINTR {
		return fds, nil
	}
	if err != nil {
		return fds, os.NewSyscallError("epoll_wait", err)
	}
	for _, ev := range p.events[:n] {
		if int(ev.Fd) == p.wakeFD {
			return fds, ErrClosed
		}
		fds = append(fds, int(ev.Fd))
	}
	return fds, nil
}

// Wake makes Wait return ErrClosed. Any goroutine may call it.
func (p *Poll) Wake() {
	_, _ = unix.Write(p.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Close frees the poller.
func (p *Poll) Close() {
	_ = unix.Close(p.wakeFD)
	_ = unix.Close(p.fd)
}

// FD is the poller's own descriptor, which is open until Close.
func (p *Poll) FD() int { return p.fd }
