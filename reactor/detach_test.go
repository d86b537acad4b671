package reactor

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"trellis/binlog/journal"
	"trellis/engine"
)

// detach has a held server go on without its engine, and returns another one that has the same jobs
// and whose time differs. The memory of the first is given back, so that whoever looks at it sees zeros.
func (ts *testServer) detach(j *fakeJournal) (*engine.Engine, func() engine.Time) {
	ts.t.Helper()
	old := ts.engine
	e := engine.New(engine.Config{
		MaxJobSize: maxJob, Journal: j,
		Info: engine.Info{Usage: func() (u, s time.Duration) { return 0, 0 }},
	})
	began, base := time.Now(), engine.Time(1000*time.Hour)*engine.Time(1+j.engines.Add(1))
	now := func() engine.Time { return base + engine.Time(time.Since(began)) + engine.Time(ts.ahead.Load()) }
	f := e.Follow(now())
	last := uint64(0)
	for from := uint64(1); from != 0; {
		var err error
		from, err = old.Walk(from, 100, func(r *journal.Record, _ *journal.Hold) error {
			last = r.ID
			_, err := f.Full(r, journal.Place{Segment: 1})
			return err
		})
		if err != nil {
			ts.t.Fatal(err)
		}
	}
	f.Serve(last+1000, now())
	if !ts.Detach() {
		ts.t.Fatal("a held server does not go on without its engine")
	}
	ts.engine = nil
	old.Discard()
	return e, now
}

// change gives a server another engine.
func (ts *testServer) change(j *fakeJournal) {
	ts.t.Helper()
	ts.Hold(true)
	j.commit(ts, j.recorded.Load())
	e, now := ts.detach(j)
	ts.attach(e, now, j)
}

func (ts *testServer) attach(e *engine.Engine, now func() engine.Time, j *fakeJournal) {
	ts.engine = e
	ts.Attach(e, now, j)
}

// putAhead puts the clock ahead. The loops look at it.
func (ts *testServer) putAhead(by time.Duration) {
	ts.ahead.Add(int64(by))
	ts.onLoops(func(*loop) {})
}

// serveChanging is a server whose engine can be changed, and whose clock can be put ahead.
func serveChanging(t *testing.T, network string, h hooks, change func(*Config)) (*testServer, *fakeJournal) {
	j := new(fakeJournal)
	j.atOnce.Store(true)
	ahead := new(atomic.Int64)
	ts := serveConfig(t, network, h, j, func(c *Config) {
		now := c.Now
		c.Now = func() engine.Time { return now() + engine.Time(ahead.Load()) }
		c.Loops, c.Extensions = 2, true
		change(c)
	})
	ts.ahead = ahead
	return ts, j
}

// What an engine records is compared with the time of its leadership: a loop takes it as it is, however long a look at
// the clock takes.
func TestLoopsHaveTheTimeOfAnotherEngine(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	ts, j := serveChanging(t, "unix", hooks{}, func(c *Config) {
		c.Now = func() engine.Time { return engine.Time(clock.Load()) }
	})
	ts.Hold(true)
	j.commit(ts, j.recorded.Load())
	e, _ := ts.detach(j)
	const its = engine.Time(time.Hour)
	looks := 0
	ts.attach(e, func() engine.Time {
		if looks++; looks == 1 {
			clock.Add(int64(time.Second))
		}
		now := its + engine.Time(clock.Load())
		clock.Add(int64(time.Second))
		return now
	}, j)
	ts.onLoops(func(l *loop) {
		if l.offset != its {
			t.Errorf("a loop's engine is %v ahead of it, want %v", time.Duration(l.offset), time.Duration(its))
		}
	})
}

