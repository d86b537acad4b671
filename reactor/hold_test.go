package reactor

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"trellis/engine"
)

// A held server changes nothing in the engine, whatever its clients end, whatever is due, and whoever
// looks: what it records behind a commit would not be committed.
func TestWhatEndsWhileTheServerIsHeldEndsAfterwards(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		j.atOnce.Store(true)
		var ahead atomic.Int64
		var clock func() engine.Time
		ts := serveConfig(t, network, hooks{}, j, func(c *Config) {
			now := c.Now
			clock = func() engine.Time { return now() + engine.Time(ahead.Load()) }
			c.Loops, c.Now, c.Extensions = 2, clock, true
		})
		worker, waits, gone, half := ts.dial(), ts.dial(), ts.dial(), ts.dial()
		worker.do("set-dlq default 1 dead\r\n", "DLQ_SET\r\n")
		id := worker.put("x")
		worker.do("reserve\r\n", reserved(id, "x"))
		worker.do(fmt.Sprintf("bury %d 0\r\n", id), "BURIED\r\n")
		worker.do("kick 1\r\n", "KICKED 1\r\n")
		worker.do("reserve\r\n", reserved(id, "x"))
		waits.do("watch a\r\nignore default\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		waits.send("reserve\r\n")
		ts.untilSeenWaiting(1)
		gone.do("use g\r\n", "USING g\r\n")
		half.do("use h\r\n", "USING h\r\n")
		read := ts.sum().BytesIn
		half.send("put 0 0 9 3\r\na")
		gone.send("put 0 0 9 3\r\na")
		ts.untilRead(read + 28)
		ts.Hold(true)
		recorded := j.recorded.Load()
		open := ts.sum().Connections

		waits.closeWrite()
		half.closeWrite()
		if network == "unix" {
			gone.Close()
		} else {
			gone.reset()
		}
		ts.until("two are being ended, and one has gone", func() bool {
			n := ts.sum()
			return n.Ending == 2 && n.Connections == open-1 || network == "unix" && n.Ending == 3
		})
		ahead.Store(int64(3 * time.Minute)) // the time to run of the worker's job is over
		ts.Hold(true)                       // a loop is through with what it was doing
		n := ts.engine.Snapshot(clock())
		if n.Reserved != 1 || n.Buried != 0 || n.Waiting != 1 || n.Connections != 4 {
			t.Errorf("%d jobs are reserved, %d buried, %d clients wait, of %d", n.Reserved, n.Buried, n.Waiting, n.Connections)
		}
		if now := j.recorded.Load(); now != recorded {
			t.Errorf("%d records were made", now-recorded)
		}
		if p := waits.pending() + half.pending(); p != "" {
			t.Errorf("%q was sent", p)
		}

		ts.Hold(false)
		waits.expect("TIMED_OUT\r\n")
		waits.expectEOF()
		half.expectEOF()
		ts.until("the sessions are closed, and the time to run has ended", func() bool {
			n := ts.engine.Snapshot(clock())
			return n.Connections == 1 && n.Waiting == 0 && n.Reserved == 0 && n.Buried == 1
		})
	})
}

// untilSeenWaiting is untilWaiting without a client that asks, whose connection would still be there
// for a while.
func (ts *testServer) untilSeenWaiting(n int64) {
	ts.t.Helper()
	ts.until(fmt.Sprintf("%d clients wait", n), func() bool { return ts.engine.Snapshot(0).Waiting == n })
}
