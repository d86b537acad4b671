package replica

import "time"

const (
	// turnBytes is how many bytes of records are written in a turn, unless a single one is
	// larger: a mebibyte would be written, and synced, in each.
	turnBytes = 256 << 10
	// maxTurnPause is how long the pause behind a turn is at most.
	maxTurnPause = 100 * time.Millisecond
)

// turns divides the work of a goroutine that is in no hurry. After each turn it sleeps for as
// long as the turn has taken, so that half of a processor, and of the disk, is left to what
// clients wait for. To yield would not do: a goroutine that yields is run again before the
// runtime looks for messages from the network, and for goroutines that were woken by an
// event loop which sleeps by now.
type turns struct {
	now   func() time.Time
	sleep func(time.Duration)

	began time.Time
	bytes int64 // in this turn
}

func newTurns() *turns {
	return &turns{now: time.Now, sleep: time.Sleep, began: time.Now()}
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
