//go:build !linux

package reactor

import "golang.org/x/sys/unix"

// writeFD writes what fd, a socket, takes at once.
func writeFD(fd int, b []byte) (n int, err error) { return unix.Write(fd, b) }

// writevFD writes what fd takes at once of pieces: not every system has a writev that package
// unix knows.
func writevFD(fd int, pieces [][]byte) (n int, err error) {
	for _, p := range pieces {
		m, err := unix.Write(fd, p)
		if m > 0 {
			n += m
		}
		if err != nil && n == 0 {
			return 0, err
		}
		if err != nil || m < len(p) {
			break
		}
	}
	return n, nil
}

// unread reports whether a socket has, or may have, input that was not read.
func unread(int) bool { return true }
