package reactor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// checkOwed makes sure that each loop knows what its clients are owed who do not read.
func (ts *testServer) checkOwed() {
	ts.t.Helper()
	ts.onLoops(func(l *loop) {
		most, stalled := 0, int64(0)
		for _, c := range l.conns {
			if c.Stalled() {
				most = max(most, c.Owed())
				stalled++
			}
		}
		largest, bytes := l.streams.Largest()
		if counted := l.streams.Counts.Stalled.Load(); counted != stalled || (largest != nil) != (stalled > 0) {
			ts.t.Errorf("%d are stalled, and %d are counted; the largest is %p", stalled, counted, largest)
		}
		if published := l.streams.MostOwed.Load(); bytes != most || published != int64(most) {
			ts.t.Errorf("the most that one is owed is %d, known %d, and published %d", most, bytes, published)
		}
		if largest != nil && (!largest.Stalled() || largest.Owed() != most) {
			ts.t.Errorf("the largest is owed %d, the most is %d", largest.Owed(), most)
		}
	})
}

func TestWhoIsOwedMostIsClosedWhenAllTogetherAreOwedTooMuch(t *testing.T) {
	t.Parallel()
	serverNetworks(t, func(t *testing.T, network string) {
		const peeks = 20
		crowd := 30
		if few {
			crowd = 10
		}
		limit := int64(crowd) * (maxJob / 8)
		ts := serveConfig(t, network, hooks{}, nil, func(c *Config) { c.MaxOutputTotal, c.Loops = limit, 2 })
		other := ts.dial()
		found := func(n int) (peek string, reply int64) {
			id := other.put(strings.Repeat("x", n))
			return fmt.Sprintf("peek %d\r\n", id), int64(len(fmt.Sprintf("FOUND %d %d\r\n\r\n", id, n)) + n)
		}
		large, reply := found(maxJob)
		var clients []*client
		var replies []int64 // in bytes, of each client
		for i := range crowd {
			// The system takes as much as it likes, so a part of the last reply that it takes is left. The first
			// replies differ, so that not all parts are small.
			first, n := found((i + 1) * maxJob / crowd)
			c := ts.dial()
			clients, replies = append(clients, c), append(replies, n+peeks*reply)
			c.send(first + strings.Repeat(large, peeks))
			other.do("use a\r\n", "USING a\r\n")
		}
		for range 20 {
			other.do("use b\r\n", "USING b\r\n")
		}
		total := func() (n int64) {
			for _, l := range ts.Stats().Loops {
				n += l.PendingOutput
			}
			return n
		}
		ts.until("they are not owed too much", func() bool {
			st := ts.sum()
			return total() <= limit && st.OverTotal > 0 && st.Stalled+int64(st.OverTotal) == int64(crowd)
		})
		ts.checkOwed()
		if log := ts.log.String(); !strings.Contains(log, "and it is owed most") {
			t.Errorf("the log:\n%s", log)
		}
		// Who was not closed gets all replies. Each has its own time to take them: they are many for a busy machine.
		served := 0
		for i, c := range clients {
			_ = c.SetDeadline(time.Now().Add(testTimeout))
			n, err := io.CopyN(io.Discard, c.r, replies[i])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a client that is not closed got %d bytes: %v", n, err)
			}
			if n == replies[i] {
				served++
			}
		}
		if want := crowd - int(ts.sum().OverTotal); served != want {
			t.Errorf("%d clients got all replies, want %d", served, want)
		}
	})
}

// Of clients on two loops, the one with the big reply goes, on whichever it is.
func TestTheLargestOfAllLoopsIsClosed(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.MaxOutputTotal, c.Loops, c.MaxOutput = limit, 2, 1<<30 })
	other := ts.dial()
	small := other.put(strings.Repeat("x", 100_000))
	flood := func(first, id uint64) {
		c := ts.dial()
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		c.send(fmt.Sprintf("peek %d\r\n", first) + strings.Repeat(fmt.Sprintf("peek %d\r\n", id), 200))
	}
	const few, many = 4, 20
	for range few {
		flood(small, small)
	}
	ts.until("they take no more", func() bool { return ts.sum().Stalled == few })
	if n := ts.sum().OverTotal; n != 0 {
		t.Fatalf("%d small ones were closed", n)
	}
	big := other.put(strings.Repeat("x", maxJob))
	for i := range many { // what the system leaves of their last replies differs
		flood(other.put(strings.Repeat("x", (i+1)*maxJob/many)), big)
	}
	ts.until("they are not owed too much", func() bool {
		st := ts.sum()
		return st.OverTotal > 0 && st.Stalled+int64(st.OverTotal) == few+many && st.PendingOutput <= limit
	})
	ts.checkOwed()
}

func TestNobodyIsClosedForTheTimeThatTheDiskTakes(t *testing.T) {
	t.Parallel()
	j := new(fakeJournal)
	ts := serveConfig(t, "tcp", hooks{}, j, func(c *Config) { c.MaxOutputTotal = 1 })
	c := ts.dial()
	c.send("put 0 0 60 1\r\nx\r\n")
	ts.until("its reply waits", func() bool { return ts.sum().PendingOutput > 1 })
	j.done.Store(j.recorded.Load())
	ts.Committed()
	c.expect("INSERTED 1\r\n")
	if n := ts.sum().OverTotal; n != 0 {
		t.Errorf("%d were closed", n)
	}
}
