package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/reply"
)

// What slow clients are being sent counts as loaded for those who wait, until it is sent; meanwhile Evict need not look
// at it.
func TestBodiesThatAreBeingSentCountAsLoaded(t *testing.T) {
	foot, large := arena.Footprint(pinnedSize), strings.Repeat("x", pinnedSize)
	s, f := placedSim(4 * 3 * foot)
	defer s.engine.Discard()
	clients := []*simConn{s.open(), s.open(), s.open(), s.open()}
	for range clients {
		clients[0].say(fmt.Sprintf("put 0 0 9 %d\r\n%s", pinnedSize, large))
	}
	f.committed = f.pos
	s.engine.evictTo(0, 0, everyEvict)
	sh := s.engine.defaultTube.shard
	var sent []reply.Body
	for i, c := range clients[:2] {
		c.held = true
		c.say(fmt.Sprint("peek ", i+1))
		f.answer(s.engine)
		s.Settle()
		_, j := sh.find(uint64(i + 1))
		sent = append(sent, sh.pin(j, 0)) // as its reply will, which the client takes slowly
		c.held = false
		c.resume()
	}
	clients[2].held = true
	if clients[2].say("peek 3"); !f.answer(s.engine) {
		t.Fatal("one that fits beside what is being sent is not asked for")
	}
	if clients[3].say("peek 4"); len(f.asked) != 0 {
		t.Fatal("more is asked for than a quarter of what bodies may take")
	}
	s.engine.evictTo(0, 0, everyEvict)
	if n := sh.residents.Len(); n != 1 || s.coldJobs() != 1 {
		t.Errorf("Evict still looks at %d bodies, of which one is awaited; %d are cold", n, s.coldJobs())
	}
	if sent[0].Release(); len(f.asked) != 1 {
		t.Error("when one is sent, nobody else's is asked for")
	}
	f.answer(s.engine)
	s.Settle()
	clients[2].held = false
	clients[2].resume()
	sent[1].Release()
	s.engine.evictTo(0, 0, everyEvict)
	if s.coldJobs() != len(clients) {
		t.Errorf("%d of %d can leave memory when they are sent", s.coldJobs(), len(clients))
	}
}

// Whoever waits for a body does so for ten seconds, be it fetched or not asked for yet. Afterwards the job is as it was.
func TestAWaitForABodyEndsAfterTenSeconds(t *testing.T) {
	for _, asked := range []bool{true, false} {
		s, f := placedSim(someBodies)
		c, other := s.open(), s.open()
		other.say("put 0 0 1 1\r\nx")
		f.committed = f.pos
		s.engine.evictTo(0, 0, everyEvict)
		if !asked {
			s.engine.loads.Sent(someBodies) // nobody takes what he is sent
		}
		waits := func(want string, all, late int) {
			t.Helper()
			a, l := s.engine.loads.Waits()
			if got := c.say(); got != want || a != all || l != late {
				t.Errorf("the client is told %q; %d wait, %d of them for long", got, a, l)
			}
		}
		if c.say("reserve"); len(f.asked) == 1 != asked {
			t.Fatalf("asked for are %v", f.asked)
		}
		s.Wait(999 * time.Millisecond)
		waits("", 1, 0)
		s.Wait(time.Millisecond)
		waits("", 1, 1)
		s.Wait(8999 * time.Millisecond)
		waits("", 1, 1)
		s.Wait(time.Millisecond)
		waits("INTERNAL_ERROR\r\n", 0, 0)
		if got := other.say("stats-job 1"); !strings.Contains(got, "state: ready") || !strings.Contains(got, "reserves: 0") {
			t.Errorf("the job is %s", got)
		}
		s.engine.loads.Sent(-someBodies)
		f.answer(s.engine) // it comes after all, or nothing was asked for
		got := c.say("reserve")
		f.answer(s.engine)
		s.Settle()
		if got += c.say(); got != "RESERVED 1 1\r\nx\r\n" {
			t.Errorf("then the client is told %q", got)
		}
		s.engine.Discard()
	}
}

// Very many cold jobs whose time to run ends at once, or whose client leaves, become dead letters, each after one load,
// with no more on their way than may be.
func TestManyColdDeadLettersAreLoadedOnceEach(t *testing.T) {
	manyDeadLetters(t, false)
	if proof {
		manyDeadLetters(t, true)
	}
}

func manyDeadLetters(t *testing.T, leaves bool) {
	const jobs = maxAhead + 1000
	s := coldSim(1)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	other.say("set-tube default attempts=1 dead=d disconnects=1")
	for range jobs {
		other.say("put 0 0 60 1\r\nx")
	}
	for range jobs/1000 + 1 {
		c.say("reserve-batch 1000")
	}
	s.Settle()
	if n := s.coldJobs(); n != jobs || s.engine.Snapshot(s.now).Reserved != jobs {
		t.Fatalf("%d of %d jobs are cold", n, jobs)
	}
	reads, most := 0, 0
	s.cold.fails = func(journal.Fetch) error {
		reads++
		most = max(most, s.engine.loads.Len())
		return nil
	}
	if leaves {
		_ = c.Close()
	}
	for range 40 {
		s.Wait(2 * time.Second)
	}
	if n := s.engine.Snapshot(s.now).DeadLetters; n != jobs || reads != jobs || most > maxAhead {
		t.Errorf("client leaves: %v: %d of %d are dead letters after %d reads, %d at a time", leaves, n, jobs, reads, most)
	}
}

// Without a limit nothing of this is done or counted.
func TestWithoutALimitOfBodiesNothingIsCounted(t *testing.T) {
	s := newSim(100_000, 1)
	defer s.engine.Discard()
	s.engine.recordIn(newHoldingFile())
	s.engine.crowded = func() { t.Error("Evict is called for") }
	c := s.open()
	for range 5 * evictLook {
		c.say("put 0 0 9 1\r\nx")
	}
	c.say(fmt.Sprintf("put 0 0 9 %d\r\n%s", pinnedSize, strings.Repeat("x", pinnedSize)))
	sh := s.engine.defaultTube.shard
	_, j := sh.find(s.engine.ids.Last.Load())
	b := sh.pin(j, 0)
	defer b.Release()
	w := s.engine.loads.Wait(nil)
	w.Need(pinnedSize)
	if w.Add(journal.Fetch{ID: 1}); len(s.engine.loads.Asked(nil)) != 1 {
		t.Error("what is being sent counts")
	}
	w.Leave()
	if sh.residents != nil || s.engine.BodyMemory() != 0 || s.engine.BodyStats() != (BodyStats{}) {
		t.Errorf("%d bytes and %+v are counted", s.engine.BodyMemory(), s.engine.BodyStats())
	}
}
