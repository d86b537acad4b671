package cluster

import (
	"log/slog"
	"testing"

	"trellis/binlog/journal"
)

// A contradiction is to be seen also when the engine that has met it is gone.
func TestContradictionsAreCountedOverAllEngines(t *testing.T) {
	q := NewQueue(QueueConfig{Log: slog.New(slog.DiscardHandler)})
	defer q.discard()
	for n := range uint64(3) {
		if got := q.Contradictions(); got != n {
			t.Errorf("%d contradictions, want %d", got, n)
		}
		s, err := q.Standby(0)
		if err != nil {
			t.Fatal(err)
		}
		s.Strict()
		if err := s.Hold(&journal.Hold{ID: 5, Session: 1, End: 1, Reserves: 1}); err != nil { // there is no such job
			t.Fatal(err)
		}
	}
}
