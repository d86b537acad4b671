package shard

import (
	"fmt"
	"testing"
	"time"

	"trellis/engine/internal/clock"
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
			s.now = s.alarm()
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
			if at := s.alarm(); at != clock.MaxTime {
				t.Fatalf("something is due at %d", at)
			}
		})
	}
}

func TestTheEndOfAPauseWithVeryManyWaitingLetsOthersHaveTheirTurn(t *testing.T) {
	const n = maxMoves + maxMoves/2
	for name, resume := range map[string]func(s *sim, c *simConn){
		"by itself":    func(s *sim, _ *simConn) { s.now = s.alarm() },
		"by a command": func(_ *sim, c *simConn) { c.expect(t, "PAUSED\r\n", "pause-tube default 0\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(100, 1)
			c := s.open()
			c.expect(t, "PAUSED\r\n", "pause-tube default 60\r\n")
			var workers []*simConn
			for i := range n {
				c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 0 9 0\r\n\r\n")
				w := s.open()
				w.expect(t, "", "reserve\r\n")
				workers = append(workers, w)
			}
			resume(s, c)
			for turn := 1; turn <= 2; turn++ {
				c.expect(t, "NOT_FOUND\r\n", "peek-buried\r\n")
				if got, want := s.engine.Snapshot(s.now).Reserved, min(n, turn*maxMoves); got != want {
					t.Fatalf("%d jobs are reserved after %d turns, want %d", got, turn, want)
				}
				s.now++
			}
			s.Settle()
			for i, w := range workers {
				if got, want := string(w.out.Buf), fmt.Sprintf("RESERVED %d 0\r\n\r\n", i+1); got != want {
					t.Fatalf("worker %d got %q, want %q", i, got, want)
				}
			}
		})
	}
}

// A tube with few jobs does not wait until one with very many is done.
func TestATubeHasItsTurnBesideOneWithVeryManyJobs(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	sh := s.engine.defaultTube.shard
	other := "a"
	for s.engine.shardFor([]byte(other)) != sh {
		other += "a"
	}
	for i := range 10 * maxMoves {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 1 9 0\r\n\r\n")
	}
	c.expect(t, "USING "+other+"\r\n", "use %s\r\n", other)
	c.expect(t, fmt.Sprintf("INSERTED %d\r\n", 10*maxMoves+1), "put 0 1 9 0\r\n\r\n")
	s.now = s.alarm()
	for range 2 {
		c.ask(t, "peek-ready\r\n")
		s.now++
	}
	c.expect(t, fmt.Sprintf("FOUND %d 0\r\n\r\n", 10*maxMoves+1), "peek-ready\r\n")
}
