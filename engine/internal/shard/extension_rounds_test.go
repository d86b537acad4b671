package shard

import (
	"fmt"
	"strings"
	"testing"

	"trellis/engine/internal/reply"
)

// What a command does to all jobs of a tube is done in rounds that others share, and to
// the end.
func TestCommandsOverManyJobsKeepToTheirRounds(t *testing.T) {
	n, some := 2*roundBudget+10, roundBudget+1000
	if proof {
		n, some = 3*roundBudget+10, 8000
	}
	bury := func(t *testing.T, c *simConn) {
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 1\r\nx\r\nBURIED\r\n", i+1, i+1), "put 0 0 9 1\r\nx\r\nreserve\r\nbury %d 0\r\n", i+1)
		}
	}
	put := func(t *testing.T, c *simConn) { c.putMany(t, 1, n, "put 0 0 9 1\r\nx\r\n") }
	hold := func(t *testing.T, c *simConn) {
		put(t, c)
		for i := range n {
			c.expect(t, fmt.Sprintf("RESERVED %d 1\r\nx\r\n", i+1), "reserve\r\n")
		}
	}
	putKeyed := func(t *testing.T, c *simConn) {
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put 0 0 9 0 idp:k%d con:k%d\r\n\r\n", i, i%100)
		}
	}
	putShuffled := func(t *testing.T, c *simConn) { // so that the groups of jobs with one key are heaps
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put %d 0 9 0 con:k%d\r\n\r\n", i*7919%n, i%100)
		}
	}
	buryKeyed := func(t *testing.T, c *simConn) {
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\nBURIED\r\n", i+1, i+1), "put 0 0 9 0 idp:k%d con:k%d\r\n\r\nreserve\r\nbury %d 0\r\n", i, i%100, i+1)
		}
	}
	leaveTombstones := func(t *testing.T, c *simConn) {
		for i := range n {
			c.expect(t, fmt.Sprintf("INSERTED %d\r\nDELETED\r\n", i+1), "put 0 0 9 0 idp:k%d:1000\r\n\r\ndelete %d\r\n", i, i+1)
		}
	}
	for _, c := range []struct {
		command, reply string
		prepare        func(*testing.T, *simConn)
		ready          int // jobs, afterwards
		steps          int // that each job takes at least; 0 when that is not the question
	}{
		{"flush-tube default", fmt.Sprintf("FLUSHED %d\r\n", n), put, 0, 0},
		{"flush-tube default", fmt.Sprintf("FLUSHED %d\r\n", n), bury, 0, 0},
		{"flush-tube default", fmt.Sprintf("FLUSHED %d\r\n", n), hold, 0, 0},
		{"flush-tube default", fmt.Sprintf("FLUSHED %d\r\n", n), putKeyed, 0, keyedCost},
		{"flush-tube default", "FLUSHED 0\r\n", leaveTombstones, 0, keyedCost},
		{"kick-tube default 99999", fmt.Sprintf("KICKED %d\r\n", n), bury, n, 0},
		{"kick-tube default 99999", fmt.Sprintf("KICKED %d\r\n", n), buryKeyed, n, keyedCost},
		{"delete-tube-jobs default ready 99999", fmt.Sprintf("DELETED %d\r\n", n), put, 0, 0},
		{"delete-tube-jobs default ready 99999", fmt.Sprintf("DELETED %d\r\n", n), putKeyed, 0, keyedCost},
		{fmt.Sprintf("delete-tube-jobs default ready %d", some), fmt.Sprintf("DELETED %d\r\n", some), put, n - some, 0},
		{"delete-tube-jobs default reserved 99999", fmt.Sprintf("DELETED %d\r\n", n), hold, 0, 0},
		{fmt.Sprintf("delete-tube-jobs default reserved %d", n-2), fmt.Sprintf("DELETED %d\r\n", n-2), hold, 0, 3},
		{"move-tube default ready other 99999", fmt.Sprintf("MOVED %d\r\n", n), put, n, 2},
		{"move-tube default buried other 99999", fmt.Sprintf("MOVED %d\r\n", n), bury, 0, 2},
		{"move-tube default ready other 99999", fmt.Sprintf("MOVED %d\r\n", n), putKeyed, n, keyedMoveCost},
		{"move-tube default ready other 99999", fmt.Sprintf("MOVED %d\r\n", n), putShuffled, n, keyedMoveCost},
		{"flush-tube default", fmt.Sprintf("FLUSHED %d\r\n", n), putShuffled, 0, keyedCost},
		{"touch-all", fmt.Sprintf("TOUCHED_ALL %d\r\n", n), hold, 0, 0},
	} {
		t.Run(strings.ReplaceAll(c.command, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := newSim(100, 1)
			l := slow(t, s)
			client := s.open()
			c.prepare(t, client)
			l.loop.Refill()
			if client.start(t, "%s", c.command) != Wait {
				t.Fatalf("all is done at once: %q", client.took())
			}
			rounds := l.rounds()
			if l.most > roundBudget+2*scanSlice {
				t.Errorf("a round took %d steps; its budget is %d", l.most, roundBudget)
			}
			if least := n * c.steps / (roundBudget + 2*scanSlice); rounds < least {
				t.Errorf("it took %d rounds, want at least %d", rounds, least)
			}
			if got := client.took(); got != c.reply {
				t.Errorf("%q, want %q", got, c.reply)
			}
			if got := s.engine.Snapshot(s.now); got.Ready != c.ready {
				t.Errorf("%d jobs are ready, want %d", got.Ready, c.ready)
			}
		})
	}
}

