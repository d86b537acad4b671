package accept

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// optionsInherited says that a connection begins with the options that its listener has at that time, keep-alive's
// timings among them.
const optionsInherited = true

// prepareTCP sets on a listening socket what is to hold for connections, and returns what has to be set on those that
// are there already. After so long a silence the other end is asked; 0 leaves that to the listener.
func prepareTCP(listener int, silence time.Duration) ([]option, error) {
	options := []option{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(listener, o.level, o.name, o.value); err != nil {
			return nil, err
		}
	}
	timings := keepAlive(silence)
	setOptions(listener, timings)
	return append(options, timings...), nil
}

// acceptFD accepts a connection without waiting. Nobody asks for its address.
func acceptFD(listener int) (int, error) {
	if s := sockets.Of(listener); s != nil {
		return s.Accept(listener)
	}
	const flags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	// It does not block, so that the scheduler need not know of it.
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, flags, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// receive reads what there is to be read. With MSG_PEEK it leaves it there.
func receive(fd int, p []byte, flags int) (int, error) {
	buf, size := uintptr(unsafe.Pointer(&p[0])), uintptr(len(p))
	for {
		// It does not block, so that the scheduler need not know of it: handshakes.mu is held.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), buf, size, uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// UserOf is the user as whom the peer of a Unix socket has connected.
func UserOf(fd int) (uid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return int(cred.Uid), nil
}

// acknowledge makes the system acknowledge at once what has come over TCP. A client without TCP_NODELAY keeps its first
// command back until the end of its handshake is acknowledged, which the system would put off for 40 ms.
func acknowledge(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
}
