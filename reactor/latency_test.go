package reactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine"
)

// counted returns how many of a command have been counted.
func (ts *testServer) counted(op codec.Op) (answered, waited uint64) {
	y := ts.Latency()
	return y.Answered[op].Count(), y.Waited[op].Count()
}

// untilCounted waits for these counts: a client may have its reply before the
// command is counted.
func (ts *testServer) untilCounted(op codec.Op, answered, waited uint64) {
	ts.t.Helper()
	ts.until(fmt.Sprintf("%v: %d are answered at once and %d after a wait", op, answered, waited), func() bool {
		a, w := ts.counted(op)
		return a == answered && w == waited
	})
}

func TestEveryCommandThatIsAnsweredIsTimedOnce(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c, worker := ts.dial(), ts.dial()
		c.send("put 0 0 900 1\r\na\r\nput 0 0 900 1\r\nb\r\nuse x\r\nnonsense\r\nput 0 0 9 9999999\r\n" + strings.Repeat("x", 9999999) + "\r\n")
		c.expect("INSERTED 1\r\nINSERTED 2\r\nUSING x\r\nUNKNOWN_COMMAND\r\nJOB_TOO_BIG\r\n")
		before := ts.sum().BytesIn
		c.send("put 0 0 9 4\r\nab")
		ts.until("half a body has come", func() bool { return ts.sum().BytesIn > before })
		c.do("cd\r\n", "INSERTED 3\r\n")

		worker.do("reserve-with-timeout 0\r\nreserve-with-timeout 0\r\nreserve-with-timeout 0\r\n",
			reserved(1, "a")+reserved(2, "b")+"TIMED_OUT\r\n")
		worker.send("reserve\r\nlist-tube-used\r\n")
		ts.untilWaiting(1)
		c.do("use default\r\nput 0 0 900 1\r\nc\r\n", "USING default\r\nINSERTED 4\r\n")
		worker.expect(reserved(4, "c") + "USING default\r\n")
		worker.send("reserve-with-timeout 900\r\n")
		ts.untilWaiting(1)
		worker.closeWrite()
		worker.expect("TIMED_OUT\r\n")
		worker.expectEOF()
		c.send("quit\r\n")
		c.expectEOF()

		ts.untilCounted(codec.OpPut, 5, 0)
		ts.untilCounted(codec.OpUse, 2, 0)
		ts.untilCounted(codec.OpReserve, 0, 1)
		ts.untilCounted(codec.OpReserveWithTimeout, 3, 1)
		ts.untilCounted(codec.OpListTubeUsed, 1, 0)
		ts.untilCounted(codec.OpQuit, 0, 0)
	})
}

func TestTheTimeOfACommandIncludesItsCommit(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	j := new(fakeJournal)
	ts := serveJournaled(t, "tcp", 1, hooks{}, j)
	a, b := ts.dial(), ts.dial()
	a.send("put 0 0 9 1\r\na\r\nput 0 0 9 1\r\nb\r\n")
	j.untilRecorded(ts, 2)
	b.do("list-tube-used\r\n", "USING default\r\n")
	if n, _ := ts.counted(codec.OpPut); n > 0 {
		t.Errorf("%d are counted before they are committed", n)
	}
	time.Sleep(delay)
	j.commit(ts, 2)
	a.expect("INSERTED 1\r\nINSERTED 2\r\n")
	ts.untilCounted(codec.OpPut, 2, 0)
	if sum := ts.Latency().Answered[codec.OpPut].Sum; sum < 2*delay {
		t.Errorf("the sum of two commands is %v, and each was held for %v", sum, delay)
	}
}

func TestAKickThatYieldsIsTimedAsAWhole(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	c := ts.dial()
	manyDelayed(c, 30_000)
	c.do("kick 30000\r\n", "KICKED 30000\r\n")
	ts.untilCounted(codec.OpKick, 1, 0)
}

// A reserve-batch with a long reply is put together in turns, and did not wait for a job.
func TestABatchThatYieldsIsTimedFromItsBeginning(t *testing.T) {
	t.Parallel()
	const old = 1000 * time.Hour
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) {
		now := c.Now
		c.Now = func() engine.Time { return now() + engine.Time(old) }
		c.Extensions = true
	})
	c := ts.dial()
	const n, size = 20, 10_000
	body := strings.Repeat("x", size)
	want := fmt.Sprintf("RESERVED_BATCH %d\r\n", n)
	for range n {
		want += reserved(c.put(body), body)
	}
	c.do(fmt.Sprintf("reserve-batch %d 0\r\n", n), want)
	ts.untilCounted(codec.OpReserveBatch, 0, 1)
	if sum := ts.Latency().Waited[codec.OpReserveBatch].Sum; sum >= old {
		t.Errorf("it took %v", sum)
	}
}
