package engine

import (
	"fmt"
	"testing"
	"time"
)

// dueAtOnce makes jobs due by time, and returns how many there are.
var dueAtOnce = map[string]func(t *testing.T, s *sim, n int){
	"delays": func(t *testing.T, s *sim, n int) {
		c := s.open()
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 1 9 0\r\n\r\n")
		}
	},
	"times to run": func(t *testing.T, s *sim, n int) {
		c := s.open()
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\n", i+1, i+1), "put 0 0 1 0\r\n\r\nreserve\r\n")
		}
	},
}

func TestVeryManyJobsThatAreDueAtOnceLetOthersHaveTheirTurn(t *testing.T) {
	const n = 2*maxMoves + maxMoves/2
	for name, prepare := range dueAtOnce {
		t.Run(name, func(t *testing.T) {
			s := newSim(100, 1)
			other := s.open()
			prepare(t, s, n)
			s.now = s.nextDeadline()
			for turn := 1; turn <= 3; turn++ {
				// A batch of commands has one time, and so one turn.
				for range 3 {
					other.expect(t, "NOT_FOUND\r\n", "peek-buried\r\n")
				}
				if got, want := s.engine.Snapshot(s.now).Ready, min(n, turn*maxMoves); got != want {
					t.Fatalf("%d jobs are ready after %d turns, want %d", got, turn, want)
				}
				s.now++
			}
			for i := range n {
				other.expect(t, fmt.Sprintf("RESERVED %d 0\r\n\r\n", i+1), "reserve\r\n")
			}
		})
	}
}

func TestVeryManyJobsThatAreDueAtOnceAllBecomeReadyWithoutCommands(t *testing.T) {
	const n = 10 * maxMoves
	for name, prepare := range dueAtOnce {
		t.Run(name, func(t *testing.T) {
			s := newSim(100, 1)
			prepare(t, s, n)
			s.Wait(time.Second + time.Microsecond)
			if got := s.engine.Snapshot(s.now).Ready; got != n {
				t.Fatalf("%d of %d jobs are ready", got, n)
			}
			if at := s.nextDeadline(); at != MaxTime {
				t.Fatalf("something is due at %d", at)
			}
		})
	}
}
