package reactor

import "golang.org/x/sys/unix"

// optionsInherited tells that a connection begins with the options that its
// listener has at that time, keep-alive's timings among them.
const optionsInherited = true

// prepareTCP sets on a listening socket what is to hold for connections, and
// returns what has to be set on those that are there already.
func prepareTCP(listener int) ([]option, error) {
	options := []option{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(listener, o.level, o.name, o.value); err != nil {
			return nil, err
		}
	}
	return options, nil
}

// acceptFD accepts a connection without waiting. Nobody asks for its address.
func acceptFD(listener int) (int, error) {
	// It does not block, so that the scheduler need not know of it.
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// unread tells if a socket has, or may have, input that was not read.
func unread(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err != nil || n > 0
}
