//go:build (darwin || freebsd) && !poll_opt

package reactor

import "golang.org/x/sys/unix"

// pause stops reading from fd. The peer's end of sending goes unnoticed until
// reading goes on.
func (p pauser) pause(fd int) error { return p.modify(fd, unix.EV_DISABLE) }

// resume undoes pause.
func (p pauser) resume(fd int) error { return p.modify(fd, unix.EV_ENABLE) }

func (p pauser) modify(fd, flags int) error {
	ev := make([]unix.Kevent_t, 1)
	unix.SetKevent(&ev[0], fd, unix.EVFILT_READ, flags)
	_, err := unix.Kevent(p.poller, ev, nil, nil)
	return err
}
