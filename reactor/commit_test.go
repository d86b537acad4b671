package reactor

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/reactor/internal/stream"
)

// fakeJournal counts records and commits when it is told to.
type fakeJournal struct {
	recorded, done atomic.Uint64
	flushes        atomic.Int64
	atOnce         atomic.Bool  // commit what is recorded whenever Flush is called
	committed      func()       // is called by Flush; may be nil
	engines        atomic.Int64 // that have replaced others
}

// A crampedJournal takes no new jobs until it has room.
type crampedJournal struct {
	*fakeJournal
	room atomic.Bool
}

func (j *crampedJournal) Put(r *journal.Record) (journal.Ticket, error) {
	if !j.room.Load() {
		return journal.Ticket{}, journal.ErrRoom
	}
	return j.fakeJournal.Put(r)
}

func (j *fakeJournal) next() journal.Pos { return journal.Pos(j.recorded.Add(1)) }

func (j *fakeJournal) Put(*journal.Record) (journal.Ticket, error) {
	return journal.Ticket{Pos: j.next(), Segment: 1}, nil
}

func (j *fakeJournal) Move(*journal.Record, journal.Former) (journal.Ticket, error) {
	return journal.Ticket{Pos: j.next(), Segment: 2}, nil
}

func (j *fakeJournal) Replace(*journal.Record, journal.Former) (journal.Ticket, error) {
	return journal.Ticket{Pos: j.next(), Segment: 3}, nil
}

func (j *fakeJournal) Update(*journal.Record) (journal.Pos, error) { return j.next(), nil }

func (j *fakeJournal) Delete(uint64, journal.Former) (journal.Pos, error) { return j.next(), nil }

func (j *fakeJournal) Set(*journal.Setting) (journal.Pos, error) { return j.next(), nil }

func (j *fakeJournal) Committed() journal.Pos { return journal.Pos(j.done.Load()) }

func (j *fakeJournal) Counters() (c journal.Counters) { return c }

func (j *fakeJournal) Flush() {
	j.flushes.Add(1)
	if j.atOnce.Load() {
		// Another loop may have committed more meanwhile.
		for n, done := j.recorded.Load(), j.done.Load(); done < n && !j.done.CompareAndSwap(done, n); done = j.done.Load() {
		}
	}
	if j.committed != nil {
		j.committed()
	}
}

// commit commits the first n records.
func (j *fakeJournal) commit(ts *testServer, n uint64) {
	j.done.Store(n)
	ts.Committed()
}

func (j *fakeJournal) untilRecorded(ts *testServer, n uint64) {
	ts.t.Helper()
	ts.until(fmt.Sprintf("%d records are written", n), func() bool { return j.recorded.Load() == n })
}

func TestRepliesWaitForTheCommitThatTheyDependOn(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		for _, loops := range []int{1, 3} {
			t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
				j := new(fakeJournal)
				ts := serveJournaled(t, network, loops, hooks{}, j)
				a, b, c := ts.dial(), ts.dial(), ts.dial()
				a.send("put 0 0 9 1\r\na\r\nlist-tube-used\r\nput 0 0 9 1\r\nb\r\n")
				j.untilRecorded(ts, 2)
				ts.onLoops(func(*loop) {}) // ids that a's loop has not used are given back
				b.send("put 0 0 9 1\r\nc\r\n")
				j.untilRecorded(ts, 3)
				// Who changed nothing is not held back.
				c.do("list-tube-used\r\n", "USING default\r\n")
				if p := a.pending() + b.pending(); p != "" {
					t.Fatalf("%q was sent before the commit", p)
				}
				j.commit(ts, 1)
				c.do("list-tube-used\r\n", "USING default\r\n")
				if p := a.pending() + b.pending(); p != "" {
					t.Fatalf("%q was sent before all that it depends on was committed", p)
				}
				j.commit(ts, 2)
				a.expect("INSERTED 1\r\nUSING default\r\nINSERTED 2\r\n")
				if p := b.pending(); p != "" {
					t.Fatalf("%q was sent before the commit", p)
				}
				j.commit(ts, 3)
				b.expect("INSERTED 3\r\n")
			})
		}
	})
}

func TestAWaitingWorkerGetsNoJobThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		ts := serveJournaled(t, network, 2, hooks{}, j)
		worker, producer := ts.dial(), ts.dial()
		records := uint64(1)
		if network == "trunk" {
			records = 2 // the reservation is one
		}
		worker.send("reserve\r\n")
		ts.untilWaiting(1)
		producer.send("put 0 0 900 1\r\na\r\n")
		j.untilRecorded(ts, records)
		ts.untilWaiting(0)
		if p := worker.pending() + producer.pending(); p != "" {
			t.Fatalf("%q was sent before the commit", p)
		}
		j.commit(ts, records)
		producer.expect("INSERTED 1\r\n")
		worker.expect("RESERVED 1 1\r\na\r\n")
		worker.send("delete 1\r\nlist-tube-used\r\n")
		j.untilRecorded(ts, records+1)
		if p := worker.pending(); p != "" {
			t.Fatalf("%q was sent before the commit", p)
		}
		j.commit(ts, records+1)
		worker.expect("DELETED\r\nUSING default\r\n")
	})
}

func TestHeldRepliesReachClientsThatHaveQuitOrHalfClosed(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		ts := serveJournaled(t, network, 1, hooks{}, j)
		a, b := ts.dial(), ts.dial()
		a.send("put 0 0 9 1\r\na\r\nquit\r\n")
		j.untilRecorded(ts, 1)
		b.send("put 0 0 9 1\r\nb\r\ndelete 1\r\n")
		b.closeWrite()
		j.untilRecorded(ts, 3)
		ts.until("the half-closed client is being ended", func() bool { return ts.sum().Ending > 0 })
		j.commit(ts, 3)
		a.expect("INSERTED 1\r\n")
		a.expectEOF()
		b.expect("INSERTED 2\r\nDELETED\r\n")
		b.expectEOF()
	})
}

// A put makes two rounds: one in which it is executed, and one with its commit.
func TestALoopThatCommitsDoesNotWakeItself(t *testing.T) {
	t.Parallel()
	const n = 100
	var m meter
	var server atomic.Pointer[Server]
	j := new(fakeJournal)
	j.atOnce.Store(true)
	j.committed = func() { server.Load().Committed() }
	ts := serveJournaled(t, "tcp", 1, m.hooks(), j)
	server.Store(ts.Server)
	c := ts.dial()
	for range n {
		c.put("x")
	}
	if rounds := m.rounds.Load(); rounds > 2*n+n/2 || j.flushes.Load() != n {
		t.Errorf("%d rounds and %d commits for %d puts", rounds, j.flushes.Load(), n)
	}
}

// While a client waits for a commit, what it sends on is kept and executed
// afterwards, in order and within the bound.
func TestPipelinedCommandsGoOnAfterEachCommit(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		const n = 30_000
		j := new(fakeJournal)
		j.atOnce.Store(true)
		ts := serveJournaled(t, network, 1, hooks{}, j)
		c := ts.dial()
		go io.WriteString(c, strings.Repeat("put 0 0 9 10\r\n0123456789\r\n", n))
		for id := 0; id < n; id += 1000 {
			c.expect(inserted(id+1, 1000))
		}
		if flushes := j.flushes.Load(); flushes > n/100 {
			t.Fatalf("%d commits for %d pipelined puts", flushes, n)
		}
		if in, _ := ts.peaks(); in > stream.KeepInput+2*stream.ReadSize {
			t.Fatalf("%d bytes of input were kept", in)
		}
	})
}

func TestWhenTheJournalFailsConnectionsEndWithoutAWord(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		j := new(fakeJournal)
		ts := serveJournaled(t, network, 1, hooks{}, j)
		a, b, c := ts.dial(), ts.dial(), ts.dial()
		c.do("list-tube-used\r\n", "USING default\r\n")
		a.send("put 0 0 9 1\r\na\r\ndelete 1\r\n")
		j.untilRecorded(ts, 2)
		ts.CommitFailed()
		a.expectEOF()
		b.send("put 0 0 9 1\r\na\r\n")
		b.expectEOF()
		c.do("list-tube-used\r\n", "USING default\r\n")
	})
}

// pending returns what has arrived and was not read yet.
func (c *client) pending() string {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
	defer c.SetReadDeadline(time.Now().Add(testTimeout))
	_, _ = c.r.Peek(1)
	p, _ := c.r.Peek(c.r.Buffered())
	return string(p)
}

// A client has taken a part of a reply, and waits for a job, when the log fails.
func TestAFailedCommitDoesNotCutIntoAReplyThatIsUnderWay(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveJournaled(t, "unix", 1, hooks{}, j)
	c, p := ts.dial(), ts.dial()
	const n = stream.HighWater - 1000 // more than a socket takes, less than is written before the batch's end
	body := strings.Repeat("x", n)
	p.send("use big\r\nput 0 0 9 " + fmt.Sprint(n) + "\r\n" + body + "\r\n")
	j.untilRecorded(ts, 1)
	j.commit(ts, 1)
	p.expect("USING big\r\nINSERTED 1\r\n")
	c.send("peek 1\r\nreserve\r\n")
	ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
	p.send("use default\r\nput 0 0 900 1\r\na\r\n")
	j.untilRecorded(ts, 2)
	ts.until("the job is given to it", func() bool { return ts.engine.Snapshot(0).Reserved == 1 })
	p.send("list-tube-used\r\n")
	ts.CommitFailed()
	p.expectEOF()
	c.expect(fmt.Sprintf("FOUND 1 %d\r\n%s\r\n", n, body))
	c.expectEOF()
}

