package stream

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// shortWrite is how many bytes are written at most without telling the runtime of the system call, which would
// cost a fifth of a short write. A socket of ours never blocks, but a long write copies for a while, and then
// others may want the processor.
const shortWrite = 64 << 10

// Write writes what fd, a socket, takes at once. b is not empty. To send is a bit cheaper than to write, which
// any file can.
func Write(fd int, b []byte) (n int, err error) {
	if s := sockets.Of(fd); s != nil {
		return s.Write(fd, b)
	}
	if len(b) > shortWrite {
		return unix.Write(fd, b)
	}
	r, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// writev writes what fd takes at once of pieces.
func writev(fd int, pieces [][]byte) (n int, err error) {
	if s := sockets.Of(fd); s != nil {
		return s.Write(fd, slices.Concat(pieces...))
	}
	return unix.Writev(fd, pieces)
}

// unread reports whether a socket has, or may have, input that was not read.
func unread(fd int) bool {
	if s := sockets.Of(fd); s != nil {
		return s.Unread(fd)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err != nil || n > 0
}

// LimitUnsent makes the system take output only while it has less than this of it that was not sent, so that what is
// written last waits for little.
func LimitUnsent(fd int) {
	if sockets.Of(fd) != nil {
		return
	}
	const unsent = 64 << 10
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
}
