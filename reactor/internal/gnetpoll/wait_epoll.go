//go:build linux && !poll_opt

package gnetpoll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// CanWait tells whether Look and Sleep can be called.
func (p Poller) CanWait() bool { return p.works && p.tasks >= 0 }

// Look fills events with what there is to report now. There may be nothing.
//
// The runtime is not told of the system call, which never blocks.
func (p Poller) Look(events []unix.EpollEvent) (n int, err error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	return result(int(r), errno)
}

// Sleep waits until there is something to report. It may return without.
func (p Poller) Sleep(events []unix.EpollEvent) (n int, err error) {
	r, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
	return result(int(r), errno)
}

func result(n int, errno unix.Errno) (int, error) {
	switch errno {
	case 0:
		return n, nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// IsTask tells whether a report of fd means that gnet has a task for the loop.
func (p Poller) IsTask(fd int32) bool { return int(fd) == p.tasks }

// PassTask has gnet's own polling find the report of a task that was taken from it.
func (p Poller) PassTask() error {
	one := [8]byte{0: 1, 7: 1} // a number in any byte order
	_, err := unix.Write(p.tasks, one[:])
	if err == unix.EAGAIN {
		return nil // gnet's counter is full, so that there is a report
	}
	return err
}
