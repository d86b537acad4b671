package reactor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive reads what there is to be read. With MSG_PEEK it leaves it there.
func receive(fd int, p []byte, flags int) (int, error) {
	for {
		// It does not block, so that the scheduler need not know of it: handshakes.mu is held.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
