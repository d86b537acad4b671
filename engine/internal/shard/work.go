package shard

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A Work is an operation that takes long. The loop calls Turn until there is no more to do.
type Work interface {
	// Turn does as much as the round's budget allows. At the end, n is how many jobs it was done to. An error is why
	// nothing could be done; after [journal.ErrRoom] the work goes on when the journal has room.
	Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error)
}
