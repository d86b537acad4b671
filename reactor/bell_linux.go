package reactor

import (
	"os"

	"golang.org/x/sys/unix"
)

// newBell makes a bell of an eventfd, which is cheaper than two sockets.
func newBell() (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &bell{fd: fd, heardAt: fd}, nil
}
