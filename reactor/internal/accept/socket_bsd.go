//go:build darwin || freebsd

package accept

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// optionsInherited says that a connection begins with the options of its listener. Here that differs between systems
// and options.
const optionsInherited = false

// prepareTCP returns the options that every connection is to have. After so long a silence the other end is asked; with
// 0, keep-alive's timings are the listener's.
func prepareTCP(listener int, silence time.Duration) ([]option, error) {
	options := []option{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	}
	if silence > 0 {
		return append(options[:1], keepAlive(silence)...), nil
	}
	for _, name := range []int{keepIdle, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
		value, err := unix.GetsockoptInt(listener, unix.IPPROTO_TCP, name)
		if err != nil {
			return nil, err
		}
		options = append(options, option{unix.IPPROTO_TCP, name, value})
	}
	return options, nil
}

// acceptFD accepts a connection without waiting.
func acceptFD(listener int) (int, error) {
	// No other program may be started before the descriptor is marked.
	syscall.ForkLock.RLock()
	fd, _, err := unix.Accept(listener)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// receive reads what there is to be read. With MSG_PEEK it leaves it there.
func receive(fd int, p []byte, flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, p, flags)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// UserOf is the user as whom the peer of a Unix socket has connected. It is what getpeereid(3) asks for.
func UserOf(fd int) (uid int, err error) {
	const solLocal = 0 // SOL_LOCAL
	cred, err := unix.GetsockoptXucred(fd, solLocal, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return int(cred.Uid), nil
}

// acknowledge does nothing: the system has no means for it.
func acknowledge(int) {}
