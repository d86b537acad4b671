package shard

import (
	"fmt"
	"strings"
	"testing"

	"trellis/binlog/journal"
)

// A batch that waits for bodies once more, after jobs of it have gone, has each of the others once, in their order.
func TestABatchThatWaitsOnceMoreHasEachJobOnce(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c := s.open()
	body := strings.Repeat("x", pinnedSize)
	b := new(batch)
	for id := range uint64(5) {
		c.say(fmt.Sprintf("put 0 0 90 %d\r\n%s", len(body), body))
		c.say("reserve")
		b.large = append(b.large, largeJob{batchJob: batchJob{s.engine.defaultTube.shard, id + 1}, at: int(id)})
	}
	b.of = c.session.client
	c.say("delete 1", "delete 2")
	if n := s.coldJobs(); n != 3 {
		t.Fatalf("%d of 3 jobs are cold", n)
	}
	tx := c.loop.by()
	for _, id := range []uint64{3, 4} { // these have come, the last has not
		sh, _, j := s.engine.lockJob(tx, id, s.now)
		f := s.cold.read(j.fetch())
		sh.unlock(tx)
		s.engine.Loaded([]journal.Fetched{f})
	}
	if b.pinLarge(tx, s.now) {
		t.Fatalf("%d are pinned, although one is cold", len(b.large))
	}
	var ids []uint64
	for _, x := range b.large {
		ids = append(ids, x.id)
	}
	if len(ids) != 3 || ids[0] != 3 || ids[1] != 4 || ids[2] != 5 {
		t.Errorf("the batch has jobs %d, want 3, 4 and 5", ids)
	}
}

// A batch comes to its end although what it does not wait for leaves memory while it waits.
func TestABatchEndsAlthoughOthersOfItsBodiesLeaveMemoryMeanwhile(t *testing.T) {
	for name, size := range map[string]int{"small": 9, "large": pinnedSize} {
		t.Run(name, func(t *testing.T) {
			s := coldSim(1)
			defer s.engine.Discard()
			c := s.open()
			body := strings.Repeat("x", size)
			for range 2 {
				c.say(fmt.Sprintf("put 0 0 90 %d\r\n%s", len(body), body))
			}
			sh, _, j := s.engine.lockJob(c.loop.by(), 1, s.now)
			f := s.cold.read(j.fetch())
			sh.unlock(c.loop.by())
			s.engine.Loaded([]journal.Fetched{f}) // the first is in memory, the second is not
			c.start(t, "reserve-batch 2")
			for range 20 {
				s.cold.settle(s.engine)
				c.loop.Refill()
				for x := c.loop.Next(s.now); x != nil; x = c.loop.Next(s.now) {
					if x.Resume(s.now, &connOf(x).out) == Done {
						return
					}
				}
			}
			t.Error("after 20 rounds it still waits")
		})
	}
}
