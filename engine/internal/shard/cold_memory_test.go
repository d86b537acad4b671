package shard

import (
	"fmt"
	"strings"
	"testing"

	"trellis/engine/internal/arena"
)

// Where bodies have a limit of their own, they do not count for that of jobs, wherever they are: records and keys do, and
// what is counted is counted off, whatever has become of the job.
func TestBodiesWithALimitOfTheirOwnDoNotCountAsMemoryOfJobs(t *testing.T) {
	const size = 2000
	body := strings.Repeat("x", size)
	put := fmt.Sprintf("put 0 0 9 %d\r\n%s", size, body)
	for _, own := range []bool{false, true} {
		limits := Limits{Memory: 1 << 20}
		if own {
			limits.Bodies = 1 << 22
		}
		s := newLimitedSim(100_000, 1, limits)
		f := newHoldingFile()
		s.engine.recordIn(f)
		job := jobFootprint(0, nil)
		if !own {
			job += arena.Footprint(size)
		}
		used := func(after string, jobs int64) {
			t.Helper()
			if got := s.engine.memory.Used(); got != jobs*job {
				t.Errorf("own limit %v, after %s: %d bytes are counted, want those of %d jobs, %d", own, after, got, jobs, jobs*job)
			}
		}
		c, other := s.open(), s.open()
		c.say(put)
		used("a put", 1)
		line, rest, _ := strings.Cut(put, "\r\n")
		c.say(line) // and its body later
		f.committed = f.pos
		if own {
			s.engine.evictTo(0, 0, everyEvict)
			if s.coldJobs() != 1 {
				t.Fatal("no job is cold")
			}
		}
		_ = c.Send([]byte(rest[:size/2]))
		_ = c.Send([]byte(rest[size/2:] + "\r\n"))
		c.say()
		used("a put whose body came in pieces", 2)
		other.say(line)
		_ = other.Send([]byte(rest[:size/2]))
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		s.Settle()
		used("one whose client has left", 2)
		c.say("delete 1", "move-job 2 a")
		used("a delete and a move", 1)
		c.say("put 0 0 9 2000 idp:k:9\r\n"+body, "delete 4")
		c.say("delete 2")
		s.Wait(10e9)
		used("all have ended, a tombstone among them", 0)
		c.say(put, put)
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		used("a restart", 2)
		s.engine.Discard()
	}
}

// A body that begins to arrive while bodies take so much that no put waits is refused as it begins, and takes nothing.
func TestABodyThatBeginsToArriveWhenBodiesTakeTooMuchIsRefused(t *testing.T) {
	const limit = 1 << 20
	s, _ := placedSim(limit)
	defer s.engine.Discard()
	c := s.open()
	s.engine.resident.Store(limit + limit/8 - arena.Footprint(5000))
	for _, want := range []string{"INSERTED 1\r\n", "OUT_OF_MEMORY\r\n"} {
		bytes := s.engine.defaultTube.shard.residents.bytes
		c.say("put 0 0 9 5000")
		if taken := s.engine.defaultTube.shard.residents.bytes > bytes; taken != (want != "OUT_OF_MEMORY\r\n") {
			t.Errorf("before %q it has taken memory: %v", want, taken)
		}
		s.engine.resident.Add(-limit) // until the body has come
		if got := c.say(strings.Repeat("x", 5000)); got != want {
			t.Errorf("it is answered %q, want %q", got, want)
		}
		s.engine.resident.Store(limit + limit/8 - arena.Footprint(5000) + 1)
	}
	s.engine.resident.Store(0)
	if n := s.engine.Snapshot(s.now).RefusedBodies; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
}