// To find the first 10,000 jobs is more work than to look at them all, and all of it is
// counted.
func TestALongListKeepsToItsRounds(t *testing.T) {
	const n = 30_000
	s := newSim(100, 1)
	l := slow(t, s)
	c := s.open()
	c.putMany(t, 1, n, "put 0 0 9 0\r\n\r\n") // each is met before those that come first
	l.loop.Refill()
	if c.start(t, "list-jobs default ready 10000") != Wait {
		t.Fatal("the list comes at once")
	}
	rounds := l.rounds()
	// How long the list is going to be is counted in one go.
	if most := roundBudget + scanSlice + 10_000/4; l.most > most || rounds < n/roundBudget {
		t.Errorf("%d rounds of up to %d steps, want at least %d of at most %d", rounds, l.most, n/roundBudget, most)
	}
	if got := strings.Count(c.took(), "- id: "); got != 10_000 {
		t.Errorf("the list has %d jobs", got)
	}
}

// A list of the longest kind is in order and complete, page by page, while its tube goes
// on living.
func TestPagesOfAListShowEachJobThatStaysOnce(t *testing.T) {
	const n = 25_000
	for _, state := range []string{"ready", "delayed", "buried"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := newSim(100, 1)
			l := slow(t, s)
			c, other := s.open(), s.open()
			delay := map[string]int{"delayed": 1000}[state]
			for i := range n {
				c.expect(t, fmt.Sprintf("INSERTED %d\r\n", i+1), "put %d %d 9 0\r\n\r\n", i%7, delay+delay*(i%13))
			}
			if state == "buried" {
				for range n {
					l.loop.Refill()
					c.start(t, "reserve")
					id := strings.Fields(c.took())[1]
					c.expect(t, "BURIED\r\n", "bury %s 0\r\n", id)
				}
			}
			seen := map[string]int{}
			after, gone := "0", 0
			for pages := 0; ; pages++ {
				l.loop.Refill()
				if c.start(t, "list-jobs default %s 10000 %s", state, after) == Wait {
					for again := true; again; {
						again = l.round()
						if gone++; gone%3 == 0 { // the head of the queue goes meanwhile
							other.start(t, "peek-%s", state)
							if f := strings.Fields(other.took()); f[0] == "FOUND" {
								other.start(t, "delete %s", f[1])
								other.took()
								seen[f[1]] += 100
							}
						}
					}
				}
				page := c.took()
				ids := 0
				for _, line := range strings.Split(page, "\n") {
					if id, ok := strings.CutPrefix(line, "- id: "); ok {
						seen[id]++
						after = id
						ids++
					}
				}
				if ids == 0 {
					break
				}
				if pages > 10 {
					t.Fatal("the list does not end")
				}
			}
			for i := range n {
				if got := seen[fmt.Sprint(i+1)]; got != 1 && got < 100 {
					t.Fatalf("job %d was shown %d times", i+1, got)
				}
			}
		})
	}
}

// To put all that is found into order at once would keep others from the shard.
func TestReservedJobsThatAreToBeDeletedAreSortedInSlices(t *testing.T) {
	const n, most = 3 * scanSlice, 3*scanSlice - 10
	s := newSim(100, 1)
	c := s.open()
	for i := range n {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\n", i+1, i+1), "put 0 0 9 0\r\n\r\nreserve\r\n")
	}
	sh := s.engine.defaultTube.shard
	var b Bulk
	b.beginDeletion(sh, DefaultTube, remove, most)
	d := new(deletionByID)
	unsorted := func() int {
		if d.survey == nil {
			return 0
		}
		return d.survey.count
	}
	l := s.loops[0]
	for more := true; more; {
		before := unsorted()
		sh.lock(l.by(), s.now)
		b.end = l.Left() - scanSlice
		var err error
		if more, err = d.next(&b, new(reply.Output)); err != nil {
			t.Fatal(err)
		}
		sh.unlock(l.by())
		if sorted := before - unsorted(); sorted > sortSlice {
			t.Errorf("%d jobs were put into order under one lock", sorted)
		}
	}
	if b.done != most {
		t.Errorf("%d jobs were deleted, not %d", b.done, most)
	}
	for i := most; i < n; i++ {
		c.expect(t, "DELETED\r\n", "delete %d\r\n", i+1)
	}
}
