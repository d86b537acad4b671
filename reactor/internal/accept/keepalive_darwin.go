package accept

import (
	"time"

	"golang.org/x/sys/unix"
)

const keepIdle = unix.TCP_KEEPALIVE

// unacknowledged are the options with which a connection ends when what was sent is not acknowledged for so long.
func unacknowledged(d time.Duration) []option {
	return []option{{unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, seconds(d)}}
}
