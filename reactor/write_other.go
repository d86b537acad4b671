//go:build !linux

package reactor

import "golang.org/x/sys/unix"

// writeFD writes what fd, a socket, takes at once.
func writeFD(fd int, b []byte) (n int, err error) { return unix.Write(fd, b) }
