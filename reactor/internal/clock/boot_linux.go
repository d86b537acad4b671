package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot is a clock that goes on while the machine sleeps.
func Boot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return sinceStart()
	}
	return time.Duration(t.Nano())
}
