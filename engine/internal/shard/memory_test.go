package shard

import (
	"testing"

	"trellis/engine/internal/arena"
)

// Without memory to count a reservation a job stays what it was, however often
// that is tried, and a session that was to get it is told.
func TestAJobStaysReadyWhenThereIsNoMemoryToReserveIt(t *testing.T) {
	s := newSim(100, 1)
	c, waiting := s.open(), s.open()
	census := func() {
		t.Helper()
		for _, err := range (&census{engine: s.engine, sessions: []*Session{&c.session, &waiting.session}}).run() {
			t.Error(err)
		}
	}
	say := func(c *simConn, want string, lines ...string) {
		t.Helper()
		if got := c.say(lines...); got != want {
			t.Fatalf("%q: %q, want %q", lines, got, want)
		}
		census()
	}
	sh := s.engine.defaultTube.shard
	sh.counters = arena.Slab[counters]{} // it can allocate nothing
	say(c, "INSERTED 1\r\n", "put 0 0 9 1", "a")
	s.Wait(1e9)
	say(c, "INSERTED 2\r\n", "put 0 0 9 1", "b")
	for range 3 {
		say(c, "OUT_OF_MEMORY\r\n", "reserve")
		say(c, "OUT_OF_MEMORY\r\n", "reserve-job 1")
		say(c, "FOUND 1 1\r\na\r\n", "peek-ready")
	}
	say(c, "DELETED\r\nDELETED\r\n", "delete 1", "delete 2")
	say(waiting, "", "reserve")
	say(c, "INSERTED 3\r\n", "put 0 0 9 1", "c")
	say(waiting, "OUT_OF_MEMORY\r\n")
	sh.counters = arena.NewSlab[counters]()
	say(waiting, "RESERVED 3 1\r\nc\r\n", "reserve")
}

// A put for which there is no memory leaves nothing behind, whether or not its
// body came at once.
func TestAPutWithoutMemoryLeavesNothing(t *testing.T) {
	for _, whole := range []bool{true, false} {
		for _, put := range []string{"put 0 0 9 3", "put 0 5 9 3"} {
			s := newSim(100, 1)
			c := s.open()
			sh := s.engine.defaultTube.shard
			if put == "put 0 0 9 3" {
				sh.jobs = arena.Slab[job]{}
			} else {
				sh.counters = arena.Slab[counters]{}
			}
			for range 3 {
				reply := ""
				if whole {
					_ = c.Send([]byte(put + "\r\nabc\r\n"))
					reply = c.say()
				} else {
					reply = c.say(put, "abc")
				}
				if reply != "OUT_OF_MEMORY\r\n" {
					t.Fatalf("whole %v, %s: %q", whole, put, reply)
				}
				for _, err := range (&census{engine: s.engine, sessions: []*Session{&c.session}}).run() {
					t.Error(err)
				}
			}
			sh.jobs, sh.counters = arena.NewSlab[job](), arena.NewSlab[counters]()
			if reply := c.say(put, "abc", "peek 4"); reply != "INSERTED 4\r\nFOUND 4 3\r\nabc\r\n" {
				t.Errorf("%q", reply)
			}
		}
	}
}
