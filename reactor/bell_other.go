//go:build !linux

package reactor

import (
	"os"

	"golang.org/x/sys/unix"
)

// newBell makes a bell of two connected sockets.
func newBell() (*bell, error) {
	fds, err := socketpair()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, os.NewSyscallError("setnonblock", err)
	}
	return &bell{fd: fds[0], heardAt: fds[1]}, nil
}
