//go:build !linux

package reactor

import "golang.org/x/sys/unix"

// receive reads what there is to be read. With MSG_PEEK it leaves it there.
func receive(fd int, p []byte, flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, p, flags)
		if err != unix.EINTR {
			return n, err
		}
	}
}
