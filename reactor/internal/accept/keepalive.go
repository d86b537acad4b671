package accept

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// keepAliveProbes is how many questions without an answer end a connection.
	keepAliveProbes = 3
	// maxKeepAlive is what systems take at most.
	maxKeepAlive = 32767 * time.Second
)

// KeepAlive makes the system ask the other end of a TCP connection whether it is there, as Config.KeepAlive says. A
// socket of another kind stays as it is.
func (a *Acceptor) KeepAlive(fd int) { setOptions(fd, keepAlive(a.cfg.KeepAlive)) }

// setOptions sets options as far as the socket takes them: one of MPTCP does not take all, and a connection that has
// ended takes none, which is noticed when it is read.
func setOptions(fd int, options []option) {
	for _, o := range options {
		_ = unix.SetsockoptInt(fd, o.level, o.name, o.value)
	}
}

// keepAlive are the options with which the other end is asked after so long a silence, and a connection ends when half
// of that again has passed without an answer. There are none for 0.
func keepAlive(after time.Duration) []option {
	if after == 0 {
		return nil
	}
	after = min(after, maxKeepAlive)
	half := after / 2
	return append([]option{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, keepIdle, seconds(after)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(half / keepAliveProbes)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes},
	}, unacknowledged(after+half)...)
}

// seconds rounds a time up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
