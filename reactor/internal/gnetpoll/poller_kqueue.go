//go:build (darwin || freebsd) && !poll_opt

package gnetpoll

import "golang.org/x/sys/unix"

// Pause stops reading from fd. The peer's end of sending goes unnoticed until
// reading goes on.
func (p Poller) Pause(fd int) error { return p.modify(fd, unix.EV_DISABLE) }

// Resume undoes Pause.
func (p Poller) Resume(fd int) error { return p.modify(fd, unix.EV_ENABLE) }

func (p Poller) modify(fd, flags int) error {
	ev := make([]unix.Kevent_t, 1)
	unix.SetKevent(&ev[0], fd, unix.EVFILT_READ, flags)
	_, err := unix.Kevent(p.fd, ev, nil, nil)
	return err
}
