package engine

import "math"

// Time is a point on the server's monotonic clock: nanoseconds since the
// server started. It never steps, so deadlines do not move when somebody sets
// the wall clock. Whoever calls the engine passes the time in; it may lag
// behind by a batch of commands, and must not go back on one goroutine.
type Time int64

// MaxTime is later than everything: never.
const MaxTime Time = math.MaxInt64

const second Time = 1e9

// key is t as the key of a heap. Times before the start of the server, which a
// follower meets, come before all others.
func (t Time) key() uint64 { return uint64(t) ^ 1<<63 }

// timeOf is the reverse of key.
func timeOf(key uint64) Time { return Time(key ^ 1<<63) }

// seconds is the length of n seconds. No 32-bit number of them overflows.
func seconds(n uint32) Time { return Time(n) * second }

// whole is t in whole seconds, rounded toward zero.
func (t Time) whole() int64 { return int64(t / second) }
