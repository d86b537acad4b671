//go:build !linux

package reactor

import "time"

// bootTime is a clock that goes on, where it can, while the machine sleeps.
func bootTime() time.Duration { return sinceStart() }
