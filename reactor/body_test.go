package reactor

import (
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// pinned is how many large bodies the engine keeps for replies. The server has one
// loop.
func (ts *testServer) pinned() (n int) {
	ts.onLoops(func(*loop) {
		shards := reflect.ValueOf(ts.engine).Elem().FieldByName("shards")
		for i := range shards.Len() {
			n += reflect.Indirect(shards.Index(i)).FieldByName("pins").Len()
		}
	})
	return n
}

func (ts *testServer) untilUnpinned() {
	ts.t.Helper()
	ts.until("no body is pinned", func() bool { return ts.pinned() == 0 })
}

// text is a body of n bytes that differ from those of other bodies and places.
func text(seed, n int) string {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return string(b)
}

func TestLargeBodiesArriveWholeHoweverSlowlyTheyAreTaken(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		c := ts.dial()
		sizes := []int{32<<10 - 1, 32 << 10, 65_535, 10, 100_000, 1, 300_000, maxJob}
		var send, want strings.Builder
		for i, n := range sizes {
			body := text(i, n)
			id := c.put(body)
			for range 1 + 1_000_000/(n+100_000) {
				fmt.Fprintf(&send, "peek %d\r\nlist-tube-used\r\n", id)
				fmt.Fprintf(&want, "FOUND %d %d\r\n%s\r\nUSING default\r\n", id, n, body)
			}
		}
		go io.WriteString(c, send.String())
		r := rand.New(rand.NewPCG(1, 2))
		got := make([]byte, 200_000)
		for rest := want.String(); rest != ""; {
			n, err := c.Read(got[:1+r.IntN(len(got))])
			if err != nil || !strings.HasPrefix(rest, string(got[:n])) {
				t.Fatalf("with %d bytes to come: %d that are not the next, or %v", len(rest), n, err)
			}
			rest = rest[n:]
		}
		ts.untilUnpinned()
	})
}

func TestABodyIsSentAfterItsJobIsDeleted(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, hooks{})
	c, other := ts.dial(), ts.dial()
	body := text(1, 900_000)
	c.put(body)
	c.send("peek 1\r\n")
	ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
	other.do("delete 1\r\n", "DELETED\r\n")
	for i := range 5 {
		other.put(text(2+i, 900_000))
	}
	if n := ts.pinned(); n != 1 {
		t.Errorf("%d bodies are pinned", n)
	}
	c.expect(fmt.Sprintf("FOUND 1 %d\r\n%s\r\n", len(body), body))
	ts.untilUnpinned()
}

func TestNoBodyStaysPinnedForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(ts *testServer, c *client){
		"closed": func(_ *testServer, c *client) { c.Close() },
		"half-closed and closed": func(ts *testServer, c *client) {
			c.closeWrite()
			ts.until("its end is noticed", func() bool { return ts.sum().Ending == 1 })
			c.Close()
		},
		"panic": func(_ *testServer, c *client) {
			c.expect(fmt.Sprintf("FOUND 1 %d\r\n", maxJob))
			_, _ = io.Copy(io.Discard, c.r)
		},
	} {
		t.Run(how, func(t *testing.T) {
			ts := serve(t, "unix", 1, panicky())
			c := ts.dial()
			c.put(text(1, maxJob))
			c.send("peek 1\r\npeek 1\r\nuse panic\r\n")
			ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
			end(ts, c)
			ts.until("it has gone", func() bool { return ts.sum().Connections == 0 })
			ts.untilUnpinned()
		})
	}
}

// The replies of the batch in which a command panics are not sent.
func TestAPanicBehindALargeBodyReleasesIt(t *testing.T) {
	t.Parallel()
	ts := serve(t, "unix", 1, panicky())
	c := ts.dial()
	c.put(text(1, 100_000))
	c.send("peek 1\r\nuse panic\r\n")
	ts.until("it has gone", func() bool { return ts.sum().Connections == 0 })
	ts.untilUnpinned()
}

func TestABodyWaitsForACommitAndIsDroppedWhenTheJournalFails(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		j := new(fakeJournal)
		ts := serveJournaled(t, "unix", 1, hooks{}, j)
		c := ts.dial()
		body := text(1, 200_000)
		c.send(fmt.Sprintf("put 0 0 900 %d\r\n%s\r\nreserve\r\n", len(body), body))
		j.untilRecorded(ts, 1)
		ts.until("the body is pinned", func() bool { return ts.pinned() == 1 })
		if p := c.pending(); p != "" {
			t.Fatalf("%.40q was sent before the commit", p)
		}
		if fails {
			ts.CommitFailed()
			c.expectEOF()
		} else {
			j.commit(ts, 1)
			c.expect("INSERTED 1\r\n" + reserved(1, body))
		}
		ts.untilUnpinned()
	}
}