// A fencedJournal tells by its barriers whether somebody else has taken over.
type fencedJournal struct{ *fakeJournal }

func (j fencedJournal) Barrier() journal.Pos { return j.next() }

func TestRepliesWaitForTheBarrierThatProvesThem(t *testing.T) {
	t.Parallel()
	j := fencedJournal{new(fakeJournal)}
	ts := serveConfig(t, "tcp", hooks{}, j.fakeJournal, func(c *Config) {
		c.Engine, c.Now = newJournaledEngine(t, j)
	})
	a, b := ts.dial(), ts.dial()
	// One barrier serves all replies of a batch, and what tells nothing needs none.
	a.send("peek 1\r\nreserve-with-timeout 0\r\nstats-tube none\r\n")
	j.untilRecorded(ts, 1)
	b.do("use x\r\nwatch x\r\n", "USING x\r\nWATCHING 2\r\n")
	if p := a.pending(); p != "" {
		t.Fatalf("%q was sent without a proof", p)
	}
	j.commit(ts, 1)
	a.expect("NOT_FOUND\r\nTIMED_OUT\r\nNOT_FOUND\r\n")
	// A put is its own proof, and that of what was told before it.
	a.send("peek 1\r\nput 0 0 900 1\r\na\r\n")
	j.untilRecorded(ts, 2)
	j.commit(ts, 2)
	a.expect("NOT_FOUND\r\nINSERTED 1\r\n")
	if n := j.recorded.Load(); n != 2 {
		t.Errorf("%d positions were asked for, want 2", n)
	}
	// One that has been replaced never says what it thinks.
	b.send("reserve\r\n")
	a.send("put 0 0 900 1\r\nb\r\n")
	ts.until("both wait", func() bool { return j.recorded.Load() == 4 })
	ts.CommitFailed()
	a.expectEOF()
	b.expectEOF()
}

// While a long command takes whole rounds of its loop, what is committed reaches the
// others' clients within a few.
func TestALongCommandKeepsNobodyWaitingForWhatIsCommitted(t *testing.T) {
	t.Parallel()
	const n, maxRounds = 100_000, 4
	j := new(fakeJournal)
	j.atOnce.Store(true)
	var flushing, waiting atomic.Bool
	var told atomic.Int64 // records at the time when nobody waited any more
	rounds := 0           // since the commit; belongs to the loop
	ts := serveConfig(t, "unix", hooks{round: func(l *loop) {
		if !flushing.Load() || told.Load() != 0 {
			return
		}
		switch k := &l.commits; {
		case rounds == 0 && j.recorded.Load() > n+n/10:
			waiting.Store(!k.waiting.Empty())
			j.done.Store(n + 1)
			rounds = 1
		case rounds > 0 && k.waiting.Empty():
			told.Store(int64(j.recorded.Load()))
		case rounds > 0:
			if rounds++; rounds > maxRounds {
				told.Store(-1)
			}
		}
	}}, j, func(c *Config) { c.Extensions = true })
	a, b := ts.dial(), ts.dial()
	go a.send(strings.Repeat("put 0 0 9 0\r\n\r\n", n))
	for i := 0; i < n; i += 1000 {
		a.expect(inserted(i+1, 1000))
	}
	j.atOnce.Store(false)
	b.send("use b\r\nput 0 0 9 0\r\n\r\n")
	j.untilRecorded(ts, n+1)
	flushing.Store(true)
	a.send("flush-tube default\r\n")
	b.expect(fmt.Sprintf("USING b\r\nINSERTED %d\r\n", n+1))
	j.untilRecorded(ts, 2*n+1)
	if !waiting.Load() {
		t.Fatal("nobody waited for the commit")
	}
	if got := told.Load(); got < 0 || got >= 2*n+1 {
		t.Errorf("who waited for a commit was not told within %d rounds, or after the command: %d", maxRounds, got)
	}
	j.atOnce.Store(true)
	j.commit(ts, 2*n+1)
	a.expect(fmt.Sprintf("FLUSHED %d\r\n", n))
}