// Who holds no job does not notice that the engine is another one, whatever it is about.
func TestClientsGoOnWithAnotherEngine(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, j := serveChanging(t, network, hooks{}, func(*Config) {})
		big := strings.Repeat("b", 100_000)
		add := func(send, expect string) *client {
			c := ts.dial()
			c.do("list-tube-used\r\n", "USING default\r\n")
			c.send(send)
			c.expect(expect)
			return c
		}
		idle := add("use u\r\nwatch b\r\nwatch a\r\nignore default\r\n", "USING u\r\nWATCHING 2\r\nWATCHING 3\r\nWATCHING 2\r\n")
		waits := add("watch w\r\nignore default\r\nreserve\r\nlist-tube-used\r\nput 0 0 9 1\r\nx\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		batch := add("watch s\r\nignore default\r\nreserve-batch 3 1000\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		short := add("watch n\r\nignore default\r\nreserve-with-timeout 1000\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		soon := add("watch n\r\nignore default\r\nreserve-with-timeout 300\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		gone := add("watch n\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		read := ts.sum().BytesIn
		body := add("use half\r\nput 0 0 9 100000 idp:k\r\n"+big[:60_000], "USING half\r\n")
		tooBig := add(fmt.Sprintf("put 0 0 9 %d\r\n", maxJob+1)+big[:50], "")
		cut := add("list-tube-u", "")
		ts.untilSeenWaiting(5)
		ts.until("all that was sent has come", func() bool { return ts.sum().BytesIn >= read+60_000+100 })

		ts.Hold(true)
		before := ts.sum().BytesIn
		idle.send("list-tube-used\r\n")
		gone.closeWrite()
		cut.send("sed\r\n")
		ts.until("more has come", func() bool { return ts.sum().BytesIn >= before+21 && ts.sum().Ending == 1 })
		e, now := ts.detach(j)
		ts.putAhead(299 * time.Second)
		late := ts.dial()
		late.send("use l\r\n")
		body.send(big[60_000:70_000])
		if p := idle.pending() + gone.pending() + late.pending(); p != "" {
			t.Errorf("%q was sent by no engine", p)
		}
		ts.attach(e, now, j)

		late.expect("USING l\r\n")
		soon.expect("TIMED_OUT\r\n") // the alarm goes off in time, with nothing else to do
		gone.expect("TIMED_OUT\r\n")
		gone.expectEOF()
		idle.expect("USING u\r\n")
		idle.do("list-tubes-watched\r\n", "OK 12\r\n---\n- a\n- b\n\r\n")
		cut.expect("USING default\r\n")
		body.send(big[70_000:] + "\r\npeek-ready\r\n")
		var id uint64
		if _, err := fmt.Sscanf(body.line(), "INSERTED %d", &id); err != nil {
			t.Fatal(err)
		}
		body.expect(fmt.Sprintf("FOUND %d 100000\r\n%s\r\n", id, big))
		idle.do("use half\r\nput 0 0 9 1 idp:k\r\nx\r\n", fmt.Sprintf("USING half\r\nINSERTED %d READY\r\n", id))
		tooBig.send(strings.Repeat("b", maxJob+1-50) + "\r\nlist-tube-used\r\n")
		tooBig.expect("JOB_TOO_BIG\r\nUSING default\r\n")
		ts.untilSeenWaiting(3)
		ts.putAhead(300 * time.Second)
		idle.do("use s\r\n", "USING s\r\n")
		id = idle.put("s")
		batch.expect(fmt.Sprintf("RESERVED_BATCH 1\r\nRESERVED %d 1\r\ns\r\n", id))
		if p := short.pending(); p != "" {
			t.Errorf("%q was sent before the time is over", p)
		}
		ts.putAhead(401 * time.Second)
		idle.do("use w\r\n", "USING w\r\n")
		short.expect("TIMED_OUT\r\n")
		id = idle.put("w")
		waits.expect(reserved(id, "w") + "USING default\r\n")
		if got := waits.line(); !strings.HasPrefix(got, "INSERTED") {
			t.Errorf("got %q", got)
		}
	})
}

// Who has a job is reset, and the job is ready; a job that was handed over, and not told of, counts as
// not handed over.
func TestWhoHasAJobIsResetWithItsEngine(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, j := serveChanging(t, network, hooks{}, func(*Config) {})
		worker, waits, producer := ts.dial(), ts.dialOn(0), ts.dialOn(1)
		id := producer.put("x")
		worker.do("reserve\r\n", reserved(id, "x"))
		ts.change(j)
		worker.expectReset("who has a job")
		waits.do("reserve\r\n", reserved(id, "x"))
		waits.do(fmt.Sprintf("delete %d\r\n", id), "DELETED\r\n")
		waits.send("reserve\r\n")
		ts.untilSeenWaiting(1)

		// One loop is held before the other, and does not tell what that hands over.
		held := make(chan struct{})
		ts.loops[0].call(func(l *loop) { l.held = true; close(held) })
		<-held
		id = producer.put("y")
		if n := ts.engine.Snapshot(0).Reserved; n != 1 {
			t.Fatalf("%d jobs were handed over", n)
		}
		ts.change(j)
		waits.expect(reserved(id, "y"))
	})
}

