package reactor

import "golang.org/x/sys/unix"

// acknowledge makes the system acknowledge at once what has come over TCP. A client
// without TCP_NODELAY keeps its first command back until the end of its handshake is
// acknowledged, which the system would put off for 40 ms.
func acknowledge(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
}
