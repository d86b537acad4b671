package reactor

import (
	"os"

	"golang.org/x/sys/unix"
)

// poll tells which descriptors can be written to.
type poll struct {
	fd     int
	wakeFD int
	events [128]unix.EpollEvent
}

func openPoll() (*poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wakeFD, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		if err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wakeFD, &unix.EpollEvent{Fd: int32(wakeFD), Events: unix.EPOLLIN}); err == nil {
			return &poll{fd: fd, wakeFD: wakeFD}, nil
		}
		_ = unix.Close(wakeFD)
	}
	_ = unix.Close(fd)
	return nil, os.NewSyscallError("eventfd", err)
}

// arm asks for one report of fd. known tells that it was armed before and not
// forgotten.
func (p *poll) arm(fd int, known bool) error {
	op := unix.EPOLL_CTL_ADD
	if known {
		op = unix.EPOLL_CTL_MOD
	}
	ev := unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLOUT | unix.EPOLLONESHOT}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, &ev))
}

func (p *poll) forget(fd int) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

// wait appends the descriptors that can be written to or are broken. It returns
// an error after wake.
func (p *poll) wait(fds []int) ([]int, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], -1)
	if err == unix.EINTR {
		return fds, nil
	}
	if err != nil {
		return fds, os.NewSyscallError("epoll_wait", err)
	}
	for _, ev := range p.events[:n] {
		if int(ev.Fd) == p.wakeFD {
			return fds, errPollClosed
		}
		fds = append(fds, int(ev.Fd))
	}
	return fds, nil
}

// wake makes wait return its error. Any goroutine may call it.
func (p *poll) wake() {
	_, _ = unix.Write(p.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (p *poll) close() {
	_ = unix.Close(p.wakeFD)
	_ = unix.Close(p.fd)
}
