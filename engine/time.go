package engine

import "trellis/engine/internal/clock"

// Time is a point on the server's monotonic clock: nanoseconds since the server started.
type Time = clock.Time

// MaxTime is later than everything: never.
const MaxTime = clock.MaxTime
