//go:build !linux

package stream

import "golang.org/x/sys/unix"

// Write writes what fd, a socket, takes at once. b is not empty.
func Write(fd int, b []byte) (n int, err error) { return unix.Write(fd, b) }

// writev writes what fd takes at once of pieces: not every system has a writev that package unix knows.
func writev(fd int, pieces [][]byte) (n int, err error) {
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

// LimitUnsent is for Linux.
func LimitUnsent(int) {}
