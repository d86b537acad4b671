package reactor

import "golang.org/x/sys/unix"

// limitUnsent has the system take output only while it has less than this of it that was not sent, so
// that what is written last waits for little.
func limitUnsent(fd int) {
	const unsent = 64 << 10
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
}
