package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// served connects a client to a server that has no more to say than these bytes.
func served(t *testing.T, says string) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "USING a\r\nWATCHING 2\r\nWATCHING 1\r\n"+says)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, conn) // until the client goes
	}()
	c := NewRecorder().NewClient("a", func() []string { return []string{l.Addr().String()} })
	c.waits = time.Minute
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestABodyThatNoServerMaySendIsNoLostConnection(t *testing.T) {
	for _, tt := range []struct {
		says string
		lost bool
	}{
		{says: "RESERVED 1 2\r\nabc\r\n"},
		{says: "RESERVED 1 2\r\nab\n\n"},
		{says: "RESERVED 1 -1\r\n\r\n"},
		{says: "RESERVED 1 x\r\nab\r\n"},
		{says: "RESERVED x 2\r\nab\r\n"},
		{says: "RESERVED 1 2\r\nab", lost: true},
		{says: "RESERVED 1", lost: true},
		{says: "", lost: true},
	} {
		if _, err := served(t, tt.says).Reserve(); err == nil || errors.Is(err, ErrLost) != tt.lost {
			t.Errorf("reserve: %q: %v", tt.says, err)
		}
	}
	if _, err := served(t, "OK 3\r\n---\n\n").Job(StatsJob, 1); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("stats-job: %v", err)
	}
	// A client that took this for a lost connection would try again until ctx ends.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := served(t, "OK 3\r\n---\n\n").AwaitUnreserved(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("stats-tube: %v", err)
	}
	if id, err := served(t, "RESERVED 1 2\r\nab\r\n").Reserve(); id != 1 || err != nil {
		t.Errorf("reserve: %d, %v", id, err)
	}
}

// The session of a client that half-closes may end before the reply to its reserve comes. If that is lost with the
// leader, the next one gives the client another job, and others have seen that the first one was reserved meanwhile.
func TestAReserveOfAClientThatHalfClosesMayHaveHadAnotherJob(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		c := served(t, fmt.Sprintf("RESERVED 2 %d\r\n%s\r\n", len(bodyOf(2, 0)), bodyOf(2, 0)))
		c.leaves = leaves
		if err := c.doAll([]Op{{Verb: Reserve}}, "reserve\r\n"); err != nil {
			t.Fatal(err)
		}
		now := c.rec.now()
		for _, n := range []int{1, 2} {
			c.rec.add(Op{Verb: Put, Tube: "a", Number: n, ID: uint64(n), TTR: longTTR, Body: bodyOf(n, 0), Reply: "INSERTED"})
		}
		seen := Op{Session: 9, Verb: ReserveJob, Tube: "a", ID: 1, Reply: "NOT_FOUND", Call: now, Return: now + 1}
		c.rec.add(seen)
		seen.Verb, seen.Reply, seen.Body, seen.Call, seen.Return = Peek, "FOUND", bodyOf(1, 0), now+2, now+3
		c.rec.add(seen)
		if err := Check(c.rec.History()); (err == nil) != leaves {
			t.Errorf("half-closed: %t: %v", leaves, err)
		}
	}
}
