package clock

import "time"

var started = time.Now()

// sinceStart is a clock that need not go on while the machine sleeps.
func sinceStart() time.Duration { return time.Since(started) }
