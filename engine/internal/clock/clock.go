// Package clock is the time by which the engine goes. It has no clock: whoever calls the engine brings the time.
package clock

import "math"

// Time is a point on the server's monotonic clock: nanoseconds since the
// server started. It never steps, so deadlines do not move when somebody sets
// the wall clock. Whoever calls the engine passes the time in; it may lag
// behind by a batch of commands, and must not go back on one goroutine.
type Time int64

// MaxTime is later than everything: never.
const MaxTime Time = math.MaxInt64

// Always is the time for Engine.Follow of a standby, which does not know when it will
// serve.
const Always Time = math.MinInt64

// Second is a second of it.
const Second Time = 1e9

// Key is t as the key of a heap. Times before the start of the server, which a
// follower meets, come before all others.
func (t Time) Key() uint64 { return uint64(t) ^ 1<<63 }

// TimeOf is the reverse of Key.
func TimeOf(key uint64) Time { return Time(key ^ 1<<63) }

// Seconds is the length of n seconds. No 32-bit number of them overflows.
func Seconds(n uint32) Time { return Time(n) * Second }

// Whole is t in whole seconds, rounded toward zero.
func (t Time) Whole() int64 { return int64(t / Second) }

// Micros is the whole microseconds since Time 0. A sum of differences between such numbers
// does not drift from what it stands for, and centuries of many workers fit in.
func (t Time) Micros() uint64 { return uint64(t / 1000) }
