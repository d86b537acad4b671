package main

import (
	"time"

	"trellis/engine"
)

// newClock returns a clock that shows 0 at start, which is now, and goes by the
// system's monotonic clock: setting the time of day does not move it. Any
// goroutine may read it.
func newClock() (start time.Time, now func() engine.Time) {
	start = time.Now()
	return start, func() engine.Time { return engine.Time(time.Since(start)) }
}
