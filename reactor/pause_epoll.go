//go:build linux && !poll_opt

package reactor

import "golang.org/x/sys/unix"

// pause stops reading from fd. The peer's end of sending is still noticed: gnet
// then takes the connection for ended without reading what is left.
func (p pauser) pause(fd int) error { return p.modify(fd, unix.EPOLLRDHUP) }

// resume undoes pause. The events are those that gnet registers for.
func (p pauser) resume(fd int) error { return p.modify(fd, unix.EPOLLIN|unix.EPOLLPRI) }

func (p pauser) modify(fd int, events uint32) error {
	return unix.EpollCtl(p.poller, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Fd: int32(fd), Events: events})
}
