package replica

import (
	"errors"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

const (
	// jobsAtATime is how many jobs a walk visits in a turn at most.
	jobsAtATime = 256
	// turnBytes is how many bytes of records are written in a turn, unless a single one is
	// larger. The snapshot's writer collects a mebibyte before it writes and syncs. With
	// more bytes in a turn, each turn would have a sync.
	turnBytes = 256 << 10
	// maxTurnPause is how long the pause behind a turn is at most.
	maxTurnPause = 100 * time.Millisecond
)

// turns divides the work of a goroutine that is in no hurry. After each turn it sleeps for as
// long as the turn has taken, so that half of a processor, and of the disk, is left to what
// clients wait for.
//
// Yielding the processor is not enough. The runtime runs a goroutine that yields again
// before it asks the network for messages. It also runs it before goroutines that were
// woken by an event loop that has gone to sleep since.
type turns struct {
	now   func() time.Time
	sleep func(time.Duration)

	began time.Time
	bytes int64 // in this turn
}

// newTurns begins a turn. When cut is closed, a pause ends, and no other begins.
func newTurns(cut <-chan struct{}) *turns {
	sleep := func(d time.Duration) {
		select {
		case <-cut:
		case <-time.After(d):
		}
	}
	return &turns{now: time.Now, sleep: sleep, began: time.Now()}
}

// did counts bytes that come next. The turn ends before them if there were enough.
func (t *turns) did(bytes int64) {
	if t.bytes > 0 && t.bytes+bytes > turnBytes {
		t.end()
	}
	t.bytes += bytes
}

// end ends a turn, and returns when the next one begins.
func (t *turns) end() {
	t.sleep(min(t.now().Sub(t.began), maxTurnPause))
	t.began, t.bytes = t.now(), 0
}

// errTurn ends a call of Queue.Walk whose job has to wait for the next turn.
var errTurn = errors.New("the turn has enough bytes")

// collected is the jobs of one turn of a walk: turnBytes of records at most, unless a
// single one is larger.
type collected struct {
	jobs   []walked
	bodies []byte // the records' bodies lie here
	bytes  int64  // of records
}

// walked is a job as a walk has met it.
type walked struct {
	record journal.Record
	hold   journal.Hold // its ID is 0 if there is none
}

// add copies a record, and the hold behind it unless that is nil, or returns errTurn.
func (c *collected) add(r *journal.Record, h *journal.Hold) error {
	size := r.Size()
	if h != nil {
		size += record.HoldSize
	}
	if c.bytes > 0 && c.bytes+size > turnBytes {
		return errTurn
	}
	c.bytes += size
	x := walked{record: *r}
	if h != nil {
		x.hold = *h
	}
	at := len(c.bodies)
	// Bodies that have to move when the buffer grows stay where they are for those records
	// that have them already.
	c.bodies = append(c.bodies, r.Body...)
	x.record.Body = c.bodies[at:len(c.bodies):len(c.bodies)]
	if r.Absent != nil {
		absent := *r.Absent
		x.record.Absent = &absent
	}
	c.jobs = append(c.jobs, x)
	return nil
}
