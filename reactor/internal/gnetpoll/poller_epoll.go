//go:build linux && !poll_opt

package gnetpoll

import "golang.org/x/sys/unix"

// Pause stops reading from fd. The peer's end of sending is still noticed: gnet
// then takes the connection for ended without reading what is left.
func (p Poller) Pause(fd int) error { return p.modify(fd, unix.EPOLLRDHUP) }

// Resume undoes Pause. The events are those that gnet registers for.
func (p Poller) Resume(fd int) error { return p.modify(fd, unix.EPOLLIN|unix.EPOLLPRI) }

func (p Poller) modify(fd int, events uint32) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Fd: int32(fd), Events: events})
}

// Silence stops all reports of fd of its own. What is reported with its number goes
// on.
func (p Poller) Silence(fd int) error { return p.modify(fd, 0) }

// Report has the poller report input of fd with the number of another descriptor,
// which gnet takes for a connection and reads.
func (p Poller) Report(fd, as int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Fd: int32(as), Events: unix.EPOLLIN})
}

// Unreport undoes Report and Watch.
func (p Poller) Unreport(fd int) error { return unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// Watched is the descriptor in reports of what Watch was asked to watch.
const Watched = -1

// Watch has the poller report fd, which it does not have yet: its input, each time when more
// has come, and its end. The reports have number in their field Pad. gnet would not know what
// to do with them, so this is for where Look and Sleep are called: see CanWait.
func (p Poller) Watch(fd int, number int32) error { return p.watch(unix.EPOLL_CTL_ADD, fd, number) }

// Rewatch has the poller report fd once more if there is input that was reported before.
func (p Poller) Rewatch(fd int, number int32) error { return p.watch(unix.EPOLL_CTL_MOD, fd, number) }

func (p Poller) watch(op, fd int, number int32) error {
	const events = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET
	return unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Fd: Watched, Pad: number, Events: events})
}