// Nothing is asked of an engine that is gone for a client that has left before.
func TestWhoLeavesWhileAServerIsHeldHasLeftTheNextEngine(t *testing.T) {
	t.Parallel()
	ts, j := serveChanging(t, "tcp", hooks{}, func(*Config) {})
	stays, leaves := ts.dial(), ts.dial()
	id := stays.put("x")
	leaves.do("reserve\r\n", reserved(id, "x"))
	ts.Hold(true)
	leaves.reset()
	ts.until("it has left", func() bool { return ts.sum().Connections == 1 })
	j.commit(ts, j.recorded.Load())
	e, now := ts.detach(j)
	ts.attach(e, now, j)
	stays.do("reserve\r\n", reserved(id, "x"))
	if n := ts.sum().Panics; n > 0 {
		t.Errorf("%d commands have panicked", n)
	}
}

// Replies that were not taken are sent from copies, and whoever would need too large ones is reset.
func TestRepliesThatAreNotTakenOutliveTheEngine(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		const enough, n = 40, 3
		body := strings.Repeat("0123456789abcdef", maxJob/16)
		got := make([]byte, maxJob+100)
		for _, room := range []int64{0, 1} { // enough, and one byte
			ts, j := serveChanging(t, network, hooks{copied: room}, func(*Config) {})
			id := ts.dial().put(body)
			reply := fmt.Sprintf("FOUND %d %d\r\n%s\r\n", id, len(body), body)
			var slow []*client
			for range n {
				c := ts.dial()
				c.send(strings.Repeat(fmt.Sprintf("peek %d\r\n", id), enough))
				slow = append(slow, c)
			}
			ts.until("they are owed something", func() bool { return ts.sum().Stalled == n })
			ts.change(j)
			for i, c := range slow {
				var n int
				var err error
				for n = 0; n < enough && err == nil; n++ {
					c.allowRead()
					var k int
					if k, err = io.ReadFull(c.r, got[:len(reply)]); string(got[:k]) != reply[:k] {
						t.Errorf("client %d got something else, of %d bytes behind %d replies", i, k, n)
					}
				}
				if (err == nil) != (room == 0) {
					t.Errorf("client %d got %d replies of %d, with room %d for copies: %v", i, n, enough, room, err)
				}
			}
		}
	})
}

// What is not committed is told to nobody: an engine that is given up with that is not one whose
// clients may go on.
func TestWhoIsOwedWhatIsNotCommittedIsReset(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts, j := serveChanging(t, network, hooks{}, func(*Config) {})
		j.atOnce.Store(false)
		c, idle := ts.dial(), ts.dial()
		idle.do("use x\r\n", "USING x\r\n")
		c.send("put 0 0 9 1\r\na\r\n")
		j.untilRecorded(ts, 1)
		if ts.Detach() {
			t.Error("a server that is not held goes on without its engine")
		}
		ts.Hold(true)
		e, now := ts.detach(j)
		j.commit(ts, 1) // too late
		ts.attach(e, now, j)
		c.expectReset("who is owed what is not committed")
		idle.do("list-tube-used\r\n", "USING x\r\n")
	})
}

// Nothing refers to an engine that was detached: its memory may be anybody's.
func TestNothingOfAnEngineStays(t *testing.T) {
	t.Parallel()
	ts, j := serveChanging(t, "tcp", hooks{}, func(c *Config) { c.IdleTimeout = time.Hour })
	var clients []*client // or else the collector would close them
	add := func(send, expect string) *client {
		c := ts.dial()
		c.send(send)
		c.expect(expect)
		clients = append(clients, c)
		return c
	}
	big := strings.Repeat("b", maxJob)
	id := add("", "").put(big)
	add("use u\r\nwatch b\r\n", "USING u\r\nWATCHING 2\r\n")
	for range 2 {
		add("watch w\r\nignore default\r\nreserve\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
		add("watch w\r\nignore default\r\nreserve-with-timeout 1000\r\n", "WATCHING 2\r\nWATCHING 1\r\n")
	}
	add("put 0 0 9 100000\r\nxxx", "")
	add(strings.Repeat(fmt.Sprintf("peek %d\r\n", id), 40), "")
	// Before the last one reserves, or that would get the job.
	add(fmt.Sprintf("reserve-job %d\r\n", id), fmt.Sprintf("RESERVED %d %d\r\n", id, len(big)))
	add("kick 10\r\nlist-jobs default ready 10\r\nreserve\r\n", "")
	ts.untilSeenWaiting(5)
	ts.until("one is owed something", func() bool { return ts.sum().Stalled > 0 })
	w := weak.Make(ts.engine)
	ts.change(j)
	ts.until("nobody has the engine", func() bool {
		runtime.GC()
		return w.Value() == nil
	})
	runtime.KeepAlive(clients)
}
