package reactor

import (
	"fmt"
	"slices"
	"strings"
	"sync"
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
		ts.onLoops(func(*loop) {})          // they are through with what they were doing
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

// finishes reports whether a server that is to be held waits for commands that have begun.
func (ts *testServer) finishes() bool {
	var n atomic.Int64
	ts.onLoops(func(l *loop) {
		if l.finishing {
			n.Add(1)
		}
	})
	return n.Load() == int64(len(ts.loops))
}

// begins reports whether so many clients wait in commands of which a part was executed.
func (ts *testServer) begins(n int64) bool {
	var begun atomic.Int64
	ts.onLoops(func(l *loop) {
		for _, c := range l.conns {
			if c.phase == waiting && c.session.Begun() {
				begun.Add(1)
			}
		}
	})
	return begun.Load() == n
}

// untilHeld waits until a Hold that is under way has ended.
func (ts *testServer) untilHeld() {
	ts.t.Helper()
	ts.until("the server is held", ts.held.Load)
	if ts.finishes() || !ts.begins(0) {
		ts.t.Error("a command has begun and not ended")
	}
}

// longTubes is how many tubes watchLong has a client watch: their list takes several turns, and fits into any socket.
const longTubes = 500

func (c *client) watchLong() {
	c.t.Helper()
	var lines, replies strings.Builder
	for i := range longTubes {
		fmt.Fprintf(&lines, "watch %s%d\r\n", strings.Repeat("t", 150), i)
		fmt.Fprintf(&replies, "WATCHING %d\r\n", i+2)
	}
	c.do(lines.String(), replies.String())
}

// A long list whose parts wait for commits is ended before its server is held, and nothing behind it begins.
func TestAListThatWaitsForACommitEndsBeforeTheServerIsHeld(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		j.atOnce.Store(true)
		ts := serveConfig(t, network, hooks{finish: 2 * testTimeout}, j, func(c *Config) { c.Loops, c.Extensions = 2, true })
		asks := ts.dial()
		asks.watchLong()
		j.atOnce.Store(false)
		asks.send("put 0 0 9 1\r\nx\r\nlist-tubes\r\nlist-tube-used\r\n")
		ts.until("the list has begun", func() bool { return ts.begins(1) })
		go ts.Hold(true)
		ts.until("the list is waited for", ts.finishes)
		j.atOnce.Store(true)
		j.commit(ts, j.recorded.Load())
		asks.expect("INSERTED 1\r\n")
		if list := asks.data(); strings.Count(list, "\n- ttt") != longTubes {
			t.Errorf("got a list of %d bytes", len(list))
		}
		ts.untilHeld()
		if p := asks.pending(); p != "" {
			t.Errorf("a held server has answered %q", p)
		}
		ts.Hold(true) // again: it stays as it is
		ts.Hold(false)
		asks.expect("USING default\r\n")
	})
}

// A command that asks all loops ends, although one of them is held later than the others.
func TestACommandOfAllLoopsEndsBeforeTheServerIsHeld(t *testing.T) {
	t.Parallel()
	ts := serveConfig(t, "tcp", hooks{finish: 2 * testTimeout}, nil, func(c *Config) { c.Loops, c.Extensions = 2, true })
	first, second := ts.loops[0], ts.loops[1]
	asked := make(chan bool)
	ask := func(l *loop, what func() bool) bool {
		l.call(func(*loop) { asked <- what() })
		return <-asked
	}
	hasClient := func(l *loop) bool { return ask(l, func() bool { return len(l.conns) > 0 }) }
	var clients []*client
	for !hasClient(first) || !hasClient(second) {
		c := ts.dial()
		c.do("use a\r\n", "USING a\r\n")
		clients = append(clients, c)
	}
	hangs, late := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(late) })
	defer release()
	second.call(func(*loop) {
		close(hangs)
		<-late
	})
	<-hangs
	for _, c := range clients {
		c.send("list-connections\r\n")
	}
	ts.until("one has begun", func() bool {
		return ask(first, func() bool { return slices.ContainsFunc(first.conns, (*conn).inCommand) })
	})
	go ts.Hold(true)
	ts.until("the first loop is being held", func() bool { return ask(first, func() bool { return first.finishing }) })
	release()
	ts.untilHeld()
	ts.Hold(false)
	for _, c := range clients {
		if list := c.data(); strings.Count(list, "  tube: a\n") != len(clients) {
			t.Errorf("got %q", list)
		}
	}
}

// A client that does not read the rest of its list keeps nobody waiting.
func TestAServerThatIsHeldDoesNotWaitForClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts := serveConfig(t, network, hooks{finish: 2 * testTimeout}, nil, func(c *Config) { c.Loops = 1 })
		asks := ts.dial()
		asks.watchLong()
		for !ts.begins(1) || ts.sum().Stalled == 0 {
			if ts.sum().Stalled == 0 {
				asks.send("list-tubes-watched\r\n")
			} else { // in the middle of replies, but not in that of a command
				asks.data()
			}
		}
		go ts.Hold(true)
		ts.until("the server is held", ts.held.Load)
		ts.Hold(false)
	})
}
