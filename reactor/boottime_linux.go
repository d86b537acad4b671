package reactor

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is a clock that goes on while the machine sleeps.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return sinceStart()
	}
	return time.Duration(t.Nano())
}
