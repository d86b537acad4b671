//go:build !linux

package clock

import "time"

// Boot is a clock that goes on, where it can, while the machine sleeps.
func Boot() time.Duration { return sinceStart() }
