package accept

import (
	"time"

	"golang.org/x/sys/unix"
)

const keepIdle = unix.TCP_KEEPIDLE

// unacknowledged has nothing to set: the system has its own bound on retransmissions.
func unacknowledged(time.Duration) []option { return nil }
